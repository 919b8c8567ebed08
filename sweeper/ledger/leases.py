"""Leases: a worker is given a trial, keeps it, gives it back, or is found to have lost it (FENCE, BLIND, FAIR).

Every function is one statement that locks the trial's row first and derives the rest from it; a second statement runs
only to explain a refusal. Grants and endings commit synchronously; a heartbeat does not wait for the disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from sweeper.ids import LeaseId, SweepId, TrialId, TrialNumber, WorkerId
from sweeper.ledger import endings
from sweeper.ledger.claims import ANYTHING_TO_LEASE, LEASE_ANY, LEASE_BEYOND, grant_of
from sweeper.ledger.guards import EXTENDED, HELD, NOW, held, receipt, refusal, replayed
from sweeper.ledger.pulse import AWAKE, TOUCHED, heartbeat_of
from sweeper.ledger.rows import STOP, stop_of
from sweeper.ledger.sql import statement
from sweeper.ledger.statements import Statements
from sweeper.ledger.storable import storable
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.trial import Grant, Holder, Lease, SearchStop, WorkerRecord

CODE: Final = 2
"""Generation of this code; a ledger whose `min_code` is higher gives it no more leases."""

RELEASES: Final = frozenset(
    {AttemptOutcome.EVICTED, AttemptOutcome.CRASHED, AttemptOutcome.ENVIRONMENT, AttemptOutcome.PAUSED}
)
"""Outcomes with which a worker gives a trial back unfinished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """A lease that was taken from its holder, and the trial's state since."""

    lease: Lease
    number: TrialNumber
    worker_id: WorkerId
    state: TrialState


_REGISTER_WORKER = statement(f"""
INSERT INTO sweeper.workers
    (worker_id, sweep_id, host, boot_id, lock_path, lock_inode, pid, pool, registered_at, seen_at)
VALUES (:worker_id, :sweep_id, :host, :boot_id, :lock_path, :lock_inode, :pid, :pool, {NOW}, {NOW})
ON CONFLICT (worker_id) DO UPDATE SET seen_at = excluded.seen_at
""")

_RETIRE_WORKER = statement(f"""
UPDATE sweeper.workers w SET retired_at = {NOW}, retire_reason = :reason
WHERE w.worker_id = :worker_id AND w.retired_at IS NULL
""")

_RENEW = statement(f"""
WITH renewed AS (
    UPDATE sweeper.trials t
    SET {EXTENDED}, child_started = t.child_started OR :child_started, step = coalesce(:step, t.step)
    WHERE {HELD}
    RETURNING {STOP}, set_config('synchronous_commit', 'off', true)
), {TOUCHED}
SELECT {STOP} FROM renewed t
""")

_RELEASE = statement(f"""
WITH ended AS (
    UPDATE sweeper.trials t
    SET {endings.ended(outcome=":outcome", child_started=":child_started", jitter=":delay_jitter")},
        step = coalesce(:last_step, t.step)
    FROM sweeper.sweeps s
    WHERE {HELD} AND s.sweep_id = t.sweep_id
    RETURNING :lease_id AS lease_id, t.state, t.step
), {
    endings.closed(
        ending="ended",
        outcome=":outcome",
        last_step=":last_step",
        extra=", error = :error, exit_code = :exit_code",
    )
}
SELECT e.state FROM ended e
""")

_EXPIRE = statement(f"""
WITH due AS MATERIALIZED (
    SELECT t.trial_id, t.fence, t.lease_id, t.worker_id
    FROM sweeper.trials t
    WHERE t.sweep_id = :sweep_id AND t.state = 'running' AND {AWAKE}
      AND t.lease_expires_at NOT BETWEEN {NOW} AND {NOW} + make_interval(secs => 2 * :lease_s)
    LIMIT :limit
    FOR NO KEY UPDATE OF t SKIP LOCKED
), ended AS (
    UPDATE sweeper.trials t
    SET {endings.ended(outcome="'lost'", child_started="t.child_started")}
    FROM due d, sweeper.sweeps s
    WHERE t.trial_id = d.trial_id AND t.state = 'running' AND t.lease_id = d.lease_id AND s.sweep_id = t.sweep_id
    RETURNING t.trial_id, d.fence, d.lease_id, d.worker_id, t.number, t.state, t.step
), {endings.closed(ending="ended", outcome="'lost'", last_step="NULL")}, {TOUCHED}
SELECT e.trial_id, e.fence, e.lease_id, e.worker_id, e.number, e.state FROM ended e ORDER BY e.number
""")

_EXPIRE_DEAD = statement(f"""
WITH ended AS (
    UPDATE sweeper.trials t
    SET {endings.ended(outcome="'lost'", child_started="t.child_started")}
    FROM sweeper.sweeps s
    WHERE {HELD} AND s.sweep_id = t.sweep_id
    RETURNING :lease_id AS lease_id, t.state, t.step
), {endings.closed(ending="ended", outcome="'lost'", last_step="NULL")}
SELECT e.state FROM ended e
""")

_HOLDERS = statement("""
SELECT t.trial_id, t.fence, t.lease_id, t.number, t.worker_id, w.host, w.boot_id, w.lock_path, w.lock_inode
FROM sweeper.trials t JOIN sweeper.workers w ON w.worker_id = t.worker_id
WHERE t.sweep_id = :sweep_id AND t.state = 'running' AND w.boot_id = :boot_id
ORDER BY t.number
""")


def register_worker(db: Statements, worker: WorkerRecord, *, sweep_id: SweepId) -> None:
    """Write down who the worker is and how its death can be proved."""
    db.run(
        _REGISTER_WORKER,
        {
            "now": db.now,
            "worker_id": worker.worker_id,
            "sweep_id": sweep_id,
            "host": worker.host,
            "boot_id": worker.boot_id,
            "lock_path": worker.lock_path,
            "lock_inode": worker.lock_inode,
            "pid": worker.pid,
            "pool": worker.pool,
        },
    )


def retire_worker(db: Statements, worker_id: WorkerId, *, reason: str) -> None:
    """Note that the worker has left by itself; its leases are its own business."""
    db.run(_RETIRE_WORKER, {"now": db.now, "worker_id": worker_id, "reason": storable(reason)})


def lease_trial(
    db: Statements,
    *,
    sweep_id: SweepId,
    worker_id: WorkerId,
    lease_id: LeaseId,
    lease_s: float,
    heartbeat_s: float,
    pool: str,
    host: str,
    threads: int | None,
    number_floor: int = 0,
    scarce: bool = False,
) -> Grant | None:
    """Give the worker the best trial that is requested, pending and available; None when there is none.

    Best is highest priority, then lowest number not below `number_floor`, then any (the floor is only a shortcut past
    index entries of trials that are gone). A trial that crashed on this host within one lease time is left to a worker
    elsewhere if one is looking. Raises the fence, opens the attempt, and deletes reports from beyond the head.

    Repeated with the same lease id it gives the same grant while that lease is held, and None once it has ended: draw
    a new id for each new wish.

    `scarce`: there is probably none, so look first, which is less work; who only looks is not seen to be asking.
    """
    parameters = {
        "now": db.now,
        "sweep_id": sweep_id,
        "worker_id": worker_id,
        "lease_id": lease_id,
        "lease_s": lease_s,
        "heartbeat_s": heartbeat_s,
        "pool": pool,
        "host": host,
        "threads": threads,
        "number_floor": number_floor,
        "code": CODE,
    }
    looking = {"now": db.now, "sweep_id": sweep_id, "lease_id": lease_id, "number_floor": number_floor}
    if scarce and not db.run(ANYTHING_TO_LEASE, looking)[0].found:
        return None
    if number_floor > 0:
        if (grant := _claim(db, LEASE_BEYOND, parameters)) is not None:
            return grant
        if not scarce and not db.run(ANYTHING_TO_LEASE, looking)[0].found:
            return None
    return _claim(db, LEASE_ANY, parameters)


def _claim(db: Statements, claim: sa.TextClause, parameters: Mapping[str, Any]) -> Grant | None:
    try:
        rows = db.run(claim, parameters)
    except sa.exc.IntegrityError:
        # The first try was still under way, picked another trial, and has now committed under this lease id.
        rows = db.run(claim, parameters)
    return grant_of(rows[0]) if rows else None


def renew_lease(
    db: Statements,
    lease: Lease,
    *,
    lease_s: float,
    child_started: bool = False,
    step: int | None = None,
    heartbeat_s: float | None = None,
) -> SearchStop | None:
    """Extend the lease by `lease_s` from now, and say that user code was reached and where training stands.

    Gives what the search has decided about the trial, for its holder to obey.

    Raises:
        LeaseLost: the lease has ended; `cancelled` when by command.
    """
    parameters = {
        "now": db.now,
        **held(lease),
        "lease_s": lease_s,
        "heartbeat_s": heartbeat_of(lease_s, heartbeat_s),
        "child_started": child_started,
        "step": step,
    }
    rows = db.run(_RENEW, parameters)
    if not rows:
        raise refusal(lease, receipt(db, lease))
    return stop_of(rows[0])


def release_trial(
    db: Statements,
    lease: Lease,
    *,
    outcome: AttemptOutcome,
    reason: str,
    error: str | None = None,
    exit_code: int | None = None,
    last_step: int | None = None,
    child_started: bool = True,
    delay_jitter: float = 0.0,
) -> TrialState:
    """Give the trial back: evicted, crashed, environment or paused. Gives the state that the retry policy led to.

    Paused is how a holder obeys the search; the decision is done with then. Otherwise it waits for the next holder.

    Args:
        child_started: whether user code was reached; only then can the attempt count as one without progress.
        delay_jitter: fraction by which the delay after a crash is lengthened.

    Raises:
        LeaseLost: the lease has ended otherwise. A replay of the same ending is answered as the first time.
    """
    if outcome not in RELEASES:
        raise ValueError(f"a trial is not released as {outcome}")
    parameters = {
        "now": db.now,
        **held(lease),
        "outcome": outcome.value,
        "reason": storable(reason),
        "error": storable(error),
        "exit_code": exit_code,
        "last_step": last_step,
        "child_started": child_started,
        "delay_jitter": delay_jitter,
    }
    rows = db.run(_RELEASE, parameters)
    return TrialState(rows[0].state) if rows else replayed(db, lease, outcome)


def expire_leases(
    db: Statements, sweep_id: SweepId, *, lease_s: float, heartbeat_s: float, limit: int = 20
) -> list[Expired]:
    """Take overdue leases from their holders, at most `limit`, once the pulse says that they could have renewed.

    An expiry more than two lease times ahead is overdue too: the clock has been set back since it was written.
    """
    parameters = {
        "now": db.now,
        "sweep_id": sweep_id,
        "lease_s": lease_s,
        "heartbeat_s": heartbeat_s,
        "limit": limit,
        "reason": "the lease was not renewed in time",
    }
    return [
        Expired(
            lease=Lease(trial_id=TrialId(row.trial_id), fence=row.fence, lease_id=LeaseId(row.lease_id)),
            number=TrialNumber(row.number),
            worker_id=WorkerId(row.worker_id),
            state=TrialState(row.state),
        )
        for row in db.run(_EXPIRE, parameters)
    ]


def expire_dead_holder(db: Statements, lease: Lease, *, reason: str) -> TrialState | None:
    """End the lease of a holder that is proved dead (its lock could be taken), whatever the time; needs no pulse.

    None when the lease had already ended otherwise; a replay is answered as the first time.
    """
    rows = db.run(_EXPIRE_DEAD, {"now": db.now, **held(lease), "reason": storable(reason)})
    if rows:
        return TrialState(rows[0].state)
    ended = receipt(db, lease)
    return ended.led_to if ended is not None and ended.outcome is AttemptOutcome.LOST else None


def running_holders(db: Statements, sweep_id: SweepId, *, boot_id: str) -> list[Holder]:
    """Who holds trials on the machine with this kernel boot id, so that a process there can look for its locks."""
    return [
        Holder(
            lease=Lease(trial_id=TrialId(row.trial_id), fence=row.fence, lease_id=LeaseId(row.lease_id)),
            number=TrialNumber(row.number),
            worker_id=WorkerId(row.worker_id),
            host=row.host,
            boot_id=row.boot_id,
            lock_path=row.lock_path,
            lock_inode=row.lock_inode,
        )
        for row in db.run(_HOLDERS, {"sweep_id": sweep_id, "boot_id": boot_id})
    ]
