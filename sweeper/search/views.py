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
        self._visible = sorted((*seen, asked), key=lambda entry: entry.number)
        self._asked = asked

    def visible(self) -> Sequence[Entry]:
        """Give the chosen entries, by number."""
        return self._visible

    def get_trial(self, trial_id: int) -> Entry:
        return self._asked

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:  # Any: as in Optuna
        # The entry itself stays as it is: successive halving adds the value to those of the others on its own.
        self.marks[key] = value


def seen_by(
    entries: Sequence[Entry], asked: Entry, *, finished_to: int | None, aliases: Collection[int]
) -> list[Entry]:
    """Choose what a pruner sees beside the entry that it is asked about.

    Args:
        entries: of the study, by number.
        asked: left out.
        finished_to: the last number that is seen, so that timing does not matter; None: all are.
        aliases: numbers that only point at another one's trial, which counts once.
    """
    shown = entries if finished_to is None else entries[: finished_to + 1]
    hidden = {*aliases, asked.number} if aliases else {asked.number}
    return [entry for entry in shown if entry.number not in hidden]
