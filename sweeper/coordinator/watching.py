"""How the records are kept in line with the ledger: by what is open and what is new, or anew if the past changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sweeper.clock import Clock
from sweeper.coordinator.reading import Reader
from sweeper.coordinator.records import Records, settled
from sweeper.ledger.searches import SearchStanding
from sweeper.model.search import Numbered
from sweeper.model.states import TrialState

PAUSED_EVERY_S: Final = 5.0
"""Between two looks at paused trials, which only people's commands and the leader move."""


class Watch:
    """The records, and what of them changed in the turn that is under way."""

    def __init__(self, records: Records, reader: Reader, clock: Clock) -> None:
        self._records = records
        self._reader = reader
        self._clock = clock
        self._revision: int | None = None
        self._paused_due_s = float("-inf")
        self._changed: set[int] = set()
        self.begin_turn()

    def begin_turn(self) -> None:
        """Nothing was read in this turn yet."""
        self.turned: list[Numbered] = []
        """Trials that settled or go on after a pause, and that the study has not been told of."""
        self.rows: Sequence[Numbered] | None = None
        """All numbers, if they were read in this turn and nothing has changed since."""

    def take_changed(self) -> list[int]:
        """Give the trials, by number, that may have changed state since this was last asked; of turns cut short too."""
        changed, self._changed = self._changed, set()
        return sorted(number for number in changed if self._records.standing.get(number) is not None)

    def forget(self) -> None:
        """Read everything anew at the next look."""
        self._revision = None

    def is_past(self, seen: SearchStanding) -> bool:
        """Whether the past that is remembered is no longer the ledger's: trials were retried, or it was put back."""
        return self._revision != seen.revision or seen.next_number < self._records.next_number

    def look_anew(self, seen: SearchStanding) -> None:
        """Read all numbers."""
        self.read_all()
        self._revision = seen.revision
        self._changed |= self._records.open.keys()

    def read_all(self) -> Sequence[Numbered]:
        """Give all numbers as they stand, and have the records agree with that."""
        if self.rows is None:
            self.rows = self._reader.history()
            self._records.load(self.rows)
        self.turned.clear()
        return self.rows

    def look(self, seen: SearchStanding) -> None:
        """Read what is new, and what was open."""
        records = self._records
        if seen.next_number > records.next_number:
            for row in self._reader.history(records.next_number):
                records.add(row)
                self._changed.add(row.number)
        now_s = self._clock.monotonic_s()
        with_paused = now_s >= self._paused_due_s
        if with_paused:
            self._paused_due_s = now_s + PAUSED_EVERY_S
        self.look_at(
            number for number, row in list(records.open.items()) if with_paused or row.state is not TrialState.PAUSED
        )

    def look_at(self, numbers: Iterable[int]) -> None:
        """Read those numbers, which are open."""
        self.rows = None
        for row in self._reader.numbered(list(numbers)):
            before = self._records.update(row)
            if before is None:
                continue
            self._changed.add(row.number)
            if not row.is_alias and (settled(row) or settled(before)):
                self.turned.append(row)

    def added(self, row: Numbered) -> None:
        """A number was given in this turn."""
        self.rows = None
        self._changed.add(row.number)
