"""Writing entries of a mirrored study, with Optuna's public calls.

Of an entry attributes and reports come first and the final state last, as a finished entry can never be changed. It
carries the trial's hash and lineage from its creation, so one whose place never reached the ledger is found again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from sweeper.model.mirror import (
    NO_STEP,
    AskedPoint,
    FreshReports,
    MirrorAck,
    MirrorPlace,
    MirrorReport,
    MirrorRows,
    MirrorTrial,
    PointAnswer,
)
from sweeper.model.search import SearchSpec
from sweeper.model.trial import Json
from sweeper.search.mirror_entry import (
    ATTEMPTS,
    CONSTRAINTS,
    ERROR,
    HASH,
    LINEAGE,
    REASON,
    STATE,
    MirrorEntry,
    entry_of,
    scaled_reports,
)
from sweeper.search.mirror_points import claim_points, finish_point, unanswered_points
from sweeper.search.mirror_space import MirrorSpace
from sweeper.search.mirror_study import SPACE, MirroredStudy

SUPERSEDED: Final = "superseded"
"""The state that an entry of ours shows whose trial goes on with other parameters, in another entry."""


class OutOfLine(Exception):
    """The study cannot be brought in line by changing its entries: write it anew. The text says why."""


@dataclass(slots=True, kw_only=True)
class _Known:
    """An unfinished entry as the study has it."""

    attrs: dict[str, Any]  # Any: JSON
    reports: dict[int, float]


class StudyWriter:
    """Writes one study, and remembers what its unfinished entries hold, so that only differences are written."""

    def __init__(self, storage: RDBStorage, study: MirroredStudy, spec: SearchSpec) -> None:
        """Look for points that were claimed and have no answer; nothing is written."""
        self.study = study
        self._storage, self._spec = storage, spec
        self._space = MirrorSpace(spec.space, study.first)
        self._open: dict[int, _Known] = {}
        self._points = {point.key: point for point in unanswered_points(storage, study.study_id, self._space)}

    @property
    def points(self) -> tuple[AskedPoint, ...]:
        """Points that were claimed, until they have an answer."""
        return tuple(self._points.values())

    def show(self, trial: MirrorTrial) -> MirrorAck:
        """Have the study show a trial as it is.

        Raises:
            StepTooLarge, OutOfLine: that takes a new study.
        """
        entry = entry_of(trial, self._spec, self._space, divisor=self.study.divisor)
        self._remember_space()
        place = trial.place
        if place is None or place.study != self.study.mark:
            return self._ack(trial, self._create(trial, entry))
        optuna_trial_id = place.optuna_trial_id
        known = self._open.get(optuna_trial_id) if place.lineage == trial.lineage else None
        if known is None:
            frozen = self._storage.get_trial(optuna_trial_id)
            known = _Known(attrs=frozen.user_attrs, reports=frozen.intermediate_values)
            if frozen.state.is_finished():
                if frozen.user_attrs.get(STATE) == SUPERSEDED:
                    return self._ack(trial, self._create(trial, entry))
                if not _is_shown_by(entry, frozen):
                    raise OutOfLine(f"trial {trial.number} is finished in the study and has gone on since")
                return self._ack(trial, optuna_trial_id)
            if place.lineage != trial.lineage and not _has_params(frozen, entry):
                self._supersede(optuna_trial_id, known)
                return self._ack(trial, self._create(trial, entry))
        self._update(optuna_trial_id, known, entry)
        return self._ack(trial, optuna_trial_id)

    def rows(self, trials: Sequence[MirrorTrial]) -> list[MirrorRows]:
        """Give what the tables hold of final trials that have no entry yet, for adding them at once.

        Raises:
            StepTooLarge: that takes a new study.
        """
        entries = [entry_of(trial, self._spec, self._space, divisor=self.study.divisor) for trial in trials]
        self._remember_space()
        return [entry.rows() for entry in entries]

    def added(self, trial: MirrorTrial, optuna_trial_id: int) -> MirrorAck:
        """Acknowledge an entry that was added otherwise."""
        return self._ack(trial, optuna_trial_id)

    def show_reports(self, fresh: FreshReports) -> MirrorAck | None:
        """Add reports of a running trial; None where the trial has to be looked at as a whole first.

        Raises:
            StepTooLarge: that takes a new study.
        """
        place = fresh.place
        known = self._open.get(place.optuna_trial_id)
        if known is None or place.study != self.study.mark:
            return None
        for step, value in scaled_reports(fresh.reports, self.study.divisor).items():
            self._set_report(place.optuna_trial_id, known, step, value)
        return MirrorAck(trial_id=fresh.trial_id, version=None, place=replace(place, last_step=_last(fresh.reports)))

    def claim(self) -> None:
        """Take the points that people enqueued since the last time."""
        for point in claim_points(self._storage, self.study.study_id, self.study.mark, self._space):
            self._points[point.key] = point

    def answer(self, answer: PointAnswer) -> None:
        """Tell on a point's own entry why it gets no trial; one that does is taken over by its trial."""
        point = self._points.get(answer.key)
        if point is not None and (answer.refused is not None or not answer.is_own):
            finish_point(self._storage, point, answer.refused or f"trial {answer.trial_number} has this config")
            del self._points[answer.key]

    def abandon(self) -> None:
        """Tell on the entries of all points without an answer that they will not be tried."""
        for point in self.points:
            finish_point(self._storage, point, "the search ended before it was tried")
            del self._points[point.key]

    def _create(self, trial: MirrorTrial, entry: MirrorEntry) -> int:
        optuna_trial_id = self._take_point(trial, entry)
        if optuna_trial_id is None:
            optuna_trial_id = self._storage.create_new_trial(self.study.study_id, entry.template())
            if not entry.state.is_finished():
                self._open[optuna_trial_id] = _Known(attrs=dict(entry.user_attrs), reports=dict(entry.reports))
        return optuna_trial_id

    def _take_point(self, trial: MirrorTrial, entry: MirrorEntry) -> int | None:
        """Make the entry by which somebody asked for this config the trial's own, if it can still be."""
        point = next((p for p in self.points if p.optuna_trial_id == trial.point_id), None)
        if point is None:
            return None
        del self._points[point.key]
        frozen = self._storage.get_trial(point.optuna_trial_id)
        if frozen.state is not OptunaState.RUNNING or HASH in frozen.user_attrs:
            return None
        for name, (value, distribution) in entry.params.items():
            if name not in frozen.params:
                internal = distribution.to_internal_repr(value)
                self._storage.set_trial_param(point.optuna_trial_id, name, internal, distribution)
        known = _Known(attrs=frozen.user_attrs, reports=frozen.intermediate_values)
        self._update(point.optuna_trial_id, known, entry)
        return point.optuna_trial_id

    def _update(self, optuna_trial_id: int, known: _Known, entry: MirrorEntry) -> None:
        self._open[optuna_trial_id] = known
        void: dict[str, Json] = {key: "" for key in (REASON, ERROR) if known.attrs.get(key)}
        if STATE in known.attrs:  # it was pending or paused: attributes cannot be taken away
            void[STATE] = entry.stands.value
        for key, value in (void | dict(entry.user_attrs)).items():
            self._set_attr(optuna_trial_id, known, key, value)
        for step, number in (_superseded_steps(known, entry) | dict(entry.reports)).items():
            self._set_report(optuna_trial_id, known, step, number)
        if entry.state.is_finished():
            if entry.constraints is not None:
                self._storage.set_trial_system_attr(optuna_trial_id, CONSTRAINTS, list(entry.constraints))
            self._storage.set_trial_state_values(optuna_trial_id, entry.state, entry.values)
            del self._open[optuna_trial_id]

    def _supersede(self, optuna_trial_id: int, known: _Known) -> None:
        """End an entry whose trial goes on with other parameters: what came of the former ones stays to be seen."""
        self._set_attr(optuna_trial_id, known, STATE, SUPERSEDED)
        numbers = [value for _, value in sorted(known.reports.items()) if not math.isnan(value)]
        values = numbers[-1:] if len(self._spec.directions) == 1 else []
        self._storage.set_trial_state_values(optuna_trial_id, OptunaState.PRUNED, values or None)
        self._open.pop(optuna_trial_id, None)

    def _set_attr(self, optuna_trial_id: int, known: _Known, key: str, value: Json) -> None:
        if key not in known.attrs or known.attrs[key] != value:
            self._storage.set_trial_user_attr(optuna_trial_id, key, value)
            known.attrs[key] = value

    def _set_report(self, optuna_trial_id: int, known: _Known, step: int, value: float) -> None:
        if step not in known.reports or not _same(known.reports[step], value):
            self._storage.set_trial_intermediate_value(optuna_trial_id, step, value)
            known.reports[step] = value

    def _remember_space(self) -> None:
        first = self._space.as_json()
        if first != self.study.first:
            self._storage.set_study_system_attr(self.study.study_id, SPACE, first)
            self.study = replace(self.study, first=first)

    def _ack(self, trial: MirrorTrial, optuna_trial_id: int) -> MirrorAck:
        place = MirrorPlace(
            optuna_trial_id=optuna_trial_id,
            lineage=trial.lineage,
            last_step=_last(trial.reports),
            study=self.study.mark,
        )
        return MirrorAck(trial_id=trial.trial_id, version=trial.version, place=place)


def _superseded_steps(known: _Known, entry: MirrorEntry) -> dict[int, float]:
    """Steps that were reported once and are no longer part of the trial's history."""
    return {step: math.nan for step in known.reports if step not in entry.reports}


def _is_shown_by(entry: MirrorEntry, frozen: FrozenTrial) -> bool:
    return (
        frozen.state is entry.state
        and _same_numbers(frozen.values or (), entry.values or ())
        and all(frozen.user_attrs.get(key) == entry.user_attrs.get(key) for key in (HASH, LINEAGE, ATTEMPTS))
    )


def _has_params(frozen: FrozenTrial, entry: MirrorEntry) -> bool:
    return frozen.params == {name: value for name, (value, _) in entry.params.items()}


def _same_numbers(some: Sequence[float], others: Sequence[float]) -> bool:
    return len(some) == len(others) and all(map(_same, some, others))


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def _last(reports: Sequence[MirrorReport]) -> int:
    return reports[-1].step if reports else NO_STEP
