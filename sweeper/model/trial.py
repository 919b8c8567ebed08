"""Records that pass between the ledger, the worker, the coordinator and the faces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sweeper.ids import AskerId, ConfigHash, LeaseId, SweepId, TrialId, TrialNumber, WorkerId
from sweeper.model.retry import RetryPolicy
from sweeper.model.states import AttemptOutcome, CheckpointState, SearchStopKind, SweepState, TrialState

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
"""What tagged JSON is made of (see `sweeper.model.tagged`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to run a trial. `held(lease)` in the ledger is trial, fence, lease id and state running (FENCE)."""

    trial_id: TrialId
    fence: int
    lease_id: LeaseId


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStop:
    """A decision that the holder of a trial has to obey: its history ends, or pauses, at the report of `step`."""

    kind: SearchStopKind
    step: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRef:
    """A committed checkpoint as its ledger row names it."""

    fence: int
    seq: int
    step: int
    manifest_key: str
    manifest_hash: str
    size_bytes: int
    state: CheckpointState = CheckpointState.LIVE
    config_hash: ConfigHash | None = None
    """The trial whose training it holds, where that is another one (an heir's inherited head)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a worker learns when it is given a trial."""

    lease: Lease
    sweep_id: SweepId
    number: TrialNumber
    config_hash: ConfigHash
    lineage: int
    config_text: str
    overrides: tuple[str, ...]
    head: CheckpointRef | None
    attempt: int
    """1 for the trial's first attempt of any lineage, counting up."""
    crashes: int
    threads: int | None
    """Compute threads fixed by the trial's first attempt; None when this is the first."""
    look_for_evidence: bool
    """Whether the store may hold an outcome that this ledger does not name: fence > 1, as it also is after a
    rollback."""
    seen_fence: int = 0
    """Above 0 once this ledger proved to be behind the store (rolled back): manifests of fences up to this one count
    though no row names them."""
    params: Mapping[str, Json] = field(default_factory=dict)
    """What the trial's overrides set, by key, typed (`NewTrial.params`)."""
    stop: SearchStop | None = None
    """What the search decided while nobody held the trial: obey it before a child is started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """An intermediate objective value. `step` is the user's unit, `at_step` the training step when it was made."""

    step: int
    at_step: int
    value: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTrial:
    """A composed job that a command asks for."""

    config_hash: ConfigHash
    config_text: str
    overrides: tuple[str, ...]
    params: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSpec:
    """What the sweep's row is written from, or matched against."""

    name: str
    task: str
    """`module:qualified name` of the task function; another task under the same name is refused."""
    source_digest: str
    """SHA-256 of the script's file."""
    sweep_dir: str
    """Absolute directory, pinned at the first launch."""
    store_url: str
    """Without credentials."""
    seed: int = 0
    search: Mapping[str, Json] | None = None
    """`SearchSpec.as_json`; None for a plain grid."""
    identity: Mapping[str, Json] = field(default_factory=dict)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    checkpoint_keep: int = 3
    default_named: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A sweep's row."""

    sweep_id: SweepId
    name: str
    state: SweepState
    task: str
    source_digest: str
    sweep_dir: str
    store_url: str
    seed: int
    search: Mapping[str, Json] | None
    """`SearchSpec.as_json`; None for a plain grid."""
    identity: Mapping[str, Json]
    retry: RetryPolicy
    checkpoint_keep: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A trial's row, for reading."""

    trial_id: TrialId
    number: TrialNumber
    config_hash: ConfigHash
    state: TrialState
    lineage: int
    fence: int
    worker_id: WorkerId | None
    lease_id: LeaseId | None
    crashes: int
    no_progress: int
    result: Json
    """Tagged JSON of the returned value, None until completed (or when it returned None)."""
    outcome_key: str | None
    outcome_stored: bool
    error: str | None
    head: CheckpointRef | None
    step: int
    last_value: float | None
    requested: bool
    overrides: tuple[str, ...]
    available_at: datetime | None
    params: Mapping[str, Json] = field(default_factory=dict)
    """What the trial's overrides set, by key, typed (`NewTrial.params`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One worker's go at a trial under one lease."""

    lease_id: LeaseId
    fence: int
    lineage: int
    worker_id: WorkerId
    host: str
    pool: str
    started_at: datetime
    ended_at: datetime | None
    outcome: AttemptOutcome | None
    reason: str | None
    error: str | None
    exit_code: int | None
    first_step: int | None
    last_step: int | None
    adopted_from: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a running trial, and how a process on the same host can prove that it is dead."""

    lease: Lease
    number: TrialNumber
    worker_id: WorkerId
    host: str
    boot_id: str
    lock_path: str
    lock_inode: str
    """`st_dev:st_ino` of the lock file; the same path on another file system proves nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord:
    """A worker as it registers itself."""

    worker_id: WorkerId
    host: str
    boot_id: str
    lock_path: str
    lock_inode: str
    pid: int
    pool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskerRecord:
    """A command that asks for trials, with the same proof of life as a worker."""

    asker_id: AskerId
    host: str
    boot_id: str
    lock_path: str
    lock_inode: str
    pid: int
