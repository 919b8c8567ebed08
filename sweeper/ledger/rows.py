"""From rows to records."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from sweeper.ids import ConfigHash, LeaseId, TrialId, TrialNumber, WorkerId
from sweeper.model.states import AttemptOutcome, CheckpointState, SearchStopKind, TrialState
from sweeper.model.trial import Attempt, CheckpointRef, SearchStop, Trial

STOP: Final = "t.stop_kind, t.stop_step, t.stop_reason"
"""Columns that `stop_of` reads."""


def head_columns(trial: str) -> str:
    """Give the columns that `head_of` reads, of the left-joined checkpoint `h` that a trial would resume from."""
    return f"""
h.fence AS head_fence, h.seq AS head_seq, h.step AS head_step, h.state AS head_state, h.manifest_key, h.manifest_hash,
h.size_bytes, CASE WHEN h.trial_id <> {trial}.trial_id THEN (
    SELECT o.config_hash FROM sweeper.trials o WHERE o.trial_id = h.trial_id) END AS head_config_hash"""


def stop_of(row: sa.Row[Any]) -> SearchStop | None:
    """Read what the search decided about a trial; None while it goes on."""
    if row.stop_kind is None:
        return None
    return SearchStop(kind=SearchStopKind(row.stop_kind), step=row.stop_step, reason=row.stop_reason)


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
    """Read `head_columns`; None if the trial begins from zero."""
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
        config_hash=None if row.head_config_hash is None else ConfigHash(row.head_config_hash),
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
