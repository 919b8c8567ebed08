"""Proposals: for the next number suggest, compose, commit; enqueued points first, once each."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sweeper.coordinator.feeding import Feed
from sweeper.coordinator.parts import SearchPlan
from sweeper.coordinator.records import Records
from sweeper.errors import UserError
from sweeper.ids import AskerId, CoordinatorId, SweepId, TrialId, TrialNumber
from sweeper.ledger.enqueued import enqueue, next_enqueued, set_enqueued_refused
from sweeper.ledger.proposals import add_numbers
from sweeper.ledger.statements import Statements
from sweeper.model.search import NewNumber, Numbered, Suggestion
from sweeper.model.space import choice_text
from sweeper.model.states import PointSource, TrialState
from sweeper.model.trial import Json, NewTrial

log = logging.getLogger("sweeper.coordinator")

NOT_YET: Final = TrialId(-1)
"""The ledger has not drawn it; no sampler looks at it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chooser:
    """Who chooses, in which sweep: every choice carries the coordinator's fence (FENCE)."""

    database: Statements
    sweep_id: SweepId
    coordinator_id: CoordinatorId
    asker_id: AskerId


class Proposer:
    """Chooses and commits numbers; one at a time, what it suggests for a number depends on the ledger alone (SAME)."""

    def __init__(
        self, chooser: Chooser, plan: SearchPlan, records: Records, feed: Feed, note: Callable[[str], None]
    ) -> None:
        self._chooser = chooser
        self._plan = plan
        self._records = records
        self._feed = feed
        self._note = note
        self.points_wait = True
        """Whether there may be enqueued points; False spares a look for each number."""

    def enqueue_own(self) -> None:
        """Put the command's own points into the ledger; those that are there already stay as they are (OP-13)."""
        points = [(point_key(point), dict(point)) for point in self._plan.enqueue]
        if points:
            enqueue(self._chooser.database, self._chooser.sweep_id, points, source=PointSource.CONFIG)
            self.points_wait = True

    @property
    def has_enqueued(self) -> bool:
        """Whether a point waits to be tried."""
        return next_enqueued(self._chooser.database, self._chooser.sweep_id) is not None

    def propose(self, fence: int, *, most: int, enough: Callable[[], bool]) -> list[Numbered]:
        """Give the next numbers configs, in one commit, and take them into memory.

        Args:
            fence: the sweep's.
            most: how many; more than one only where a proposal may rest on what is not committed yet.
            enough: whether it is time to commit what there is.

        Raises:
            CoordinatorLost, NumberTaken: another coordinator chooses; the study is ahead of the ledger.
            LedgerUnavailable: it may have been committed; the study may be ahead of the ledger.
            UserError: the define-by-run function, or the sampler, cannot go on.
        """
        feed, first = self._feed, self._records.next_number
        new: list[NewNumber] = []
        added = 0
        while True:
            new.append(self._next(fence, first + len(new)))
            if len(new) == most or not _is_plain(new[-1]) or enough():
                break
            feed.add(_as_new(new[-1]))
            added += 1
            if feed.optimizer.used_up():
                break
        rows = self._committed(fence, new)
        for row in rows:
            self._records.add(row)
        feed.committed(rows[:added])
        for row in rows[added:]:
            feed.add(row)
        return rows

    def _next(self, fence: int, number: int) -> NewNumber:
        self._feed.tell_up_to(number)
        return self._composed(TrialNumber(number), self._suggest(fence, number))

    def _committed(self, fence: int, new: Sequence[NewNumber]) -> list[Numbered]:
        chooser = self._chooser
        added = add_numbers(
            chooser.database,
            chooser.sweep_id,
            coordinator_id=chooser.coordinator_id,
            fence=fence,
            asker_id=chooser.asker_id,
            new=new,
        )
        rows = [
            Numbered(
                number=one.number,
                proposal=one.suggestion.proposal,
                trial_id=came_to.trial_id,
                first_number=came_to.first_number,
                state=came_to.state,
            )
            for one, came_to in zip(new, added, strict=True)
        ]
        for row in rows:
            log.debug("proposed number=%d trial=%s", row.number, row.first_number)
        return rows

    def _suggest(self, fence: int, number: int) -> Suggestion:
        """Complete the first enqueued point that fits the space; without any, ask the sampler."""
        optimizer, chooser = self._feed.optimizer, self._chooser
        while self.points_wait:
            found = next_enqueued(chooser.database, chooser.sweep_id)
            if found is None:
                self.points_wait = False
                break
            key, point = found
            try:
                return optimizer.suggest(number, fixed=point, key=key)
            except UserError as error:
                if not optimizer.loaded:  # not the point's fault
                    raise
                set_enqueued_refused(
                    chooser.database, chooser.sweep_id, chooser.coordinator_id, fence, key=key, reason=error.message
                )
                self._note(f"An enqueued point cannot be tried: {error.message}")
        return optimizer.suggest(number)

    def _composed(self, number: TrialNumber, suggestion: Suggestion) -> NewNumber:
        trial: NewTrial | None = None
        reason = None
        try:
            trial = self._plan.compose(number, suggestion.proposal.params)
        except UserError as error:
            reason = error.message
            self._note(f"Number {number} is refused: {error.message}")
        return NewNumber(number=number, suggestion=suggestion, trial=trial, reason=reason)


def _is_plain(new: NewNumber) -> bool:
    """Whether the next number may be chosen before this one is committed: points are found by what is committed, and a
    refusal may end the search."""
    return new.trial is not None and new.suggestion.proposal.enqueued is None


def _as_new(new: NewNumber) -> Numbered:
    """What the row will be, if the ledger does not know the config."""
    return Numbered(
        number=new.number,
        proposal=new.suggestion.proposal,
        trial_id=NOT_YET,
        first_number=new.number,
        state=TrialState.PENDING,
    )


def point_key(point: Mapping[str, Json]) -> str:
    """Name an enqueued point of a config by its values, so that each start enqueues the same one."""
    return f"config-{hashlib.sha256(choice_text(dict(point)).encode()).hexdigest()[:32]}"
