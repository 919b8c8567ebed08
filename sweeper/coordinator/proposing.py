"""Proposals: for the next number suggest, compose, commit; enqueued points first, once each."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sweeper.coordinator.feeding import Feed
from sweeper.coordinator.parts import SearchPlan
from sweeper.coordinator.records import Records
from sweeper.errors import UserError
from sweeper.ids import AskerId, CoordinatorId, SweepId, TrialNumber
from sweeper.ledger.enqueued import enqueue, next_enqueued, set_enqueued_refused
from sweeper.ledger.proposals import add_number
from sweeper.ledger.statements import Statements
from sweeper.model.search import NewNumber, Numbered, Suggestion
from sweeper.model.space import choice_text
from sweeper.model.states import PointSource
from sweeper.model.trial import Json, NewTrial

log = logging.getLogger("sweeper.coordinator")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chooser:
    """Who chooses, in which sweep: every choice carries the coordinator's fence (FENCE)."""

    database: Statements
    sweep_id: SweepId
    coordinator_id: CoordinatorId
    asker_id: AskerId


class Proposer:
    """Commits one number at a time; what it suggests for a number depends on the ledger alone (SAME)."""

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

    def propose(self, fence: int) -> Numbered:
        """Give the next number a config, and take it into memory.

        Raises:
            CoordinatorLost, NumberTaken: another coordinator chooses; the study is ahead of the ledger.
            LedgerUnavailable: it may have been committed; the study may be ahead of the ledger.
            UserError: the define-by-run function, or the sampler, cannot go on.
        """
        number = self._records.next_number
        self._feed.tell_up_to(number)
        suggestion = self._suggest(number)
        new = self._composed(TrialNumber(number), suggestion)
        chooser = self._chooser
        added = add_number(
            chooser.database,
            chooser.sweep_id,
            coordinator_id=chooser.coordinator_id,
            fence=fence,
            asker_id=chooser.asker_id,
            new=new,
        )
        row = Numbered(
            number=number,
            proposal=suggestion.proposal,
            trial_id=added.trial_id,
            first_number=added.first_number,
            state=added.state,
        )
        self._records.add(row)
        self._feed.add(row)
        log.debug("proposed number=%d trial=%s", number, added.first_number)
        return row

    def _suggest(self, number: int) -> Suggestion:
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
                set_enqueued_refused(chooser.database, chooser.sweep_id, key, reason=error.message)
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


def point_key(point: Mapping[str, Json]) -> str:
    """Name an enqueued point of a config by its values, so that each start enqueues the same one."""
    return f"config-{hashlib.sha256(choice_text(dict(point)).encode()).hexdigest()[:32]}"
