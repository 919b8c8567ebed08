"""Writing entries of a mirrored study, with Optuna's public calls or, for many at once, as rows of its tables.

Of an entry attributes and reports come first and the final state last, as a finished entry can never be changed. It
carries the trial's hash and lineage from its creation, so one whose place never reached the ledger is found again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
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
    MirrorChange,
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
        """Give what the tables hold of trials that have no entry yet, for adding them at once.

        Raises:
            StepTooLarge: that takes a new study.
        """
        entries = [entry_of(trial, self._spec, self._space, divisor=self.study.divisor) for trial in trials]
        self._remember_space()
        return [entry.rows() for entry in entries]

    def added(self, trial: MirrorTrial, optuna_trial_id: int) -> MirrorAck:
        """Acknowledge an entry that was added by its rows."""
        if not trial.state.final:  # most are, and nothing more is written of them
            self._remember(optuna_trial_id, entry_of(trial, self._spec, self._space, divisor=self.study.divisor))
        return self._ack(trial, optuna_trial_id)

    def change(self, trial: MirrorTrial) -> MirrorChange | None:
        """Give what is new of a trial whose entry runs and is known, for writing it at once; None of any other.

        Raises:
            StepTooLarge: that takes a new study.
        """
        place = trial.place
        if place is None or place.lineage != trial.lineage:
            return None
        known = self._known_at(place)
        if known is None:
            return None
        entry = entry_of(trial, self._spec, self._space, divisor=self.study.divisor)
        attrs, reports = _differences(known, entry)
        rows = replace(entry, user_attrs=attrs, reports=reports).rows()
        return MirrorChange(
            optuna_trial_id=place.optuna_trial_id,
            state=rows.state,
            finished_at=rows.finished_at,
            values=rows.values,
            user_attrs=rows.user_attrs,
            system_attrs=rows.system_attrs,
            reports=rows.reports,
        )

    def change_of_reports(self, fresh: FreshReports) -> MirrorChange | None:
        """Give the same of a trial that only reported.

        Raises:
            StepTooLarge: that takes a new study.
        """
        known = self._known_at(fresh.place)
        if known is None:
            return None
        reports = _differing_reports(known, scaled_reports(fresh.reports, self.study.divisor))
        return MirrorChange(
            optuna_trial_id=fresh.place.optuna_trial_id, state=OptunaState.RUNNING.name, reports=tuple(reports.items())
        )

    def changed(self, what: MirrorTrial | FreshReports, change: MirrorChange) -> MirrorAck:
        """Acknowledge what was written at once."""
        known = self._open[change.optuna_trial_id]
        known.attrs |= {key: json.loads(text) for key, text in change.user_attrs}
        known.reports |= dict(change.reports)
        if change.finished_at is not None:
            del self._open[change.optuna_trial_id]
        if isinstance(what, FreshReports):
            return _ack_of_reports(what)
        return self._ack(what, change.optuna_trial_id)

    def show_reports(self, fresh: FreshReports) -> MirrorAck | None:
        """Add reports of a running trial; None where the trial has to be looked at as a whole first.

        Raises:
            StepTooLarge: that takes a new study.
        """
        known = self._known_at(fresh.place)
        if known is None:
            return None
        reports = _differing_reports(known, scaled_reports(fresh.reports, self.study.divisor))
        self._set_reports(fresh.place.optuna_trial_id, known, reports)
        return _ack_of_reports(fresh)

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
            self._remember(optuna_trial_id, entry)
        return optuna_trial_id

    def _remember(self, optuna_trial_id: int, entry: MirrorEntry) -> None:
        if not entry.state.is_finished():
            self._open[optuna_trial_id] = _Known(attrs=dict(entry.user_attrs), reports=dict(entry.reports))

    def _take_point(self, trial: MirrorTrial, entry: MirrorEntry) -> int | None:
        """Make the entry by which somebody asked for this config the trial's own, if it can still be."""
        point = next((p for p in self.points if p.optuna_trial_id == trial.point_id), None)
        if point is None:
            return self._taken_before(trial, entry)
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

    def _taken_before(self, trial: MirrorTrial, entry: MirrorEntry) -> int | None:
        """The same where it was made the trial's own and that was never acknowledged."""
        if trial.point_id is None:
            return None
        try:
            frozen = self._storage.get_trial(trial.point_id)
        except KeyError:
            return None
        if frozen.user_attrs.get(HASH) != trial.config_hash or frozen.user_attrs.get(LINEAGE, 0) != trial.lineage:
            return None
        if frozen.state.is_finished():
            return trial.point_id if _is_shown_by(entry, frozen) else None
        self._update(trial.point_id, _Known(attrs=frozen.user_attrs, reports=frozen.intermediate_values), entry)
        return trial.point_id

    def _update(self, optuna_trial_id: int, known: _Known, entry: MirrorEntry) -> None:
        self._open[optuna_trial_id] = known
        attrs, reports = _differences(known, entry)
        for key, value in attrs.items():
            self._set_attr(optuna_trial_id, known, key, value)
        self._set_reports(optuna_trial_id, known, reports)
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
        self._storage.set_trial_user_attr(optuna_trial_id, key, value)
        known.attrs[key] = value

    def _set_reports(self, optuna_trial_id: int, known: _Known, reports: Mapping[int, float]) -> None:
        for step, value in reports.items():
            self._storage.set_trial_intermediate_value(optuna_trial_id, step, value)
            known.reports[step] = value

    def _known_at(self, place: MirrorPlace) -> _Known | None:
        return self._open.get(place.optuna_trial_id) if place.study == self.study.mark else None

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


def _ack_of_reports(fresh: FreshReports) -> MirrorAck:
    place = replace(fresh.place, last_step=_last(fresh.reports))
    return MirrorAck(trial_id=fresh.trial_id, version=None, place=place)


def _differences(known: _Known, entry: MirrorEntry) -> tuple[dict[str, Json], dict[int, float]]:
    """The attributes and reports of an entry that the study has not, or has otherwise."""
    void: dict[str, Json] = {key: "" for key in (REASON, ERROR) if known.attrs.get(key)}
    if STATE in known.attrs:  # it was pending or paused: attributes cannot be taken away
        void[STATE] = entry.stands.value
    attrs = {
        key: value
        for key, value in (void | dict(entry.user_attrs)).items()
        if key not in known.attrs or known.attrs[key] != value
    }
    # Steps that were reported once and are no longer part of the trial's history stay without a number.
    superseded = {step: math.nan for step in known.reports if step not in entry.reports}
    return attrs, _differing_reports(known, superseded | dict(entry.reports))


def _differing_reports(known: _Known, reports: Mapping[int, float]) -> dict[int, float]:
    return {
        step: value
        for step, value in reports.items()
        if step not in known.reports or not _same(known.reports[step], value)
    }


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
