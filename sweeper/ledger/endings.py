"""FAIR in SQL: what an attempt that did not finish its trial does to it.

The same rule as `sweeper.model.retry.after_attempt`, as one SET list that every ending statement shares; a property
test compares the two on a real server. The limits are those of the sweep's row, the counters those of the locked trial
row, so nothing is decided on a snapshot that may be old.
"""

from __future__ import annotations

from typing import Final

from sweeper.ledger.guards import NOW

UNLEASED: Final = "lease_id = NULL, worker_id = NULL, lease_expires_at = NULL"

NO_STOP: Final = "stop_kind = NULL, stop_step = NULL, stop_reason = NULL"
"""What the search had decided is done, or has no object any more."""

_MAX_DOUBLINGS: Final = 60


def ended(*, outcome: str, child_started: str, jitter: str = "0") -> str:
    """Give the SET list for `UPDATE sweeper.trials t … FROM sweeper.sweeps s`.

    Args:
        outcome: SQL for the attempt's outcome: paused, evicted, crashed, lost or environment.
        child_started: SQL for whether user code was reached.
        jitter: SQL for the fraction by which a delay after a crash is lengthened.
    """
    crashed = f"({outcome} = 'crashed')"
    crashes = f"(t.crashes + {crashed}::int)"
    no_progress = f"(CASE WHEN t.saved_seq > 0 THEN 0 ELSE t.no_progress + ({child_started})::int END)"
    paused = f"({outcome} = 'paused')"
    out_of_crashes = f"({crashed} AND {crashes} >= s.max_crashes)"
    stuck = f"({no_progress} >= s.max_no_progress)"
    failed = f"(NOT {paused} AND ({out_of_crashes} OR {stuck}))"
    doublings = f"least({crashes} - 1, {_MAX_DOUBLINGS})"
    delay_s = f"least(s.backoff_s * 2::float8 ^ {doublings}, s.backoff_max_s) * (1 + {jitter})"
    host = "(SELECT a.host FROM sweeper.attempts a WHERE a.lease_id = t.lease_id)"
    return f"""
    state = CASE WHEN {paused} THEN 'paused' WHEN {failed} THEN 'failed' ELSE 'pending' END,
    crashes = {crashes},
    no_progress = {no_progress},
    available_at = CASE WHEN {crashed} AND NOT {failed} THEN {NOW} + make_interval(secs => {delay_s}) END,
    crash_host = CASE WHEN {crashed} THEN {host} ELSE t.crash_host END,
    crashed_at = CASE WHEN {crashed} THEN {NOW} ELSE t.crashed_at END,
    reason = CASE WHEN NOT {failed} THEN NULL
                  WHEN {out_of_crashes} THEN 'crashed ' || {crashes} || ' times'
                  ELSE {no_progress} || ' attempts in a row without a new checkpoint' END,
    finished_at = CASE WHEN {failed} THEN {NOW} END,
    version = t.version + ({failed} OR {paused})::int,
    stop_kind = CASE WHEN NOT ({failed} OR {paused}) THEN t.stop_kind END,
    stop_step = CASE WHEN NOT ({failed} OR {paused}) THEN t.stop_step END,
    stop_reason = CASE WHEN NOT ({failed} OR {paused}) THEN t.stop_reason END,
    {UNLEASED}"""


def closed(*, ending: str, outcome: str, last_step: str, extra: str = "") -> str:
    """Give the CTE that closes the attempts of the trials in CTE `ending` (lease_id, state, step of each).

    A clock that was set back makes no attempt end before it began.

    Args:
        ending: name of the CTE.
        outcome: SQL for the attempts' outcome.
        last_step: SQL for the last step known to the worker, or NULL.
        extra: further assignments, each after a comma.
    """
    return f"""closed AS (
    UPDATE sweeper.attempts a
    SET ended_at = greatest(a.started_at, {NOW}), outcome = {outcome}, led_to = e.state, reason = :reason,
        last_step = coalesce({last_step}, e.step){extra}
    FROM {ending} e
    WHERE a.lease_id = e.lease_id AND a.ended_at IS NULL
)"""
