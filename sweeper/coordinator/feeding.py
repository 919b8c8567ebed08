"""What the optimizer is told, and when: in a deterministic search nothing of it depends on timing (SAME).

Proposal n sees as finished exactly the trials up to n - lag, however many others have finished by then. So what has
settled early is kept back, and a proposal that would have to be made without an older trial's end is put off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sweeper.coordinator.records import settled
from sweeper.model.search import Decision, Numbered, SearchSpec
from sweeper.model.states import TrialState
from sweeper.model.trial import Json

if TYPE_CHECKING:  # a plain grid has no use for Optuna, whose import takes longer than a short trial
    from sweeper.search.optimizer import Optimizer


class Feed:
    """Keeps the optimizer's study in line with the numbers, a step behind where the search is deterministic."""

    def __init__(self, optimizer: Optimizer, spec: SearchSpec) -> None:
        self.optimizer = optimizer
        self._lag = spec.lag if spec.deterministic else None
        self._kept_back: dict[int, Numbered] = {}

    @property
    def loaded(self) -> bool:
        """Whether the study holds all numbers; otherwise `load` comes first."""
        return self.optimizer.loaded

    def load(self, rows: Sequence[Numbered], study_attrs: Mapping[str, Json], decisions: Iterable[Decision]) -> None:
        """Build the study anew; the same as if it had been fed from the first number on."""
        self.drop()
        seen_to = self.seen_to(len(rows))
        shown = []
        for row in rows:
            if row.number > seen_to and settled(row) and row.state is not None:
                if not row.is_alias:
                    self._kept_back[row.number] = row
                shown.append(_as_running(row))
            else:
                shown.append(row)
        self.optimizer.load(shown, study_attrs, decisions)

    def drop(self) -> None:
        """Forget the study: it may be ahead of the ledger, or behind it."""
        self.optimizer.drop()
        self._kept_back.clear()

    def add(self, row: Numbered) -> None:
        """The number of the last suggestion was committed, or will be as this says, together with others."""
        self.optimizer.add(row)

    def committed(self, rows: Iterable[Numbered]) -> None:
        """Numbers that were added before they were committed came out so."""
        for row in rows:
            if row.is_alias:
                self.optimizer.correct(row)

    def changed(self, rows: Iterable[Numbered]) -> None:
        """First numbers whose trials settled, or go on after a pause."""
        for row in rows:
            if self._lag is not None and settled(row):
                self._kept_back[row.number] = row
            else:
                self._kept_back.pop(row.number, None)
                self.optimizer.tell(row)

    def tell_up_to(self, next_number: int) -> None:
        """Tell what the proposal of that number may know."""
        seen_to = self.seen_to(next_number)
        for number in sorted(number for number in self._kept_back if number <= seen_to):
            self.optimizer.tell(self._kept_back.pop(number))

    def seen_to(self, number: int) -> int:
        """The last number that the proposal of `number`, and decisions on its trial, see as finished if it is."""
        return number - 1 if self._lag is None else number - self._lag

    def finished_to(self, number: int) -> int | None:
        """As a pruner wants it: None where it sees everything that there is."""
        return None if self._lag is None else self.seen_to(number)


def _as_running(row: Numbered) -> Numbered:
    return replace(row, state=TrialState.RUNNING, result=None, fault=None, reports=())
