"""A coordinator's life: observe, plan, execute, until everything that was asked for is final.

It keeps nothing in memory that matters. Two of them at once share the work of looking after the dead and each keeps its
own local workers going; chores that only one should do follow the sweep's fenced lease.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from sweeper.coordinator.chores import Chores
from sweeper.coordinator.parts import CoordinatorParts
from sweeper.coordinator.telling import Teller
from sweeper.errors import LedgerUnavailable, TransientError, UserError
from sweeper.ids import TrialNumber
from sweeper.ledger.leases import expire_dead_holder, expire_leases, running_holders
from sweeper.ledger.reads import progress, requested_counts, trials
from sweeper.ledger.requests import list_askers, retire_asker, touch_asker
from sweeper.ledger.results import outcome_gaps
from sweeper.ledger.sweeps import acquire_coordinator, release_coordinator, renew_coordinator, settle_sweep
from sweeper.model.plan import (
    AskerSeen,
    CollectRetired,
    Command,
    DropAsker,
    End,
    KeepWorkers,
    RepairOutcomes,
    Rules,
    Snapshot,
    WriteHighWater,
    outstanding,
    plan,
)
from sweeper.model.states import TrialState
from sweeper.model.waits import Program, Wait

log = logging.getLogger("sweeper.coordinator")

FIRST_TURN_S = 0.02
RETRY_FIRST_S = 0.2
RETRY_MOST_S = 5.0
LAST_CHORES_S = 20.0
"""How long the end waits for outcome objects that are still missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorEnd:
    """How a run ended: `kind` is done, evicted, failed_fast or workers_failed; counts are of the requested trials."""

    kind: str
    reason: str
    counts: Mapping[TrialState, int]
    withdrawn: bool = False
    """Whether the ledger was told that this command wants nothing any more."""


def coordinator_program(parts: CoordinatorParts) -> Program[CoordinatorEnd]:
    """Coordinate until the plan says End. The sweep is matched, and the trials are requested, before this.

    Raises:
        UserError: the sweep's name was taken over by another ledger.
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
        self._chores = Chores(parts)
        self._teller = Teller()
        self._notice: str | None = None
        self._withdrawn = False
        self._fence: int | None = None
        self._lease_due_s = float("-inf")
        self._touch_due_s = float("-inf")
        self._tend_due_s = float("-inf")
        self._show_due_s = float("-inf")
        self._askers: tuple[AskerSeen, ...] = ()
        self._gaps = 0
        self._counts: Mapping[TrialState, int] = {}
        self._failed_before: int | None = None
        self._shown: Mapping[TrialState, int] | None = None
        self._turn_s = FIRST_TURN_S
        self._outages = 0
        self._furthest: dict[TrialNumber, int] = {}

    def run(self) -> Program[CoordinatorEnd]:
        """Turn until the end."""
        while True:
            try:
                end = self._turn()
                self._answered()
            except TransientError as error:
                end = self._unanswered(error)
            except UserError:
                yield from self._workers_leave()
                raise
            if end is not None:
                yield from self._leave(end)
                return CoordinatorEnd(kind=end.kind, reason=end.reason, counts=self._counts, withdrawn=self._withdrawn)
            yield from self._sleep(self._parts.clock.monotonic_s() + self._turn_s)

    def _turn(self) -> End | None:
        now_s = self._parts.clock.monotonic_s()
        self._chores.advance()
        snapshot = self._observe(now_s)
        end = None
        for command in plan(snapshot, self._rules):
            end = self._execute(command, now_s) or end
        if end is None:
            self._show(now_s)
        return end

    def _observe(self, now_s: float) -> Snapshot:
        parts = self._parts
        before = self._counts
        self._counts = self._requested()
        if self._failed_before is None:
            self._failed_before = self._counts.get(TrialState.FAILED, 0)
        if self._counts != before:
            self._turn_s = FIRST_TURN_S
        if outstanding(self._counts) < outstanding(before):
            parts.workers.progressed()
        if outstanding(self._counts):
            self._keep_leases(now_s)
            if now_s >= self._tend_due_s:
                self._tend()
                self._tend_due_s = now_s + parts.settings.tend_every_s
        return Snapshot(
            now_s=now_s,
            counts=self._counts,
            leads=self._fence is not None,
            notice=self._notice,
            failed_before=self._failed_before,
            workers_failed=parts.workers.failed,
            askers=self._askers,
            gaps=0 if self._chores.busy else self._gaps,
            last=self._chores.last if not self._chores.busy else {"highwater": now_s, "collect": now_s},
        )

    def _requested(self) -> Mapping[TrialState, int]:
        """How the trials that were asked for stand; no request that went missing may look like one that is done."""
        parts = self._parts
        counts = requested_counts(parts.database, parts.sweep.sweep_id, parts.asker.asker_id)
        if sum(counts.values()) >= parts.asked:
            return counts
        log.warning("the request is gone from the ledger and made again asker=%s", parts.asker.asker_id[:8])
        parts.ask_again()
        return requested_counts(parts.database, parts.sweep.sweep_id, parts.asker.asker_id)

    def _keep_leases(self, now_s: float) -> None:
        """The coordinator's own lease, and the sign of life beside what this command asked for."""
        parts, settings = self._parts, self._parts.settings
        sweep_id, me = parts.sweep.sweep_id, parts.coordinator_id
        if now_s >= self._lease_due_s:
            if self._fence is not None and not renew_coordinator(
                parts.database, sweep_id, me, self._fence, lease_s=settings.coordinator_lease_s
            ):
                self._fence = None
            if self._fence is None:
                self._fence = acquire_coordinator(parts.database, sweep_id, me, lease_s=settings.coordinator_lease_s)
            self._lease_due_s = now_s + settings.coordinator_lease_s / 4
        if now_s >= self._touch_due_s:
            touch_asker(parts.database, parts.asker.asker_id)
            self._touch_due_s = now_s + settings.lease.heartbeat_s

    def _tend(self) -> None:
        """Look after the dead, as every worker does too; and see what else is to repair."""
        parts, lease = self._parts, self._parts.settings.lease
        sweep_id = parts.sweep.sweep_id
        for gone in expire_leases(parts.database, sweep_id, lease_s=lease.lease_s, heartbeat_s=lease.heartbeat_s):
            log.warning("lease expired trial=%d fence=%d", gone.number, gone.lease.fence)
        for holder in running_holders(parts.database, sweep_id, boot_id=parts.boot_id):
            if parts.holder_is_dead(holder):
                expire_dead_holder(parts.database, holder.lease, reason="holder on this host is gone")
                log.warning("holder is gone trial=%d fence=%d", holder.number, holder.lease.fence)
        self._askers = tuple(
            AskerSeen(asker_id=seen.asker_id, silent_s=seen.seconds_silent, dead=parts.asker_is_dead(seen))
            for seen in list_askers(parts.database, sweep_id)
            if seen.asker_id != parts.asker.asker_id
        )
        self._gaps = len(outcome_gaps(parts.database, sweep_id, limit=1))

    def _execute(self, command: Command, now_s: float) -> End | None:
        parts = self._parts
        match command:
            case KeepWorkers():
                parts.workers.keep(command.count, now_s)
            case DropAsker():
                retire_asker(parts.database, command.asker_id)
                self._askers = tuple(a for a in self._askers if a.asker_id != command.asker_id)
            case RepairOutcomes():
                self._chores.repair_outcomes()
                self._gaps = 0
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

    def _show(self, now_s: float) -> None:
        """Tell people, at most once a second and only then reading what is only for them."""
        if now_s < self._show_due_s:
            return
        parts = self._parts
        self._show_due_s = now_s + parts.settings.tend_every_s
        if self._counts != self._shown:
            self._shown = self._counts
            for event in self._teller.transitions(trials(parts.database, parts.sweep.sweep_id)):
                parts.sink.transition(event)
        standing = progress(parts.database, parts.sweep.sweep_id)
        further = {
            trial.number: trial.step for trial in standing.running if trial.step > self._furthest.get(trial.number, 0)
        }
        if further:  # that attempts begin is no progress: they may all die at their start
            self._furthest |= further
            parts.workers.progressed()
        parts.sink.turn(standing)

    def _sleep(self, until_s: float, *, for_chores: bool = True) -> Program[None]:
        parts = self._parts
        self._turn_s = min(self._turn_s * 1.5, parts.settings.turn_s)
        until_s = min(until_s, parts.workers.wake_at_s(parts.clock.monotonic_s()))
        futures = self._chores.futures if for_chores else ()
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
        self._turn_s = delay_s * (1.0 - 0.5 * self._parts.jitter())
        return None if self._notice is None else End(kind="evicted", reason=self._notice)

    def _leave(self, end: End) -> Program[None]:
        """Drain the workers, then bring rows and store in line as far as they answer."""
        yield from self._workers_leave()
        yield from self._last_chores(end)
        try:
            self._sign_off(end)
        except LedgerUnavailable as error:
            log.warning("not signed off, the next command will see that this one is gone: %s", error)

    def _workers_leave(self) -> Program[None]:
        parts = self._parts
        parts.workers.drain()
        give_up_s = parts.clock.monotonic_s() + parts.settings.drain_grace_s
        while parts.workers.alive and parts.clock.monotonic_s() < give_up_s:
            # A chore that has finished stays finished until somebody takes its result: waiting on it would spin.
            yield from self._sleep(parts.clock.monotonic_s() + 1.0, for_chores=False)
        if parts.workers.alive:
            parts.workers.kill()

    def _last_chores(self, end: End) -> Program[None]:
        parts = self._parts
        give_up_s = parts.clock.monotonic_s() + LAST_CHORES_S
        try:
            yield from self._finish_chore(give_up_s)
            while end.kind != "evicted" and self._may_repair(give_up_s):
                self._chores.repair_outcomes()
                yield from self._finish_chore(give_up_s)
            if self._fence is not None and not self._chores.busy:
                self._chores.write_highwater()
                yield from self._finish_chore(give_up_s)
        except LedgerUnavailable as error:
            log.warning("outcome objects are left for the next command to repair: %s", error)

    def _finish_chore(self, give_up_s: float) -> Program[None]:
        clock = self._parts.clock
        while self._chores.busy and clock.monotonic_s() < give_up_s:
            yield from self._sleep(clock.monotonic_s() + 1.0)
            self._chores.advance()

    def _may_repair(self, give_up_s: float) -> bool:
        if self._chores.busy or self._chores.failures or self._parts.clock.monotonic_s() >= give_up_s:
            return False
        return bool(outcome_gaps(self._parts.database, self._parts.sweep.sweep_id, limit=1))

    def _sign_off(self, end: End) -> None:
        parts = self._parts
        self._counts = requested_counts(parts.database, parts.sweep.sweep_id, parts.asker.asker_id)
        self._shown = None
        self._show_due_s = float("-inf")
        self._show(parts.clock.monotonic_s())
        settle_sweep(parts.database, parts.sweep.sweep_id)
        # After an eviction the request stays: workers elsewhere go on, and the next command sees that this one is gone.
        if end.kind in ("done", "failed_fast"):
            retire_asker(parts.database, parts.asker.asker_id)
            self._withdrawn = True
        if self._fence is not None:
            release_coordinator(parts.database, parts.sweep.sweep_id, parts.coordinator_id, self._fence)
