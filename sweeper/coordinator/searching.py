"""A search's turn: what finished is taken in, reports are decided on, free places are filled, and the end is seen.

All that it keeps is derived from rows: the records, the warm study, the scheduler's memory. Whatever may be ahead of
the ledger (a reply was lost, another coordinator chooses) is dropped and built again, with the same result (SAME).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from sweeper.clock import Clock
from sweeper.coordinator.deciding import Decider
from sweeper.coordinator.ending import search_end, space_end
from sweeper.coordinator.feeding import Feed
from sweeper.coordinator.parts import SearchPlan, SearchStanding
from sweeper.coordinator.places import free_places
from sweeper.coordinator.proposing import Chooser, Proposer
from sweeper.coordinator.reading import Reader
from sweeper.coordinator.records import Records, settled
from sweeper.coordinator.scheduling import RUNG_KINDS, Rungs
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

PAUSED_EVERY_S: Final = 5.0
"""Between two looks at paused trials, which only people's commands and this coordinator move."""
LONGEST_TURN_S: Final = 2.0
"""After this long no more is proposed in a turn: leases and reports want attention too."""
MOST_A_TURN: Final = 200
"""Numbers and moves that one turn may make."""
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
        self._records = Records(spec.directions, spec.constraints)
        self._reader = Reader(chooser.database, chooser.sweep_id, with_reports=optimizer.wants_reports)
        self._feed = Feed(optimizer, spec)
        self._proposer = Proposer(chooser, plan, self._records, self._feed, note)
        self._decider = None if spec.pruner is None else Decider(chooser, self._feed)
        self._rungs = None if spec.scheduler is None else Rungs(chooser, plan, self._records, seed=seed, note=note)
        self._revision: int | None = None
        self._fence: int | None = None
        self._stale = True
        self._rows: Sequence[Numbered] | None = None
        self._began_s = clock.monotonic_s()
        self._paused_due_s = float("-inf")
        self._changed: set[int] = set()
        self._turned: list[Numbered] = []
        self._moved = False

    def turn(self, fence: int | None) -> SearchStanding:
        """See `SearchTurns`."""
        self._changed, self._turned, self._moved = set(), [], False
        seen = search_standing(self._chooser.database, self._chooser.sweep_id)
        try:
            self._look(seen, fence)
            end = CANCELLED if seen.state is SweepState.CANCELLED else self._plain_end()
            if fence is not None and end is not CANCELLED:
                end = self._lead(seen, fence)
        except NumberTaken as taken:
            self._drop()
            self._moved = True
            log.warning("chosen anew: %s", taken)
            end = self._plain_end()
        except (LedgerUnavailable, CoordinatorLost):
            self._drop()
            raise
        finally:
            self._rows = None
        return self._standing(end)

    def forget(self) -> None:
        """See `SearchTurns`."""
        self._revision = None
        self._drop()

    def finish(self) -> None:
        """See `SearchTurns`."""
        finish_search(self._chooser.database, self._chooser.sweep_id)

    # What there is

    def _drop(self) -> None:
        """The study may be ahead of the ledger."""
        self._stale = True
        self._feed.drop()

    def _look(self, seen: LedgerStanding, fence: int | None) -> None:
        """Bring the records, and the study if it is warm, in line with the ledger."""
        records = self._records
        foreign = seen.next_number > records.next_number
        if (
            self._revision != seen.revision
            or seen.next_number < records.next_number
            or (fence is not None and (self._stale or foreign or fence != self._fence))
        ):
            self._look_anew(seen, fence)
            return
        self._fence = fence
        if foreign:
            for row in self._reader.history(records.next_number):
                records.add(row)
                self._changed.add(row.number)
        now_s = self._clock.monotonic_s()
        with_paused = now_s >= self._paused_due_s
        if with_paused:
            self._paused_due_s = now_s + PAUSED_EVERY_S
        self._look_at([number for number, row in records.open.items() if with_paused or row.state is not PAUSED])

    def _look_anew(self, seen: LedgerStanding, fence: int | None) -> None:
        """Read all numbers; the study is built of them when there is something to choose."""
        chooser = self._chooser
        self._drop()
        if fence is not None:
            self._proposer.enqueue_own()
        request_open(chooser.database, chooser.sweep_id, chooser.asker_id)
        self._rows = self._reader.history()
        self._records.load(self._rows)
        self._revision, self._fence, self._stale = seen.revision, fence, False
        self._changed |= self._records.open.keys()
        self._moved = True

    def _look_at(self, numbers: Sequence[int]) -> None:
        for row in self._reader.numbered(numbers):
            before = self._records.update(row)
            if before is None:
                continue
            self._changed.add(row.number)
            if not row.is_alias and (settled(row) or settled(before)):
                self._turned.append(row)
        self._moved = self._moved or bool(self._changed)

    def _feed_turned(self) -> None:
        turned, self._turned = self._turned, []
        if self._feed.loaded:
            self._feed.changed(turned)

    def _warm(self) -> None:
        """Have the study and the scheduler hold what the records hold."""
        if self._feed.loaded:
            return
        chooser = self._chooser
        if self._rows is None:  # read in an earlier turn, in which nothing was to be chosen
            self._rows = self._reader.history()
            self._records.load(self._rows)
        kinds = (DecisionKind.REPORT,) if self._rungs is None else RUNG_KINDS
        wanted = self._decider is not None or self._rungs is not None
        made = decisions(chooser.database, chooser.sweep_id, kinds=kinds) if wanted else []
        self._feed.load(self._rows, study_attrs(chooser.database, chooser.sweep_id), made)
        if self._rungs is not None:
            self._rungs.load(self._rows, made)
        self._turned.clear()  # as it was read just now

    # What to do

    def _lead(self, seen: LedgerStanding, fence: int) -> SearchEnd | None:
        end = self._plain_end()
        if end is not None and (end.kind != "done" or not self._records.open):
            self._close(seen, fence, end)
            return end
        limit = self._plan.limits.value
        if limit is not None and self._records.reaches(limit):
            assert end is not None, "reaching the limit is a reason to end"
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
        ended = [row.trial_id for row in self._turned if row.trial_id is not None and row.state is not PAUSED]
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
        lately, records.settled_lately = records.settled_lately, 0
        end = self._plain_end()
        if end is None:
            self._warm()
            end = self._end()
        if end is None and (seen.ended_reason is not None or seen.state is not SweepState.ACTIVE):
            resume_search(self._chooser.database, self._chooser.sweep_id)
        live = max(seen.live_workers, self._workers)
        for _ in range(MOST_A_TURN):
            if self._clock.monotonic_s() - began_s > LONGEST_TURN_S:
                self._moved = True
                return None
            if not free_places(self._plan.spec, records, live=live, lately=lately):
                break
            if self._move(fence, closing=end is not None and not records.unsettled):
                continue
            if end is not None:
                break
            row = self._proposer.propose(fence)
            self._changed.add(row.number)
            self._moved = True
            if self._rungs is not None:
                self._rungs.add(row)
            end = self._end()
        if end is not None and self._rungs is not None and not records.unsettled:
            self._look_at(self._rungs.prune_left_over(fence))
        return end

    def _move(self, fence: int, *, closing: bool) -> bool:
        """Let a paused trial go on; whatever became of that, look at it again."""
        number = None if self._rungs is None else self._rungs.move(fence, closing=closing)
        if number is None:
            return False
        self._look_at([number])
        self._feed_turned()
        return True

    def _cancel_open(self, fence: int, end: SearchEnd) -> None:
        chooser = self._chooser
        cancel_open(chooser.database, chooser.sweep_id, chooser.coordinator_id, fence, reason=end.reason)
        self._look_at(list(self._records.open))

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

    def _standing(self, end: SearchEnd | None) -> SearchStanding:
        records, spec = self._records, self._plan.spec
        to_come = 0 if end is not None else max(spec.n_trials - records.next_number, 0)
        single = len(spec.directions) == 1
        return SearchStanding(
            counts=records.states,
            end=end,
            wanted=min(self._workers, records.unsettled + records.counts[PAUSED] + to_come),
            changed=tuple(_first_numbers(records, self._changed)),
            moved=self._moved,
            progress=SearchProgress(
                proposed=records.next_number,
                n_trials=spec.n_trials,
                repeats=records.repeats,
                best=records.best if single else None,
            ),
        )


def _first_numbers(records: Records, numbers: Iterable[int]) -> list[int]:
    return sorted(number for number in numbers if records.standing.get(number) is not None)
