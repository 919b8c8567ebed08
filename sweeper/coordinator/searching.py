"""A search's turn: what finished is taken in, reports are decided on, free places are filled, and the end is seen.

All that it keeps is derived from rows: the records, the warm study, the scheduler's memory. Whatever may be ahead of
the ledger (a reply was lost, another coordinator chooses) is dropped and built again, with the same result (SAME).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from sweeper.clock import Clock
from sweeper.collector import collector_paused
from sweeper.coordinator.deciding import Decider
from sweeper.coordinator.ending import is_good_enough, search_end, space_end
from sweeper.coordinator.feeding import Feed
from sweeper.coordinator.parts import SearchPlan, SearchStanding
from sweeper.coordinator.places import Demand, free_places
from sweeper.coordinator.proposing import Chooser, Proposer
from sweeper.coordinator.reading import Reader
from sweeper.coordinator.records import Records
from sweeper.coordinator.scheduling import RUNG_KINDS, Rungs
from sweeper.coordinator.watching import Watch
from sweeper.errors import CoordinatorLost, LedgerUnavailable, NumberTaken
from sweeper.ledger.commands import cancel_open
from sweeper.ledger.decisions import decisions
from sweeper.ledger.searches import SearchStanding as LedgerStanding
from sweeper.ledger.searches import end_search, finish_search, request_open, resume_search, search_standing, study_attrs
from sweeper.model.plan import SearchEnd
from sweeper.model.progress import SearchProgress
from sweeper.model.search import DecisionKind, Numbered
from sweeper.model.states import SweepState, TrialState

if TYPE_CHECKING:  # a plain grid has no use for Optuna, whose import takes longer than a short trial
    from sweeper.search.optimizer import Optimizer

log = logging.getLogger("sweeper.coordinator")

LONGEST_TURN_S: Final = 0.2
"""After this long no more is proposed in a turn: what has ended meanwhile is worth knowing, and leases and reports want
attention too."""
MOST_A_TURN: Final = 200
"""Commits of numbers, and moves, that one turn may make."""
COMMIT_EVERY_S: Final = 0.05
"""What was chosen this long ago waits for no more to be committed with it: a worker may be waiting."""
PAUSED: Final = TrialState.PAUSED
CANCELLED: Final = SearchEnd(kind="done", reason="the sweep was cancelled by command")


class Searching:
    """Implements `SearchTurns`."""

    def __init__(
        self,
        chooser: Chooser,
        plan: SearchPlan,
        optimizer: Optimizer,
        *,
        clock: Clock,
        workers: int,
        seed: int,
        note: Callable[[str], None],
    ) -> None:
        """Take over the optimizer; nothing is read before the first turn.

        Args:
            chooser: in whose name the ledger is written.
            plan: what the command searches, and for how long.
            optimizer: made for the plan's search; not loaded yet.
            clock: for limits of time.
            workers: local workers of this command.
            seed: the sweep's.
            note: tells people something once.
        """
        spec = plan.spec
        self._chooser, self._plan, self._clock, self._workers = chooser, plan, clock, workers
        self._records = Records(spec.directions, spec.constraints, good_enough=plan.limits.value)
        reader = Reader(chooser.database, chooser.sweep_id, with_reports=optimizer.wants_reports)
        self._watch = Watch(self._records, reader, clock)
        self._feed = Feed(optimizer, spec)
        self._proposer = Proposer(chooser, plan, self._records, self._feed, note)
        self._decider = None if spec.pruner is None else Decider(chooser, self._feed)
        self._rungs = None if spec.scheduler is None else Rungs(chooser, plan, self._records, seed=seed, note=note)
        self._demand = Demand()
        self._fence: int | None = None
        self._stale = True
        self._began_s = clock.monotonic_s()
        self._moved = False

    def turn(self, fence: int | None) -> SearchStanding:
        """See `SearchTurns`."""
        self._watch.begin_turn()
        self._moved = False
        seen = search_standing(self._chooser.database, self._chooser.sweep_id)
        self._proposer.points_wait = seen.points_wait
        try:
            with nullcontext() if self._feed.loaded else collector_paused():  # the whole history may have to be read
                end = self._look_and_lead(seen, fence)
        except NumberTaken as taken:
            self._drop()
            self._moved = True
            log.warning("chosen anew: %s", taken)
            end = self._plain_end()
        except (LedgerUnavailable, CoordinatorLost):
            self._drop()
            raise
        return self._standing(end, leaderless=seen.leaderless)

    def forget(self) -> None:
        """See `SearchTurns`."""
        self._watch.forget()
        self._drop()

    def finish(self) -> None:
        """See `SearchTurns`."""
        finish_search(self._chooser.database, self._chooser.sweep_id)

    def _look_and_lead(self, seen: LedgerStanding, fence: int | None) -> SearchEnd | None:
        self._look(seen, fence)
        end = CANCELLED if seen.state is SweepState.CANCELLED else self._plain_end()
        return end if fence is None or end is CANCELLED else self._lead(seen, fence)

    # What there is

    def _drop(self) -> None:
        """The study may be ahead of the ledger."""
        self._stale = True
        self._feed.drop()

    def _look(self, seen: LedgerStanding, fence: int | None) -> None:
        """Bring the records, and the study if it is warm, in line with the ledger."""
        leads_anew = fence is not None and (self._stale or fence != self._fence)
        overtaken = fence is not None and seen.next_number > self._records.next_number
        if not (leads_anew or overtaken or self._watch.is_past(seen)):
            self._fence = fence
            self._watch.look(seen)
            return
        chooser = self._chooser
        self._drop()
        if fence is not None:
            self._proposer.enqueue_own()
        request_open(chooser.database, chooser.sweep_id, chooser.asker_id)
        self._watch.look_anew(seen)
        self._fence, self._stale = fence, False
        self._moved = True

    def _warm(self) -> None:
        """Have the study and the scheduler hold what the records hold."""
        if self._feed.loaded:
            return
        chooser = self._chooser
        rows = self._watch.read_all()
        kinds = (DecisionKind.REPORT,) if self._rungs is None else RUNG_KINDS
        wanted = self._decider is not None or self._rungs is not None
        made = decisions(chooser.database, chooser.sweep_id, kinds=kinds) if wanted else []
        self._feed.load(rows, study_attrs(chooser.database, chooser.sweep_id), made)
        if self._rungs is not None:
            self._rungs.load(rows, made)

    def _feed_turned(self) -> None:
        turned, self._watch.turned = self._watch.turned, []
        if self._feed.loaded:
            self._feed.changed(turned)

    # What to do

    def _lead(self, seen: LedgerStanding, fence: int) -> SearchEnd | None:
        end = self._plain_end()
        if end is not None and (end.kind != "done" or not self._records.open):
            self._close(seen, fence, end)
            return end
        waits = self._plan.spec.deterministic and self._records.unsettled  # who has ended by now is a matter of timing
        if end is not None and is_good_enough(self._plan, self._records) and not waits:
            self._cancel_open(fence, end)
        else:
            self._decide(fence)
            end = self._fill(seen, fence)
        if end is not None:
            self._close(seen, fence, end)
        return end

    def _decide(self, fence: int) -> None:
        """On what those reported that have ended meanwhile, as if they had not; then on the rest, knowing their end."""
        deciders = [decider for decider in (self._decider, self._rungs) if decider is not None]
        ended = [row.trial_id for row in self._watch.turned if row.trial_id is not None and row.state is not PAUSED]
        if deciders:
            self._warm()
        if ended and not self._plan.spec.deterministic:  # otherwise no trial ends before its reports are decided on
            for decider in deciders:
                decider.decide(fence, ended)
        self._feed_turned()
        for decider in deciders:
            self._moved = decider.decide(fence) or self._moved

    def _fill(self, seen: LedgerStanding, fence: int) -> SearchEnd | None:
        """Give every free place something to do: who was promoted first, then what is new; give the reason to end."""
        records, began_s = self._records, self._clock.monotonic_s()
        ahead, records.settled_lately = self._demand.turn(records.settled_lately), 0
        end = self._plain_end()
        if end is None:
            self._warm()
            end = self._end()
        if end is None and (seen.ended_reason is not None or seen.state is not SweepState.ACTIVE):
            resume_search(self._chooser.database, self._chooser.sweep_id, self._chooser.coordinator_id, fence)
        live = max(seen.live_workers, self._workers)
        for _ in range(MOST_A_TURN):
            if self._clock.monotonic_s() - began_s > LONGEST_TURN_S:
                self._moved = True
                return None
            places = free_places(self._plan.spec, records, live=live, ahead=ahead)
            if not places:
                break
            if self._move(fence, closing=end is not None and not records.unsettled):
                continue
            if end is not None:
                break
            for row in self._propose(fence, places):
                self._watch.added(row)
                if self._rungs is not None:
                    self._rungs.add(row)
            self._moved = True
            end = self._end()
        if end is not None and self._rungs is not None and not records.unsettled:
            self._watch.look_at(self._rungs.prune_left_over(fence))
        return end

    def _propose(self, fence: int, places: int) -> list[Numbered]:
        """Fill some of the places in one commit; one at a time while the search repeats itself, to see it end."""
        began_s, records = self._clock.monotonic_s(), self._records
        most = 1 if records.repeats_in_a_row else min(places, self._plan.spec.n_trials - records.next_number)
        return self._proposer.propose(
            fence, most=most, enough=lambda: self._clock.monotonic_s() - began_s > COMMIT_EVERY_S
        )

    def _move(self, fence: int, *, closing: bool) -> bool:
        """Let a paused trial go on; whatever became of that, look at it again."""
        number = None if self._rungs is None else self._rungs.move(fence, closing=closing)
        if number is None:
            return False
        self._watch.look_at([number])
        self._feed_turned()
        return True

    def _cancel_open(self, fence: int, end: SearchEnd) -> None:
        chooser = self._chooser
        cancel_open(chooser.database, chooser.sweep_id, chooser.coordinator_id, fence, reason=end.reason)
        self._watch.look_at(self._records.open)

    def _close(self, seen: LedgerStanding, fence: int, end: SearchEnd) -> None:
        """Write down that nothing more is proposed, for everybody who looks; an end of this run alone is not."""
        chooser = self._chooser
        if end.kind == "done" and seen.ended_reason is None:
            end_search(chooser.database, chooser.sweep_id, chooser.coordinator_id, fence, reason=end.reason)

    # How it stands

    def _plain_end(self) -> SearchEnd | None:
        return search_end(self._plan, self._records, elapsed_s=self._clock.monotonic_s() - self._began_s)

    def _end(self) -> SearchEnd | None:
        end = self._plain_end()
        if end is None and self._feed.optimizer.used_up() and not self._proposer.has_enqueued:
            end = space_end(self._records)
        return end

    def _standing(self, end: SearchEnd | None, *, leaderless: bool) -> SearchStanding:
        records, spec = self._records, self._plan.spec
        to_come = 0 if end is not None else max(spec.n_trials - records.next_number, 0)
        changed = self._watch.take_changed()
        return SearchStanding(
            counts=records.states,
            end=end,
            wanted=min(self._workers, records.unsettled + records.counts[PAUSED] + to_come),
            changed=tuple(changed),
            moved=self._moved or bool(changed),
            leaderless=leaderless,
            progress=SearchProgress(
                proposed=records.next_number,
                n_trials=spec.n_trials,
                repeats=records.repeats,
                best=records.best if len(spec.directions) == 1 else None,
            ),
        )
