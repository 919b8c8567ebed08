"""Writing a sweep's mirrored study anew, whatever became of the one that there is.

By COPY in one transaction where Optuna's tables are of the revision that we know, else with Optuna's public calls, a
few dozen trials a second. The study keeps its name and what other people put on it; its id is another one, so that
programs which remember entries of the former one look again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sweeper.coordinator.mirror_reading import with_reports
from sweeper.ids import RandomHex, TrialId
from sweeper.ledger.database import Database, Statements
from sweeper.ledger.mirror_access import MirrorAccess
from sweeper.ledger.mirror_copy import StudyCopy, rename_study, writing_study
from sweeper.ledger.mirror_map import acknowledge_mirrored, align_mirror
from sweeper.ledger.mirroring import largest_step, mirror_page
from sweeper.model.mirror import NO_STEP, MirrorAck, MirrorPlace, MirrorTrial
from sweeper.model.search import SearchSpec
from sweeper.model.trial import Sweep
from sweeper.search.mirror_calls import StudyInCalls
from sweeper.search.mirror_entry import HASH, STATE, MirrorEntry, divisor_for, entry_of
from sweeper.search.mirror_space import MirrorSpace
from sweeper.search.mirror_study import (
    DIVISOR,
    MARK,
    SPACE,
    SWEEP,
    MirroredStudy,
    Storage,
    find_study,
    make_study,
    open_storage,
)
from sweeper.search.mirror_writing import SUPERSEDED

PAGE: Final = 500
"""Trials that are read and written at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """The study that was written."""

    study: str
    trials: int
    by_copy: bool


def rebuild_mirror(url: str, sweep: Sweep, random_hex: RandomHex) -> Rebuilt:
    """Write the sweep's study anew and put it in the place of the former one.

    Raises:
        LedgerUnavailable: no answer, or another process is doing the same; nothing has changed.
        UserError: the sweep is a plain grid, which has no mirror, or the tables cannot be used.
        Exception: whatever Optuna and SQLAlchemy raise.
    """
    storage = open_storage(access := MirrorAccess(url))
    try:
        with Database(url, "sweeper mirror") as database:
            return _Rebuild(url, database, storage, access, sweep, random_hex).run()
    finally:
        storage.remove_session()
        storage.engine.dispose()
        access.close()


class _Rebuild:
    def __init__(
        self,
        url: str,
        database: Statements,
        storage: Storage,
        access: MirrorAccess,
        sweep: Sweep,
        random_hex: RandomHex,
    ) -> None:
        assert sweep.search is not None, "a plain grid has no mirror"
        self._url, self._db, self._storage, self._access = url, database, storage, access
        self._sweep, self._random_hex = sweep, random_hex
        self._spec = SearchSpec.from_json(sweep.search)
        self._mark = random_hex()
        self._divisor = divisor_for(largest_step(database, sweep.sweep_id))

    def run(self) -> Rebuilt:
        sweep, directions = self._sweep, self._spec.directions
        former = self._find()
        if former is None:  # it is made only to be replaced: then it has its name
            with self._access.lock(unless=lambda: self._find() is not None):
                former = self._find() or make_study(
                    self._storage, sweep.sweep_id, sweep.name, directions, self._random_hex
                )
        self._storage.remove_session()
        # The first order of choices stays: entries of other people that are kept have it too.
        self._space = MirrorSpace(self._spec.space, former.first)
        with writing_study(self._url, sweep.sweep_id, directions=[one.value for one in directions]) as copy:
            if copy is not None:
                return self._by_copy(copy, former)
        return self._by_calls(former)

    def _by_copy(self, copy: StudyCopy, former: MirroredStudy) -> Rebuilt:
        sweep_id = self._sweep.sweep_id
        acks: list[MirrorAck] = []
        new_ids: dict[TrialId, int] = {}
        for page in self._pages():
            entries = [self._entry(trial).rows() for trial in page]
            for trial, optuna_trial_id in zip(page, copy.add(entries), strict=True):
                acks.append(self._ack(trial, optuna_trial_id))
                new_ids[trial.trial_id] = optuna_trial_id
        copy.keep(former.study_id, hash_key=HASH, state_key=STATE, superseded=json.dumps(SUPERSEDED))
        user = copy.user_attributes(former.study_id) | {SWEEP: json.dumps(sweep_id), MARK: json.dumps(self._mark)}
        user.pop(DIVISOR, None)
        if self._divisor != 1:
            user[DIVISOR] = json.dumps(self._divisor)
        system = copy.notes(former.study_id, sweep_id, new_ids) | {SPACE: json.dumps(self._space.as_json())}
        copy.set_attributes(user=user, system=system)
        copy.finish(former.name, old_id=former.study_id, sweep_id=sweep_id, acks=acks)
        return Rebuilt(study=former.name, trials=len(acks), by_copy=True)

    def _by_calls(self, former: MirroredStudy) -> Rebuilt:
        sweep_id = self._sweep.sweep_id
        study = StudyInCalls(self._storage, sweep_id, self._spec.directions)
        acks = [self._ack(trial, study.add(self._entry(trial))) for page in self._pages() for trial in page]
        study.keep(former.study_id)
        study.mark(self._mark, divisor=self._divisor, space=self._space.as_json())
        self._storage.remove_session()
        rename_study(self._url, former.study_id, study.former_name)
        rename_study(self._url, study.study_id, former.name)
        align_mirror(self._db, sweep_id, self._mark)
        for first in range(0, len(acks), PAGE):
            acknowledge_mirrored(self._db, self._mark, acks[first : first + PAGE])
        study.delete_former()
        return Rebuilt(study=former.name, trials=len(acks), by_copy=False)

    def _find(self) -> MirroredStudy | None:
        sweep = self._sweep
        return find_study(self._storage, sweep.sweep_id, sweep.name, self._spec.directions)

    def _pages(self) -> Iterator[list[MirrorTrial]]:
        first = 0
        while page := mirror_page(self._db, self._sweep.sweep_id, first=first, limit=PAGE):
            yield with_reports(self._db, page, metrics=bool(self._spec.constraints))
            first = page[-1].number + 1

    def _entry(self, trial: MirrorTrial) -> MirrorEntry:
        return entry_of(trial, self._spec, self._space, divisor=self._divisor)

    def _ack(self, trial: MirrorTrial, optuna_trial_id: int) -> MirrorAck:
        place = MirrorPlace(
            optuna_trial_id=optuna_trial_id,
            lineage=trial.lineage,
            last_step=max((report.step for report in trial.reports), default=NO_STEP),
            study=self._mark,
        )
        return MirrorAck(trial_id=trial.trial_id, version=trial.version, place=place)
