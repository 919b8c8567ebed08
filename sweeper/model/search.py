"""Records of a search: what is searched, what was proposed, and what a proposal rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sweeper.ids import TrialId, TrialNumber
from sweeper.model.space import Dimension, Space, dimension_as_json, dimension_from_json
from sweeper.model.states import ObjectiveFault, TrialState
from sweeper.model.trial import Json, NewTrial, Report


class Direction(StrEnum):
    """What a better objective value is."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


class DecisionKind(StrEnum):
    """What a decision row is about; `step` of a row is the report's step, or a rung's (a generation's) resource."""

    REPORT = "report"
    """A pruner was asked about a report: `go_on` or `prune`."""
    RUNG = "rung"
    """A trial came to a rung: `go_on`, `pause` or `prune`."""
    PROMOTE = "promote"
    """A paused trial goes on beyond a rung."""
    EXPLOIT = "exploit"
    """A paused trial goes on from another one's checkpoint, with other parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A bound on a named metric's last report; a trial that keeps it is feasible. Missing or NaN is infeasible."""

    metric: str
    at_most: float | None = None
    at_least: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpec:
    """What a sweep searches and how: the part of its row that a plain grid does not have.

    `sampler`, `pruner` and `scheduler` are nodes as Hydra configs write them: `_target_` and plain JSON arguments, all
    seeds left out. `_target_` is compared and shown; what is imported always comes from the running command's own
    config, never from the ledger (SAFE).
    """

    directions: tuple[Direction, ...] = (Direction.MINIMIZE,)
    n_trials: int = 20
    """A total over all runs; every number counts, aliases too."""
    space: Space = field(default_factory=dict)
    sampler: Mapping[str, Json] = field(default_factory=lambda: {"_target_": "optuna.samplers.TPESampler"})
    pruner: Mapping[str, Json] | None = None
    scheduler: Mapping[str, Json] | None = None
    """`{"kind": "asha" | "hyperband" | "pbt", …}`; see `sweeper.model.rungs`."""
    deterministic: bool = True
    """Whether proposals and decisions wait so that they do not depend on timing (SAME)."""
    lag: int = 1
    """W when deterministic: proposal n sees as finished exactly the trials up to n − W."""
    constraints: tuple[Constraint, ...] = ()
    custom_space: str | None = None
    """Dotted name of the user's define-by-run function."""
    fixed: tuple[str, ...] = ()
    """What every trial has beside its parameters, as overrides; a change is told, not refused."""

    def as_json(self) -> dict[str, Json]:
        """Give the stored form."""
        return {
            "directions": [direction.value for direction in self.directions],
            "n_trials": self.n_trials,
            # A list of pairs: the order of dimensions is the order of grids, and JSON objects promise none.
            "space": [[name, dimension_as_json(dimension)] for name, dimension in self.space.items()],
            "sampler": dict(self.sampler),
            "pruner": None if self.pruner is None else dict(self.pruner),
            "scheduler": None if self.scheduler is None else dict(self.scheduler),
            "deterministic": self.deterministic,
            "lag": self.lag,
            "constraints": [
                {"metric": c.metric, "at_most": c.at_most, "at_least": c.at_least} for c in self.constraints
            ],
            "custom_space": self.custom_space,
            "fixed": list(self.fixed),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Json]) -> SearchSpec:
        """Read the stored form back.

        Raises:
            ValueError: not a search that this version knows.
        """
        raw: Mapping[str, Any] = stored  # Any: what is wrong with it shows as KeyError or TypeError
        try:
            return cls(
                directions=tuple(Direction(text) for text in raw["directions"]),
                n_trials=int(raw["n_trials"]),
                space=_space(raw["space"]),
                sampler=dict(raw["sampler"]),
                pruner=None if raw["pruner"] is None else dict(raw["pruner"]),
                scheduler=None if raw["scheduler"] is None else dict(raw["scheduler"]),
                deterministic=bool(raw["deterministic"]),
                lag=int(raw["lag"]),
                constraints=tuple(Constraint(**found) for found in raw["constraints"]),
                custom_space=None if raw["custom_space"] is None else str(raw["custom_space"]),
                fixed=tuple(raw["fixed"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a search: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What the sampler chose for a number, and what it needs to know of that later; one row's worth of JSON."""

    params: Mapping[str, Json] = field(default_factory=dict)
    """By parameter name: float, int, or a choice as tagged JSON. A parameter that does not apply is absent."""
    extra: Space = field(default_factory=dict)
    """Dimensions of parameters that a define-by-run function suggested; those of the plain space are the sweep's."""
    attrs: Mapping[str, Json] = field(default_factory=dict)
    """The sampler's trial attributes, as tagged JSON. Nothing that Optuna would unpickle is ever among them (SAFE)."""
    enqueued: str | None = None
    """Key of the enqueued point that this is, if it is one."""

    def as_json(self) -> dict[str, Json]:
        """Give the stored form; what is empty is left out, since a sweep has many of these."""
        stored: dict[str, Json] = {"p": dict(self.params)}
        if self.extra:
            stored["x"] = [[name, dimension_as_json(dimension)] for name, dimension in self.extra.items()]
        if self.attrs:
            stored["a"] = dict(self.attrs)
        if self.enqueued is not None:
            stored["q"] = self.enqueued
        return stored

    @classmethod
    def from_json(cls, stored: Mapping[str, Json]) -> Proposal:
        """Read the stored form back.

        Raises:
            ValueError: not a proposal.
        """
        raw: Mapping[str, Any] = stored  # Any: as in SearchSpec.from_json
        try:
            return cls(params=raw["p"], extra=_space(raw.get("x", ())), attrs=raw.get("a", {}), enqueued=raw.get("q"))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a proposal: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """One number of a search as the ledger has it: the study has exactly one entry for each.

    An alias has the state, result and reports of the trial that it points at; a refused number has no trial.
    """

    number: int
    proposal: Proposal
    trial_id: TrialId | None
    first_number: int | None
    """The trial's own number; differs from `number` for an alias; None for a refused number."""
    state: TrialState | None
    """None for a refused number."""
    lineage: int = 0
    result: Json = None
    """Tagged JSON of the returned value, once completed or pruned."""
    fault: ObjectiveFault | None = None
    reports: tuple[Report, ...] = ()
    """Only for pruned and paused trials, and where asked for; by step."""

    @property
    def is_alias(self) -> bool:
        """Whether another number had this config first."""
        return self.first_number is not None and self.first_number != self.number


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """What an optimizer suggests for the next number: the proposal, and how the study's own attributes change."""

    proposal: Proposal
    study_attrs: Mapping[str, Json] = field(default_factory=dict)
    """Tagged JSON, only what changed; committed with the number, so that no state of a sampler is ever lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNumber:
    """What is committed for a number: a composed trial, or why there is none."""

    number: TrialNumber
    suggestion: Suggestion
    trial: NewTrial | None
    reason: str | None = None
    """Why the number has no trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One choice about one trial, made once; keyed by trial, lineage, kind and step."""

    trial_id: TrialId
    number: int
    lineage: int
    kind: DecisionKind
    step: int
    action: str
    """go_on, prune or pause; for `promote` and `exploit` go_on."""
    value: float | None = None
    """The objective value that it rests on (NaN counts as the worst)."""
    facts: Mapping[str, Json] = field(default_factory=dict)
    """Rung marks and other attributes that the pruner wrote; what an exploit copied, and the parameters it chose."""
    order: int = 0
    """Decisions of a sweep in the order in which they were made; set by the ledger."""


def _space(pairs: Any) -> dict[str, Dimension]:  # Any: as read from JSON
    return {name: dimension_from_json(found) for name, found in pairs}
