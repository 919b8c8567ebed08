"""What the coordinator asks of every scheduler, and what all of them do alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sweeper.ids import TrialId
from sweeper.model.rungs.history import GO_ON, PAUSE, RUNG_FACT, Entry, History, Standing, gone
from sweeper.model.search import Decision, DecisionKind, Direction
from sweeper.model.states import TrialState
from sweeper.model.trial import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOver:
    """A paused trial that nothing will let go on: it is pruned, with the value of its last rung as its result."""

    number: int
    trial_id: TrialId
    step: int
    value: float
    reason: str


class Scheduler(ABC):
    """Decides at rungs, from the decision rows of the sweep alone: the same rows give the same decisions (SAME)."""

    def __init__(self, direction: Direction) -> None:
        self._history = History(direction)

    def feed(self, row: Decision) -> None:
        """Take a row of the ledger into account, in the ledger's order; one that is known already changes nothing."""
        self._history.feed(row)

    def feed_params(self, number: int, params: Mapping[str, Json]) -> None:  # noqa: B027  # most rest on values only
        """Learn what a number's trial was proposed with; only exploits rest on it."""

    def on_report(
        self, *, trial_id: TrialId, number: int, lineage: int, step: int, value: float, standing: Standing
    ) -> Decision:
        """Decide on a report: go on, pause or prune. Reports are given in order, each once.

        The decision is taken into account at once, so a batch can be decided before it is recorded. If recording is
        refused, this object has to be rebuilt from the ledger's rows.
        """
        row = Decision(
            trial_id=trial_id,
            number=number,
            lineage=lineage,
            kind=DecisionKind.RUNG,
            step=step,
            action=GO_ON,
            value=value,
        )
        resource = self._history.begin(row)
        rung = self.rung_at(number, resource)
        if rung is None or rung <= self._history.reached(number):
            return row
        arrived = replace(row, action=PAUSE, facts={RUNG_FACT: rung})
        self._history.feed(arrived)
        decided = replace(arrived, action=self._judge(number, rung, standing))
        self._history.feed(decided)
        return decided

    @abstractmethod
    def next_move(self, standing: Standing, *, closing: bool = False) -> Decision | None:
        """Give the paused trial that goes on now that a place is free; None: there is none, begin a new trial.

        Nothing is taken into account before the row is fed: the ledger may refuse it.

        Args:
            standing: how the sweep's numbers stand.
            closing: whether no number is still to come and nothing is pending or running, so that what waits for more
                trials waits in vain.
        """

    def left_over(self, standing: Standing) -> tuple[LeftOver, ...]:
        """Give the paused trials that are pruned at closing; none as long as one of them still goes on."""
        if self.next_move(standing, closing=True) is not None:
            return ()
        return tuple(_left_over(entry) for entry in self._waiting(standing))

    def go_on_instead(self, exploit: Decision) -> Decision:
        """Give what is done when an exploit cannot be: the trial goes on as it is."""
        return replace(exploit, kind=DecisionKind.PROMOTE, facts={RUNG_FACT: exploit.facts[RUNG_FACT]})

    @abstractmethod
    def rung_at(self, number: int, resource: int) -> int | None:
        """Give the highest rung of this number's trial at or below this much training, or None; needs no rows."""

    @abstractmethod
    def _judge(self, number: int, rung: int, standing: Standing) -> str:
        """Decide on a trial that has just been recorded at a rung."""

    def _waiting(self, standing: Standing) -> list[Entry]:
        """Paused trials at their highest rung, by number."""
        paused = sorted(number for number, state in standing.items() if state is TrialState.PAUSED)
        return [entry for entry in map(self._history.entry, paused) if entry is not None]

    def _last_resort(self, standing: Standing) -> Decision | None:
        """At closing, when no trial has reached the end of training: the best one of the highest rung goes on."""
        if TrialState.COMPLETED in standing.values():
            return None
        waiting = [entry for entry in self._waiting(standing) if not self._history.moved(entry.number)]
        if not waiting:
            return None
        return self._promotion(min(waiting, key=lambda it: (-self._history.reached(it.number), self._history.rank(it))))

    def _promotion(self, entry: Entry) -> Decision:
        """The row with which a trial goes on beyond the highest rung that it came to."""
        return Decision(
            trial_id=entry.trial_id,
            number=entry.number,
            lineage=entry.lineage,
            kind=DecisionKind.PROMOTE,
            step=entry.step,
            action=GO_ON,
            value=entry.value,
            facts={RUNG_FACT: self._history.reached(entry.number)},
        )


def alive(entries: list[Entry], standing: Standing) -> list[Entry]:
    """Leave out those that failed, were cancelled or pruned: they rank as the worst."""
    return [entry for entry in entries if not gone(entry.number, standing)]


def _left_over(entry: Entry) -> LeftOver:
    return LeftOver(
        number=entry.number,
        trial_id=entry.trial_id,
        step=entry.step,
        value=entry.value,
        reason=f"paused at step {entry.step} and not among the best there when the search ended",
    )
