"""What the decision rows of a sweep say about its rungs: who came where with which value, and who went on."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sweeper.ids import TrialId
from sweeper.model.search import Decision, DecisionKind, Direction
from sweeper.model.states import TrialState

Standing = Mapping[int, TrialState | None]
"""By number: the state of the trial whose first number it is. None: a number without a trial of its own (an alias, a
refused one). Absent: not proposed yet."""

GO_ON = "go_on"
PAUSE = "pause"
PRUNE = "prune"
RUNG_FACT = "rung"
"""Key in a row's facts: the resource of the rung that it is about."""

_GONE = (TrialState.FAILED, TrialState.CANCELLED, TrialState.PRUNED, None)


def gone(number: int, standing: Standing) -> bool:
    """Whether there is nothing (any more) under this number that could go on or has come to an end of its own."""
    return number in standing and standing[number] in _GONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A trial at a rung: its first report there counts, once, however often it was evicted."""

    number: int
    trial_id: TrialId
    lineage: int
    step: int
    """Of the report, in the user's unit; the rung's resource may lie below it."""
    value: float


@dataclass(slots=True)
class Rung:
    """One resource level."""

    resource: int
    entries: dict[int, Entry] = field(default_factory=dict)
    moved: set[int] = field(default_factory=set)
    """Numbers that went on beyond this rung, at once or by promotion."""
    ranking: list[tuple[bool, float, int]] = field(default_factory=list)
    """Rank keys of all entries, the best first."""

    def best_first(self) -> Iterator[Entry]:
        """Entries from the best to the worst; NaN is the worst, and of equals the lower number is better."""
        return (self.entries[number] for _, _, number in self.ranking)


class History:
    """Built from rows alone, in the ledger's order; a row that is fed twice changes nothing."""

    def __init__(self, direction: Direction) -> None:
        self._sign = -1.0 if direction is Direction.MAXIMIZE else 1.0
        self._rungs: dict[int, Rung] = {}
        self._reached: dict[int, int] = {}
        self._first_steps: dict[int, int] = {}
        self._lineages: dict[int, int] = {}

    def rung(self, resource: int) -> Rung:
        """The rung of this resource, empty if nobody came to it yet."""
        return self._rungs.setdefault(resource, Rung(resource))

    def from_the_top(self) -> list[Rung]:
        """All rungs that anybody came to, the highest first."""
        return [self._rungs[resource] for resource in sorted(self._rungs, reverse=True)]

    def reached(self, number: int) -> int:
        """Resource of the highest rung that the trial came to; 0 for none."""
        return self._reached.get(number, 0)

    def moved(self, number: int) -> bool:
        """Whether the trial was let on beyond the highest rung that it came to."""
        return number in self._reached and number in self._rungs[self._reached[number]].moved

    def entry(self, number: int) -> Entry | None:
        """The trial at the highest rung that it came to."""
        return self._rungs[self._reached[number]].entries[number] if number in self._reached else None

    def rank(self, entry: Entry) -> tuple[bool, float, int]:
        """Sort key: the best first."""
        worst = math.isnan(entry.value)
        return (worst, 0.0 if worst else self._sign * entry.value, entry.number)

    def begin(self, row: Decision) -> int:
        """Take a report into account; give how much training it stands for, 0 if its history was cut since.

        That is its step, plus 1 where the trial counts its steps from zero.
        """
        self.feed(row)
        if row.lineage < self._lineages[row.number]:
            return 0
        return row.step + 1 if self._first_steps.get(row.number) == 0 else row.step

    def feed(self, row: Decision) -> None:
        """Take a row into account. Rows of an older lineage than the newest one seen are void."""
        if row.kind is DecisionKind.REPORT or not self._settle_lineage(row):
            return
        if row.kind is DecisionKind.RUNG:
            self._first_steps.setdefault(row.number, row.step)
        rung = row.facts.get(RUNG_FACT)
        if not isinstance(rung, int):
            return
        if row.kind is DecisionKind.RUNG:
            self._record(self.rung(rung), row)
        if row.action == GO_ON:
            self.rung(rung).moved.add(row.number)
        if row.kind is DecisionKind.EXPLOIT:
            self._lineages[row.number] = row.lineage + 1  # the heir goes on where it stood, under a new lineage

    def _settle_lineage(self, row: Decision) -> bool:
        known = self._lineages.setdefault(row.number, row.lineage)
        if row.lineage > known:  # its history was cut without an heir's exploit: it starts over
            self._forget(row.number)
            self._lineages[row.number] = row.lineage
        return row.lineage >= known

    def _forget(self, number: int) -> None:
        for rung in self._rungs.values():
            entry = rung.entries.pop(number, None)
            if entry is not None:
                rung.ranking.remove(self.rank(entry))
            rung.moved.discard(number)
        self._reached.pop(number, None)
        self._first_steps.pop(number, None)

    def _record(self, rung: Rung, row: Decision) -> None:
        if row.number in rung.entries:
            return
        entry = Entry(
            number=row.number,
            trial_id=row.trial_id,
            lineage=row.lineage,
            step=row.step,
            value=math.nan if row.value is None else row.value,
        )
        rung.entries[row.number] = entry
        bisect.insort(rung.ranking, self.rank(entry))
        before = self._reached.get(row.number)
        if before is not None and before < rung.resource:  # whatever let it get here (a retry), it did go on
            self._rungs[before].moved.add(row.number)
        self._reached[row.number] = max(rung.resource, before or 0)
