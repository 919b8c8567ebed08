"""From rows to records."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from sweeper.ids import ConfigHash, LeaseId, TrialId, TrialNumber, WorkerId
from sweeper.model.states import AttemptOutcome, CheckpointState, TrialState
from sweeper.model.trial import Attempt, CheckpointRef, Trial


def checkpoint_of(row: sa.Row[Any]) -> CheckpointRef:
    """Read fence, seq, step, manifest_key, manifest_hash, size_bytes, state."""
    return CheckpointRef(
        fence=row.fence,
        seq=row.seq,
        step=row.step,
        manifest_key=row.manifest_key,
        manifest_hash=row.manifest_hash,
        size_bytes=row.size_bytes,
        state=CheckpointState(row.state),
    )


def head_of(row: sa.Row[Any]) -> CheckpointRef | None:
    """Read the left-joined head (head_fence, head_seq, head_step, head_state, manifest_key, …), None if absent."""
    if row.manifest_key is None:
        return None
    return CheckpointRef(
        fence=row.head_fence,
        seq=row.head_seq,
        step=row.head_step,
        manifest_key=row.manifest_key,
        manifest_hash=row.manifest_hash,
        size_bytes=row.size_bytes,
        state=CheckpointState(row.head_state),
    )


def trial_of(row: sa.Row[Any]) -> Trial:
    """Read a row of the listing of trials."""
    return Trial(
        trial_id=TrialId(row.trial_id),
        number=TrialNumber(row.number),
        config_hash=ConfigHash(row.config_hash),
        state=TrialState(row.state),
        lineage=row.lineage,
        fence=row.fence,
        worker_id=None if row.worker_id is None else WorkerId(row.worker_id),
        lease_id=None if row.lease_id is None else LeaseId(row.lease_id),
        crashes=row.crashes,
        no_progress=row.no_progress,
        result=row.result,
        outcome_key=row.outcome_key,
        outcome_stored=row.outcome_stored,
        error=row.error,
        head=head_of(row),
        step=row.step,
        last_value=row.last_value,
        requested=row.requested,
        overrides=tuple(row.overrides),
        available_at=row.available_at,
        params=row.params,
    )


def attempt_of(row: sa.Row[Any]) -> Attempt:
    """Read a row of `attempts`."""
    return Attempt(
        lease_id=LeaseId(row.lease_id),
        fence=row.fence,
        lineage=row.lineage,
        worker_id=WorkerId(row.worker_id),
        host=row.host,
        pool=row.pool,
        started_at=row.started_at,
        ended_at=row.ended_at,
        outcome=None if row.outcome is None else AttemptOutcome(row.outcome),
        reason=row.reason,
        error=row.error,
        exit_code=row.exit_code,
        first_step=row.first_step,
        last_step=row.last_step,
        adopted_from=row.adopted_from,
    )
