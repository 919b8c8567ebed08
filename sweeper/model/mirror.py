"""The mirror's records: what the ledger tells of a trial, and where the trial is in the Optuna study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from sweeper.ids import ConfigHash, TrialId, TrialNumber
from sweeper.model.space import Space
from sweeper.model.states import TrialState
from sweeper.model.trial import Json

NO_STEP: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPlace:
    """Where a trial is in the mirror. What Optuna calls its number is never taken for ours."""

    optuna_trial_id: int
    lineage: int
    last_step: int
    """Of the reports that are there; `NO_STEP` before the first."""
    study: str
    """The mark of the study, which it carries from its creation: another one is another study."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorReport:
    """A report as the mirror shows it."""

    step: int
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorTrial:
    """A trial that was started, as the mirror is to show it."""

    trial_id: TrialId
    number: TrialNumber
    config_hash: ConfigHash
    lineage: int
    state: TrialState
    version: int
    fence: int
    attempts: int
    evictions: int
    crashes: int
    step: int
    reason: str
    error: str
    result: Json
    """Tagged JSON."""
    params: Mapping[str, Json]
    """By parameter name, as proposed; a parameter that does not apply is absent."""
    extra: Space
    """Dimensions of parameters that are not of the sweep's own space."""
    started_at: datetime
    finished_at: datetime | None
    reports: tuple[MirrorReport, ...] = ()
    """By step; of long histories a selection (`sweeper.ledger.mirroring`)."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Of its last report; only where the search has constraints."""
    place: MirrorPlace | None = None
    point_id: int | None = None
    """The entry of the study by which somebody asked for this config."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTrial:
    """A trial that some worker holds, or did: its attempt changes without a new version of its row."""

    trial_id: TrialId
    fence: int
    state: TrialState
    placed: bool
    """Whether it has an entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshReports:
    """Reports of a running trial that the mirror does not have."""

    trial_id: TrialId
    place: MirrorPlace
    reports: tuple[MirrorReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorAck:
    """What was written of a trial: from now on this version of it is in the mirror, in this place."""

    trial_id: TrialId
    version: int | None
    """None where only reports were written: whatever version was shown before still is."""
    place: MirrorPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPoint:
    """A point that somebody enqueued on the study, claimed for this sweep."""

    key: str
    optuna_trial_id: int
    point: Mapping[str, Json]
    """Tagged JSON by parameter name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointAnswer:
    """What became of a point: refused, or tried under a number whose config is a trial's (its own, or another's)."""

    key: str
    refused: str | None
    trial_number: TrialNumber | None
    is_own: bool = False
    """Whether the trial was made for this point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How the ledger's map fits a study."""

    last_optuna_trial_id: int | None
    """The newest of its entries that the map knows."""
    missing: int
    """Trials to show that have no place in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorRows:
    """An entry of the study as rows of Optuna's tables hold it."""

    state: str
    """Name of Optuna's state."""
    started_at: datetime
    finished_at: datetime | None
    values: tuple[float, ...]
    params: tuple[tuple[str, float, str], ...]
    """Name, internal value, distribution as JSON."""
    user_attrs: tuple[tuple[str, str], ...]
    """Key and JSON."""
    system_attrs: tuple[tuple[str, str], ...]
    reports: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorChange:
    """What is new of an entry that runs, as rows of Optuna's tables hold it."""

    optuna_trial_id: int
    state: str
    """Name of Optuna's state from now on."""
    finished_at: datetime | None = None
    values: tuple[float, ...] = ()
    user_attrs: tuple[tuple[str, str], ...] = ()
    system_attrs: tuple[tuple[str, str], ...] = ()
    reports: tuple[tuple[int, float], ...] = ()
