"""What a coordinator remembers of a search between turns: counts of all numbers, and the rows of open ones.

It only spares the ledger the counting: dropped, it is read again, and nothing that matters is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from sweeper.ids import TrialNumber
from sweeper.model.best import keeps_constraints
from sweeper.model.objective import objective_values
from sweeper.model.search import Constraint, Direction, Numbered
from sweeper.model.states import ObjectiveFault, TrialState


def settled(row: Numbered) -> bool:
    """Whether nothing runs or waits to run under this number: final, paused, or never a trial."""
    return row.state is None or row.state.final or row.state is TrialState.PAUSED


class Records:
    """The numbers of a search, in line with the ledger as of the last look."""

    def __init__(
        self,
        directions: Sequence[Direction],
        constraints: Sequence[Constraint] = (),
        *,
        good_enough: float | None = None,
    ) -> None:
        """With constraints, rows of completed trials come with their reports."""
        self._directions = tuple(directions)
        self._constraints = tuple(constraints)
        self._good_enough = good_enough
        self.load(())

    def load(self, rows: Iterable[Numbered]) -> None:
        """Forget everything and take all numbers as they are."""
        self.next_number = 0
        self.counts: Counter[TrialState] = Counter()
        """Trials by state; aliases and refused numbers are none."""
        self.standing: dict[int, TrialState | None] = {}
        """By number, the state of its own trial; None for an alias and a refused number."""
        self.open: dict[int, Numbered] = {}
        """Numbers whose trial is not final, aliases too."""
        self.refused = 0
        self.repeats = 0
        self.repeats_in_a_row = 0
        self.best: tuple[TrialNumber, float] | None = None
        """The best completed and feasible trial by the first objective."""
        self.reached: tuple[TrialNumber, float] | None = None
        """Of those that are at least as good as `good_enough`, the lowest number, whoever was there first."""
        self.ended_without_value = 0
        """Trials seen to become final here that failed because their function returned None."""
        self.settled_lately = 0
        """Trials that stopped running since this was last set back to 0."""
        for row in rows:
            self.add(row)

    def add(self, row: Numbered) -> None:
        """Take the next number."""
        assert row.number == self.next_number, f"number {row.number} after {self.next_number - 1}"
        self.next_number += 1
        self.standing[row.number] = None if row.is_alias else row.state
        if row.state is None:
            self.refused += 1
            self.repeats_in_a_row = 0
            return
        if not row.state.final:
            self.open[row.number] = row
        if row.is_alias:
            self.repeats += 1
            self.repeats_in_a_row += 1
            return
        self.repeats_in_a_row = 0
        self.counts[row.state] += 1
        self._note_value(row)

    def update(self, row: Numbered) -> Numbered | None:
        """Take how an open number stands now; give how it stood before if that is another state."""
        before = self.open[row.number]
        assert row.state is not None, "an open number has a trial"
        if row.state.final:
            del self.open[row.number]
        else:
            self.open[row.number] = row
        if row.state is before.state and row.lineage == before.lineage:
            return None
        if not row.is_alias:
            assert before.state is not None, "an open number has a trial"
            self.counts[before.state] -= 1
            self.counts[row.state] += 1
            self.standing[row.number] = row.state
            self.settled_lately += settled(row)
            self.ended_without_value += row.fault is ObjectiveFault.NONE
            self._note_value(row)
        return before

    @property
    def states(self) -> Mapping[TrialState, int]:
        """Trials by state, without those states that have none."""
        return {state: self.counts[state] for state in TrialState if self.counts[state]}

    @property
    def failed(self) -> int:
        """Trials that failed, and proposals that could not be composed."""
        return self.counts[TrialState.FAILED] + self.refused

    @property
    def unsettled(self) -> int:
        """Trials that run or wait to run."""
        return self.counts[TrialState.PENDING] + self.counts[TrialState.RUNNING]

    def first_unsettled(self) -> int:
        """The lowest number that is not settled; the next number if all are."""
        return min((number for number, row in self.open.items() if not settled(row)), default=self.next_number)

    @property
    def _minimizes(self) -> bool:
        return self._directions[0] is Direction.MINIMIZE

    def _note_value(self, row: Numbered) -> None:
        if row.state is not TrialState.COMPLETED or not self._feasible(row):
            return
        values = objective_values(row.result, len(self._directions))
        if not isinstance(values, tuple):
            return
        found = (TrialNumber(row.number), values[0])
        if self.best is None or self._better(found[1], self.best[1]):
            self.best = found
        if self._good_enough is not None and not self._better(self._good_enough, found[1]):
            self.reached = found if self.reached is None else min(self.reached, found)

    def _feasible(self, row: Numbered) -> bool:
        if not self._constraints:
            return True
        return keeps_constraints(self._constraints, row.reports[-1].metrics if row.reports else {})

    def _better(self, one: float, other: float) -> bool:
        return one < other if self._minimizes else one > other
