"""Writing a study as a whole with Optuna's public calls, where its tables are of a revision that we do not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optuna.storages import BaseStorage

from sweeper.ids import SweepId
from sweeper.model.search import Direction
from sweeper.search.mirror_entry import HASH, STATE, MirrorEntry
from sweeper.search.mirror_study import (
    DIVISOR,
    MARK,
    SPACE,
    SWEEP,
    delete_study_named,
    mark_study,
    new_study,
)
from sweeper.search.mirror_writing import SUPERSEDED


class StudyInCalls:
    """A study under a temporary name, which somebody who can renames at the end."""

    def __init__(self, storage: BaseStorage, sweep_id: SweepId, directions: Sequence[Direction]) -> None:
        """Begin it; what a crash in the middle of this has left is deleted."""
        self._storage, self._sweep_id = storage, sweep_id
        self.former_name = f"sweeper:{sweep_id}:old"
        """What the study that it replaces is to be called before it is deleted."""
        name = f"sweeper:{sweep_id}:new"
        for left in (name, self.former_name):
            delete_study_named(storage, left)
        self.study_id = new_study(storage, name, directions)

    def add(self, entry: MirrorEntry) -> int:
        """Append an entry; give its id."""
        return self._storage.create_new_trial(self.study_id, entry.template())

    def keep(self, former_id: int) -> None:
        """Take over what other people put on the former study, and entries that no trial stands for any more."""
        storage = self._storage
        for frozen in storage.get_all_trials(former_id, deepcopy=False):
            if HASH not in frozen.user_attrs or frozen.user_attrs.get(STATE) == SUPERSEDED:
                storage.create_new_trial(self.study_id, frozen)
        for key, value in storage.get_study_system_attrs(former_id).items():
            storage.set_study_system_attr(self.study_id, key, value)
        for key, value in storage.get_study_user_attrs(former_id).items():
            if key not in (SWEEP, MARK, DIVISOR):
                storage.set_study_user_attr(self.study_id, key, value)

    def mark(self, mark: str, *, divisor: int, space: Mapping[str, Any]) -> None:  # Any: JSON
        """Make it the sweep's."""
        self._storage.set_study_system_attr(self.study_id, SPACE, space)
        mark_study(self._storage, self.study_id, self._sweep_id, mark, divisor=divisor)

    def delete_former(self) -> None:
        """Delete the study that it has replaced."""
        delete_study_named(self._storage, self.former_name)
