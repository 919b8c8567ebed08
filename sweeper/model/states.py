"""States of a trial, outcomes of an attempt, and the one table of transitions between states."""

from __future__ import annotations

from enum import StrEnum


class TrialState(StrEnum):
    """Where a trial stands. The last four are final."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    PRUNED = "pruned"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether nothing but an explicit retry leads out of this state."""
        return self in FINAL_STATES


FINAL_STATES = frozenset({TrialState.COMPLETED, TrialState.PRUNED, TrialState.FAILED, TrialState.CANCELLED})


class AttemptOutcome(StrEnum):
    """How one attempt ended; exactly one each."""

    COMPLETED = "completed"
    PRUNED = "pruned"
    PAUSED = "paused"
    EVICTED = "evicted"
    CRASHED = "crashed"
    LOST = "lost"
    CANCELLED = "cancelled"
    INVALID = "invalid"
    ENVIRONMENT = "environment"


class SweepState(StrEnum):
    """Where a sweep stands: being worked on, all of it final, or cancelled by command."""

    ACTIVE = "active"
    FINISHED = "finished"
    CANCELLED = "cancelled"


class CheckpointState(StrEnum):
    """live: may be resumed from; suspect: failed verification; retired: its objects may be deleted."""

    LIVE = "live"
    SUSPECT = "suspect"
    RETIRED = "retired"


class ObjectiveFault(StrEnum):
    """Why a returned value is no objective."""

    NONE = "none"
    NAN = "nan"
    KIND = "kind"
    ARITY = "arity"


class SearchStopKind(StrEnum):
    """How the search ends or interrupts a trial that may be running."""

    PRUNE = "prune"
    PAUSE = "pause"


class PinReason(StrEnum):
    """Why a checkpoint outlives retention."""

    RUNG = "rung"
    """A paused trial goes on from it, if it is promoted."""
    HEIR = "heir"
    """Another trial begins with it."""
    BEST = "best"


class PointSource(StrEnum):
    """Who enqueued a point: the command's config, or somebody on the mirrored study."""

    CONFIG = "config"
    MIRROR = "mirror"


TRANSITIONS: dict[TrialState, dict[TrialState, str]] = {
    TrialState.PENDING: {
        TrialState.RUNNING: "lease_trial",
        TrialState.CANCELLED: "cancel_trials",
    },
    TrialState.RUNNING: {
        TrialState.COMPLETED: "commit_result",
        TrialState.PRUNED: "commit_result",
        TrialState.PAUSED: "release_trial",
        TrialState.PENDING: "release_trial, expire_leases",
        TrialState.FAILED: "commit_result, release_trial, expire_leases",
        TrialState.CANCELLED: "cancel_trials",
    },
    TrialState.PAUSED: {
        TrialState.PENDING: "promote_trial",
        TrialState.PRUNED: "prune_paused",
        TrialState.CANCELLED: "cancel_trials",
    },
    TrialState.COMPLETED: {},
    TrialState.PRUNED: {},
    TrialState.FAILED: {TrialState.PENDING: "retry_trials"},
    TrialState.CANCELLED: {TrialState.PENDING: "retry_trials"},
}
"""From each state, where a trial may go and by which ledger statement."""
