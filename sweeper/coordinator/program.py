"""A coordinator's life: observe, plan, execute, until everything that was asked for is final.

It keeps nothing in memory that matters. Two of them at once share the work of looking after the dead and each keeps its
own local workers going; chores that only one should do, and all that a search chooses, follow the sweep's fenced lease.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, assert_never

from sweeper.coordinator.chores import Chores
from sweeper.coordinator.leaving import CoordinatorEnd, Leaving
from sweeper.coordinator.pacing import Pace
from sweeper.coordinator.parts import CoordinatorParts, SearchStanding
from sweeper.coordinator.showing import Display
from sweeper.coordinator.tending import Tending
from sweeper.errors import CoordinatorLost, LedgerUnavailable, TransientError, UserError
from sweeper.ledger.reads import requested_counts
from sweeper.ledger.requests import retire_asker
from sweeper.model.plan import (
    CollectRetired,
    Command,
    DropAsker,
    End,
    KeepWorkers,
    RepairOutcomes,
    Rules,
    SearchSeen,
    Snapshot,
    WriteHighWater,
    outstanding,
    plan,
)
from sweeper.model.states import FINAL_STATES, TrialState
from sweeper.model.waits import Future, Program, Wait

__all__ = ["Coordinator", "CoordinatorEnd", "coordinator_program"]

log = logging.getLogger("sweeper.coordinator")

RETRY_FIRST_S = 0.2
RETRY_MOST_S = 5.0


def coordinator_program(parts: CoordinatorParts) -> Program[CoordinatorEnd]:
    """Coordinate until the plan says End. The sweep is matched, and a grid's trials are requested, before this.

    Raises:
        UserError: the sweep's name was taken over by another ledger, or the search's own code cannot go on.
    """
    return (yield from Coordinator(parts).run())


class Coordinator:
    """One run; see `coordinator_program`."""

    def __init__(self, parts: CoordinatorParts) -> None:
        self._parts = parts
        settings = parts.settings
        self._rules = Rules(
            workers=settings.workers,
            fail_fast=settings.fail_fast,
            asker_silent_s=settings.asker_silent_s,
            highwater_every_s=settings.highwater_every_s,
            collect_every_s=settings.collect_every_s,
        )
        self._tending = Tending(parts)
        self._chores = Chores(parts)
        self._display = Display(parts)
        steady = parts.search is not None
        self._pace = Pace(first_s=settings.first_turn_s, most_s=settings.turn_s, steady=steady)
        self._notice: str | None = None
        self._counts: Mapping[TrialState, int] = {}
        self._search: SearchStanding | None = None
        self._failed_before: int | None = None
        self._outages = 0

    def run(self) -> Program[CoordinatorEnd]:
        """Turn until the end."""
        leaving = Leaving(
            self._parts, self._chores, self._tending, self._sleep, noticed=lambda: self._notice is not None
        )
        clock = self._parts.clock
        while True:
            from_s = clock.monotonic_s()  # a turn that took long was pause enough: workers wait for what comes next
            try:
                end = self._turn()
                self._answered()
            except TransientError as error:
                end, from_s = self._unanswered(error), clock.monotonic_s()
            except UserError:
                yield from leaving.workers_leave()
                raise
            if end is not None:
                return (yield from leaving.leave(end, self._display, self._counts))
            yield from self._sleep(from_s + self._pace.next_s())

    def _turn(self) -> End | None:
        now_s = self._parts.clock.monotonic_s()
        self._chores.advance()
        snapshot = self._observe(now_s)
        end = None
        for command in plan(snapshot, self._rules):
            end = self._execute(command, now_s) or end
        if end is None:
            self._display.show(now_s, self._counts, self._search)
        return end

    def _observe(self, now_s: float) -> Snapshot:
        parts, before = self._parts, self._counts
        self._counts = self._look(now_s)
        if self._failed_before is None:
            self._failed_before = self._counts.get(TrialState.FAILED, 0)
        if self._counts != before:
            self._pace.moved()
        if _finals(self._counts) > _finals(before):
            parts.workers.progressed()
        busy = self._chores.busy
        search = self._search
        return Snapshot(
            now_s=now_s,
            counts=self._counts,
            leads=self._tending.fence is not None,
            notice=self._notice,
            failed_before=self._failed_before,
            workers_failed=parts.workers.failed,
            askers=self._tending.askers,
            gaps=0 if busy else self._tending.gaps,
            last=self._chores.last if not busy else {"highwater": now_s, "collect": now_s},
            search=None if search is None else SearchSeen(end=search.end, wanted=search.wanted),
        )

    def _look(self, now_s: float) -> Mapping[TrialState, int]:
        """See how this command's trials stand, and take the search's turn."""
        if self._parts.search is not None:
            return self._search_turn(now_s)
        counts = self._requested()
        if outstanding(counts):
            self._tending.keep_leases(now_s)
            self._tending.tend(now_s)
        return counts

    def _requested(self) -> Mapping[TrialState, int]:
        """How the trials that were asked for stand; no request that went missing may look like one that is done."""
        parts = self._parts
        counts = requested_counts(parts.database, parts.sweep.sweep_id, parts.asker.asker_id)
        if sum(counts.values()) >= parts.asked:
            return counts
        self._ask_again()
        return requested_counts(parts.database, parts.sweep.sweep_id, parts.asker.asker_id)

    def _search_turn(self, now_s: float) -> Mapping[TrialState, int]:
        """Before anything is chosen, the dead are looked after: a proposal must not take them for running (OP-11)."""
        parts, tending = self._parts, self._tending
        assert parts.search is not None, "a grid has no search turn"
        tending.keep_leases(now_s)
        tending.tend(now_s)
        if tending.asker_gone:
            self._ask_again()
            parts.search.forget()
            tending.asker_gone = False
        if parts.mirror is not None:
            parts.mirror.turn(tending.fence)
        try:
            self._search = parts.search.turn(tending.fence)
        except CoordinatorLost as lost:
            log.warning("%s", lost)
            tending.lost_lead()
            self._search = parts.search.turn(None)
        self._display.saw(self._search)
        if self._search.leaderless and tending.fence is None:
            tending.may_lead()
            self._pace.moved()
        if self._search.moved:
            self._pace.moved()
        return self._search.counts

    def _ask_again(self) -> None:
        log.warning("the request is gone from the ledger and made again asker=%s", self._parts.asker.asker_id[:8])
        self._parts.ask_again()

    def _execute(self, command: Command, now_s: float) -> End | None:
        parts = self._parts
        match command:
            case KeepWorkers():
                parts.workers.keep(command.count, now_s)
            case DropAsker():
                retire_asker(parts.database, command.asker_id)
                self._tending.drop(command.asker_id)
                self._pace.moved()
            case RepairOutcomes():
                self._chores.repair_outcomes()
                self._tending.gaps = 0
            case WriteHighWater():
                if not self._chores.busy:
                    self._chores.write_highwater()
            case CollectRetired():
                if not self._chores.busy:
                    self._chores.collect()
            case End():
                return command
            case _:
                assert_never(command)
        return None

    def _sleep(self, until_s: float, *, for_chores: bool = True) -> Program[None]:
        parts = self._parts
        until_s = min(until_s, parts.workers.wake_at_s(parts.clock.monotonic_s()))
        futures: tuple[Future[Any], ...] = ()  # Any: of chores and of the mirror, each with values of its own
        if for_chores:
            futures = self._chores.futures if parts.mirror is None else (*self._chores.futures, *parts.mirror.futures)
        woken = yield Wait(until_s=until_s, children=parts.workers.waitables, futures=futures)
        for notice in woken.notices:
            if self._notice is not None:
                parts.workers.drain()
            else:
                self._notice = f"{notice.source}: {notice.reason}"
                parts.sink.note("Leaving: trials save and give their leases back. The same command goes on later.")
        parts.workers.reap(woken.now_s)

    def _answered(self) -> None:
        if self._outages:
            self._parts.sink.note("It answers again.")
        self._outages = 0

    def _unanswered(self, error: TransientError) -> End | None:
        """The ledger is away (or the store, where only it can tell): say so once, try again later; workers go on."""
        if not self._outages:
            who = "ledger" if isinstance(error, LedgerUnavailable) else "store"
            self._parts.sink.note(f"The {who} does not answer; trying again. {error}")
        delay_s = min(RETRY_FIRST_S * 2.0 ** min(self._outages, 10), RETRY_MOST_S)
        self._outages += 1
        self._pace.wait(delay_s * (1.0 - 0.5 * self._parts.jitter()))
        return None if self._notice is None else End(kind="evicted", reason=self._notice)


def _finals(counts: Mapping[TrialState, int]) -> int:
    return sum(counts.get(state, 0) for state in FINAL_STATES)
