"""FAIR: what an ended attempt does to its trial. Evictions and losses never use up the crash budget."""

from __future__ import annotations

from dataclasses import dataclass

from sweeper.model.states import AttemptOutcome, TrialState


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Limits per lineage of a trial. The ledger's statements apply the same rule in SQL; a property test compares."""

    max_crashes: int = 3
    """The crash that fails the trial."""
    max_no_progress: int = 10
    """Attempts in a row in which the child was started and the head did not move, however they ended."""
    backoff_s: float = 1.0
    """Delay after the first crash; doubles with each."""
    backoff_max_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """A trial's history that retry decisions rest on."""

    crashes: int = 0
    no_progress: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The trial's next state, its new counters, and how long it must wait before it can be leased (without jitter)."""

    state: TrialState
    counters: Counters
    delay_s: float = 0.0
    reason: str = ""


_FINAL = {
    AttemptOutcome.COMPLETED: TrialState.COMPLETED,
    AttemptOutcome.PRUNED: TrialState.PRUNED,
    AttemptOutcome.CANCELLED: TrialState.CANCELLED,
    AttemptOutcome.INVALID: TrialState.FAILED,
}


def after_attempt(
    policy: RetryPolicy, before: Counters, outcome: AttemptOutcome, *, child_started: bool, head_moved: bool
) -> Verdict:
    """Decide where a trial goes when an attempt ends.

    Args:
        policy: the sweep's limits.
        before: the counters before this attempt.
        outcome: how it ended.
        child_started: whether user code was reached; an attempt that never got there is no evidence of a stuck trial.
        head_moved: whether a checkpoint was committed under this lease.
    """
    if outcome in _FINAL:
        return Verdict(state=_FINAL[outcome], counters=before, reason=outcome.value)
    crashes = before.crashes + (outcome is AttemptOutcome.CRASHED)
    no_progress = 0 if head_moved else before.no_progress + child_started
    counters = Counters(crashes=crashes, no_progress=no_progress)
    if outcome is AttemptOutcome.PAUSED:
        return Verdict(state=TrialState.PAUSED, counters=counters)
    if outcome is AttemptOutcome.CRASHED and crashes >= policy.max_crashes:
        return Verdict(state=TrialState.FAILED, counters=counters, reason=f"crashed {crashes} times")
    if no_progress >= policy.max_no_progress:
        reason = f"{no_progress} attempts in a row without a new checkpoint"
        return Verdict(state=TrialState.FAILED, counters=counters, reason=reason)
    delay_s = 0.0
    if outcome is AttemptOutcome.CRASHED:
        delay_s = min(policy.backoff_s * 2.0 ** (crashes - 1), policy.backoff_max_s)
    return Verdict(state=TrialState.PENDING, counters=counters, delay_s=delay_s)
