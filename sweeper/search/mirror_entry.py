"""A trial as the mirror shows it: a pure function of what the ledger tells, the sweep's search and its space."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from optuna.distributions import distribution_to_json
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from sweeper.model.mirror import MirrorReport, MirrorRows, MirrorTrial
from sweeper.model.objective import Fault, objective_values
from sweeper.model.search import Constraint, SearchSpec
from sweeper.model.states import TrialState
from sweeper.model.trial import Json, Report
from sweeper.search.constraints import constraint_values
from sweeper.search.mirror_space import MirrorSpace, Shown

HASH: Final = "sweeper:hash"
NUMBER: Final = "sweeper:number"
STATE: Final = "sweeper:state"
LINEAGE: Final = "sweeper:lineage"
ATTEMPTS: Final = "sweeper:attempts"
REASON: Final = "sweeper:reason"
ERROR: Final = "sweeper:error"
CLAIM: Final = "sweeper:point"
"""On an entry that somebody enqueued: the key of the point in the ledger."""
CONSTRAINTS: Final = "constraints"
"""The system attribute by which Optuna and its dashboard know whether a trial is feasible: no value above 0."""

MOST_BYTES: Final = 1024
"""Our attributes of one trial, keys and JSON, never take more."""
MOST_STEP: Final = 2**31 - 1
"""Optuna's tables hold steps of 32 bits."""
_ERROR_BYTES: Final = 300
_REASON_BYTES: Final = 160
_OTHER_BYTES: Final = 200

_STATES: Final = {
    TrialState.PENDING: OptunaState.RUNNING,
    TrialState.RUNNING: OptunaState.RUNNING,
    TrialState.PAUSED: OptunaState.RUNNING,
    TrialState.COMPLETED: OptunaState.COMPLETE,
    TrialState.PRUNED: OptunaState.PRUNED,
    TrialState.FAILED: OptunaState.FAIL,
    TrialState.CANCELLED: OptunaState.FAIL,
}
_OBVIOUS: Final = frozenset({TrialState.RUNNING, TrialState.COMPLETED, TrialState.PRUNED, TrialState.FAILED})
"""States that Optuna's own says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorEntry:
    """What is written of a trial."""

    state: OptunaState
    values: tuple[float, ...] | None
    params: Mapping[str, Shown]
    user_attrs: Mapping[str, Json]
    constraints: tuple[float, ...] | None
    """By how much each constraint is broken; only of trials that have values."""
    reports: Mapping[int, float]
    """By step as the mirror has it."""
    started_at: datetime
    finished_at: datetime | None
    stands: TrialState
    """As the ledger says."""

    @property
    def system_attrs(self) -> dict[str, Any]:  # Any: as in Optuna
        """Attributes in Optuna's own name space."""
        return {} if self.constraints is None else {CONSTRAINTS: list(self.constraints)}

    def rows(self) -> MirrorRows:
        """Give what Optuna's tables hold of it."""
        return MirrorRows(
            state=self.state.name,
            started_at=self.started_at,
            finished_at=self.finished_at if self.state.is_finished() else None,
            values=self.values or (),
            params=tuple(
                (name, distribution.to_internal_repr(value), distribution_to_json(distribution))
                for name, (value, distribution) in self.params.items()
            ),
            user_attrs=tuple((key, json.dumps(value)) for key, value in self.user_attrs.items()),
            system_attrs=tuple((key, json.dumps(value)) for key, value in self.system_attrs.items()),
            reports=tuple(self.reports.items()),
        )

    def template(self) -> FrozenTrial:
        """Give what `create_new_trial` takes."""
        return FrozenTrial(
            number=-1,
            state=self.state,
            value=None,
            values=self.values,
            datetime_start=self.started_at,
            datetime_complete=self.finished_at if self.state.is_finished() else None,
            params={name: value for name, (value, _) in self.params.items()},
            distributions={name: distribution for name, (_, distribution) in self.params.items()},
            user_attrs=dict(self.user_attrs),
            system_attrs=self.system_attrs,
            intermediate_values=dict(self.reports),
            trial_id=-1,
        )


class StepTooLarge(Exception):
    """A step does not fit the study's scale: the study has to be written anew with a coarser one."""


def entry_of(trial: MirrorTrial, spec: SearchSpec, space: MirrorSpace, *, divisor: int = 1) -> MirrorEntry:
    """Show a trial.

    Args:
        trial: with all that its entry needs (reports, metrics).
        spec: the sweep's search.
        space: of the study; what it has to remember may grow.
        divisor: by which the study divides steps.

    Raises:
        StepTooLarge: the divisor is too small.
    """
    state, values = _STATES[trial.state], None
    if trial.state is TrialState.COMPLETED:
        values = _values(trial.result, len(spec.directions))
        state = state if values is not None else OptunaState.FAIL
    elif trial.state is TrialState.PRUNED:
        values = _pruned_value(trial, spec)
    params: dict[str, Shown] = {}
    other: dict[str, Json] = {}
    for name, value in trial.params.items():
        shown = space.shown(name, value, trial.extra)
        if shown is None:
            other[name] = value
        else:
            params[name] = shown
    has_end = state in (OptunaState.COMPLETE, OptunaState.PRUNED)
    return MirrorEntry(
        state=state,
        values=values,
        params=params,
        user_attrs=_attributes(trial, other),
        constraints=_violations(spec.constraints, trial.metrics) if spec.constraints and has_end else None,
        reports=scaled_reports(trial.reports, divisor),
        started_at=trial.started_at,
        finished_at=trial.finished_at,
        stands=trial.state,
    )


def scaled_reports(reports: Sequence[MirrorReport], divisor: int) -> dict[int, float]:
    """Give reports by step as the mirror has it; of several that fall together the last stays.

    Raises:
        StepTooLarge: the divisor is too small.
    """
    found: dict[int, float] = {}
    for report in reports:
        step = report.step // divisor
        if abs(step) > MOST_STEP:
            raise StepTooLarge(f"step {report.step} does not fit 32 bits when divided by {divisor}")
        found[step] = report.value
    return found


def divisor_for(largest_step: int) -> int:
    """Give a power of a thousand by which steps up to this one fit 32 bits, with room to grow where one is needed."""
    divisor = 1
    while largest_step // divisor > MOST_STEP:
        divisor *= 1000
    return divisor


def _values(result: Json, count: int) -> tuple[float, ...] | None:
    values = objective_values(result, count)
    return None if isinstance(values, Fault) else values


def _pruned_value(trial: MirrorTrial, spec: SearchSpec) -> tuple[float, ...] | None:
    """A pruned trial's value is its result, else, as in Optuna, what it reported last."""
    if len(spec.directions) != 1:
        return None
    values = _values(trial.result, 1)
    if values is None and trial.reports and not math.isnan(trial.reports[-1].value):
        values = (trial.reports[-1].value,)
    return values


def _violations(constraints: Sequence[Constraint], metrics: Mapping[str, float]) -> tuple[float, ...]:
    """By how much the last report breaks each constraint; finite, as strict JSON knows nothing else."""
    last = Report(step=0, at_step=0, value=0.0, metrics=metrics)
    most = sys.float_info.max
    return tuple(max(-most, min(most, value)) for value in constraint_values(constraints, [last]))


def _attributes(trial: MirrorTrial, other: Mapping[str, Json]) -> dict[str, Json]:
    """Few and small: each costs as much as a parameter to write. What says nothing is left out."""
    attrs: dict[str, Json] = {NUMBER: trial.number, HASH: trial.config_hash}
    if trial.state not in _OBVIOUS:
        attrs[STATE] = trial.state.value
    counts = {
        ATTEMPTS: trial.attempts if trial.attempts > 1 else 0,
        "sweeper:evictions": trial.evictions,
        "sweeper:crashes": trial.crashes,
        LINEAGE: trial.lineage,
        "sweeper:step": trial.step if trial.state is not TrialState.RUNNING else 0,
    }
    attrs |= {key: count for key, count in counts.items() if count}
    if trial.state not in (TrialState.COMPLETED, TrialState.RUNNING) and trial.reason:
        attrs[REASON] = bounded(trial.reason, _REASON_BYTES)
    if trial.error.strip():
        attrs[ERROR] = bounded(trial.error.strip().splitlines()[-1], _ERROR_BYTES)
    if other:
        attrs["sweeper:other_params"] = bounded(json.dumps(other, ensure_ascii=False), _OTHER_BYTES)
    return attrs


def bounded(text: str, most_bytes: int) -> str:
    """Give the beginning of a text whose JSON takes at most so many bytes."""
    if len(json.dumps(text)) <= most_bytes:
        return text
    kept = text[:most_bytes]
    while len(json.dumps(kept)) > most_bytes - 6:  # the ellipsis as JSON
        kept = kept[: -max(1, (len(json.dumps(kept)) - most_bytes) // 12)]
    return kept + "…"
