"""What a pruner sees of the study: some entries in full, and the one that is asked about."""

# ruff: noqa: D102 - overriding methods are documented by Optuna's `BaseStorage`
from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sweeper.search.entries import Entry, EntryStorage


class View(EntryStorage):
    """A study of chosen entries that keeps what a pruner writes to itself: asking changes nothing."""

    def __init__(self, storage: EntryStorage, seen: Sequence[Entry], asked: Entry) -> None:
        super().__init__(storage.directions, storage.name, storage.empty)
        self.study_attrs = storage.study_attrs
        self.marks: dict[str, Any] = {}  # Any: what the pruner writes
        """Attributes of the entry that is asked about, as written."""
        self._seen = seen
        self._asked = asked

    def visible(self) -> Sequence[Entry]:
        return self._seen

    def get_trial(self, trial_id: int) -> Entry:
        return self._asked

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:  # Any: as in Optuna
        # The entry itself stays as it is: successive halving adds the value to those of the others on its own.
        self.marks[key] = value


def seen_by_pruner(
    entries: Sequence[Entry], asked: Entry, *, finished_to: int | None, aliases: Collection[int]
) -> list[Entry]:
    """Choose what a pruner sees, by number.

    Args:
        entries: of the study.
        asked: the one that it is asked about, with its reports; takes its own place.
        finished_to: the last other number that is seen, so that timing does not matter; None: all are.
        aliases: numbers that only point at another one's trial, which counts once.
    """
    end = len(entries) if finished_to is None else max(finished_to + 1, 0)
    before, after = entries[: min(end, asked.number)], entries[asked.number + 1 : end]
    if aliases:
        before = [entry for entry in before if entry.number not in aliases]
        after = [entry for entry in after if entry.number not in aliases]
    return [*before, asked, *after]
