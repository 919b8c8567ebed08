"""Opening the mirror's storage, and finding or making a sweep's study in it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from optuna.exceptions import DuplicatedStudyError
from optuna.storages import BaseStorage, RDBStorage
from optuna.study import StudyDirection

from sweeper.errors import UserError
from sweeper.ids import RandomHex, SweepId
from sweeper.model.mirror import MirrorChange, MirrorRows
from sweeper.model.search import Direction

Storage = RDBStorage
"""Optuna's storage on the mirror's tables."""
SWEEP: Final = "sweeper:sweep"
MARK: Final = "sweeper:mark"
"""Drawn when a study is made, or written anew: the ledger's map names the study by it."""
DIVISOR: Final = "sweeper:steps_divided_by"
SPACE: Final = "sweeper:space"
"""A system attribute of the study: the first of each parameter (`MirrorSpace.as_json`)."""

_DIRECTIONS: Final = {Direction.MINIMIZE: StudyDirection.MINIMIZE, Direction.MAXIMIZE: StudyDirection.MAXIMIZE}


class Access(Protocol):
    """The way to the tables (`sweeper.ledger.mirror_access.MirrorAccess`)."""

    @property
    def url(self) -> str:
        """What Optuna takes as the storage's URL."""
        ...

    @property
    def engine_settings(self) -> dict[str, Any]:  # Any: SQLAlchemy's engine arguments
        """What Optuna passes on to its engine."""
        ...

    def prepare(self) -> bool:
        """Make the schema; say whether Optuna's tables are there."""
        ...

    def lock(self, *, unless: Callable[[], bool]) -> AbstractContextManager[bool]:
        """Be the only one that makes tables or studies, unless somebody has done so."""
        ...

    def write_at_once(
        self,
        study_id: int,
        *,
        mark_key: str,
        mark: str,
        entries: Sequence[MirrorRows],
        changes: Sequence[MirrorChange],
    ) -> list[int] | None:
        """Add entries, give their ids, and change running ones; None where that is not known to be right."""
        ...

    def close(self) -> None:
        """Close every connection that was given."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredStudy:
    """A sweep's study, as it was when it was looked at."""

    study_id: int
    name: str
    mark: str
    divisor: int
    """By which it divides the steps of reports."""
    first: Mapping[str, Any]  # Any: JSON
    """What its parameters were first."""


class OldTables(UserError):
    """The mirror's tables are of another version of Optuna than the one that is installed."""


def open_storage(access: Access) -> RDBStorage:
    """Open Optuna's storage on the mirror's tables, making them if they are missing; safe when ten do it at once.

    Raises:
        OldTables: they are of another version of Optuna.
        LedgerUnavailable, UserError: the database does not answer, or not to us.
        Exception: whatever Optuna and SQLAlchemy raise.
    """
    logging.getLogger(RDBStorage.__module__).setLevel(logging.WARNING)  # it tells of every new study
    try:
        with access.lock(unless=access.prepare) as is_first:
            return _open(access, make_tables=is_first)
    except BaseException:
        access.close()
        raise


def _open(access: Access, *, make_tables: bool) -> RDBStorage:
    storage = RDBStorage(
        access.url,
        engine_kwargs=access.engine_settings,
        skip_compatibility_check=True,
        skip_table_creation=not make_tables,
    )
    found, wanted = storage.get_current_version(), storage.get_head_version()
    if found != wanted:
        raise OldTables(
            f"the mirror's tables are of Optuna's version {found}, the installed Optuna has {wanted}",
            remedy='Run `optuna storage upgrade --storage "$(sweeper url --optuna --show-password)"`, or install the '
            "Optuna that made them.",
        )
    return storage


def find_study(
    storage: BaseStorage, sweep_id: SweepId, name: str, directions: Sequence[Direction]
) -> MirroredStudy | None:
    """Give the sweep's study, if there is one; anybody else's of that name is left alone."""
    for candidate in _names(sweep_id, name):
        study_id = _id_of(storage, candidate)
        if study_id is not None and _is_ours(storage, study_id, sweep_id, directions):
            found = look_at(storage, study_id)
            if found is not None:
                return found
    return None


def make_study(
    storage: BaseStorage, sweep_id: SweepId, name: str, directions: Sequence[Direction], random_hex: RandomHex
) -> MirroredStudy:
    """Make the sweep's study, under the sweep's name unless somebody has a study of that name. Hold the lock.

    An empty study of that name without any attribute, and with the same directions, is taken over: it is what a crash
    right after the creation leaves, or what somebody made for this sweep.
    """
    for candidate in _names(sweep_id, name):
        study_id = _id_of(storage, candidate)
        if study_id is None:
            try:
                study_id = new_study(storage, candidate, directions)
            except DuplicatedStudyError:  # somebody without our lock was quicker
                continue
        elif not _is_blank(storage, study_id, sweep_id, directions):
            continue
        mark_study(storage, study_id, sweep_id, random_hex(), divisor=1)
        found = look_at(storage, study_id)
        assert found is not None, "the study was marked a moment ago"
        return found
    raise UserError(f"studies of the names {', '.join(_names(sweep_id, name))} are there and none is this sweep's")


def new_study(storage: BaseStorage, name: str, directions: Sequence[Direction]) -> int:
    """Make a study that is nobody's yet."""
    return storage.create_new_study(_of_optuna(directions), name)


def delete_study_named(storage: BaseStorage, name: str) -> None:
    """Delete the study of this name, if there is one."""
    study_id = _id_of(storage, name)
    if study_id is not None:
        storage.delete_study(study_id)


def mark_study(storage: BaseStorage, study_id: int, sweep_id: SweepId, mark: str, *, divisor: int) -> None:
    """Write whose study it is. The mark comes last: without it a study is nobody's."""
    storage.set_study_user_attr(study_id, SWEEP, sweep_id)
    if divisor != 1:
        storage.set_study_user_attr(study_id, DIVISOR, divisor)
    storage.set_study_user_attr(study_id, MARK, mark)


def look_at(storage: BaseStorage, study_id: int) -> MirroredStudy | None:
    """See how a study of ours stands now; None when it is gone, or no longer ours."""
    try:
        attrs = storage.get_study_user_attrs(study_id)
        first = storage.get_study_system_attrs(study_id).get(SPACE)
        name = storage.get_study_name_from_id(study_id)
    except KeyError:
        return None
    mark, divisor = attrs.get(MARK), attrs.get(DIVISOR, 1)
    if not isinstance(mark, str) or not isinstance(divisor, int) or divisor < 1:
        return None
    return MirroredStudy(
        study_id=study_id, name=name, mark=mark, divisor=divisor, first=first if isinstance(first, dict) else {}
    )


def mark_of(storage: BaseStorage, study_id: int) -> str | None:
    """Give the study's mark now; None when it is gone."""
    try:
        mark = storage.get_study_user_attrs(study_id).get(MARK)
    except KeyError:
        return None
    return mark if isinstance(mark, str) else None


def has_trials(storage: BaseStorage, study_id: int) -> bool:
    """Whether the study has any entry."""
    try:
        storage.get_trial_id_from_study_id_trial_number(study_id, 0)
    except KeyError:
        return False
    return True


def _names(sweep_id: SweepId, name: str) -> tuple[str, ...]:
    return name, f"sweeper:{name}", f"sweeper:{name}:{sweep_id[:8]}"


def _id_of(storage: BaseStorage, name: str) -> int | None:
    try:
        return storage.get_study_id_from_name(name)
    except KeyError:
        return None


def _is_ours(storage: BaseStorage, study_id: int, sweep_id: SweepId, directions: Sequence[Direction]) -> bool:
    try:
        attrs = storage.get_study_user_attrs(study_id)
        return attrs.get(SWEEP) == sweep_id and storage.get_study_directions(study_id) == _of_optuna(directions)
    except KeyError:
        return False


def _is_blank(storage: BaseStorage, study_id: int, sweep_id: SweepId, directions: Sequence[Direction]) -> bool:
    attrs = storage.get_study_user_attrs(study_id)
    attrs.pop(DIVISOR, None)
    return (
        attrs in ({}, {SWEEP: sweep_id})
        and not storage.get_study_system_attrs(study_id)
        and storage.get_study_directions(study_id) == _of_optuna(directions)
        and not has_trials(storage, study_id)
    )


def _of_optuna(directions: Sequence[Direction]) -> list[StudyDirection]:
    return [_DIRECTIONS[direction] for direction in directions]
