"""The statement by which a worker is given a trial, and the grant that it answers with."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from sweeper.ids import ConfigHash, LeaseId, SweepId, TrialId, TrialNumber
from sweeper.ledger.guards import EXTENDED, NOW
from sweeper.ledger.pulse import TOUCHED
from sweeper.ledger.rows import STOP, head_columns, head_of, stop_of
from sweeper.ledger.sql import statement
from sweeper.ledger.superseding import NOT_DECIDED
from sweeper.model.trial import Grant, Lease

_OPEN: Final = """
(SELECT true FROM sweeper.sweeps s, sweeper.ledger l
 WHERE s.sweep_id = :sweep_id AND s.state <> 'cancelled' AND l.min_code <= :code
   AND NOT EXISTS (SELECT FROM sweeper.attempts a WHERE a.lease_id = :lease_id))"""

_ELSEWHERE: Final = f"""
(SELECT true FROM sweeper.workers w
 WHERE w.sweep_id = :sweep_id AND w.host <> :host AND w.retired_at IS NULL
   AND w.seen_at > {NOW} - make_interval(secs => :lease_s)
   AND NOT EXISTS (SELECT FROM sweeper.trials u
                   WHERE u.sweep_id = :sweep_id AND u.state = 'running' AND u.worker_id = w.worker_id) LIMIT 1)"""

# Scalar subqueries, which the planner leaves alone; an EXISTS it may turn from a walk along the index into a sort.
_ELIGIBLE: Final = f"""
t.sweep_id = :sweep_id AND t.state = 'pending' AND {_OPEN}
AND (t.available_at IS NULL OR t.available_at <= {NOW})
AND (SELECT true FROM sweeper.requests r WHERE r.trial_id = t.trial_id LIMIT 1)
AND (t.crash_host IS DISTINCT FROM :host OR t.crashed_at <= {NOW} - make_interval(secs => :lease_s)
     OR {_ELSEWHERE} IS NULL)"""


def _first(condition: str, order: str) -> str:
    """The wrapping keeps the locking clause out of the UNION's sight, where SQL does not allow it."""
    return f"""SELECT b.trial_id, b.fence, b.lineage FROM (
            SELECT t.trial_id, t.fence, t.lineage FROM sweeper.trials t WHERE {_ELIGIBLE} AND {condition}
            ORDER BY {order} LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
        ) b"""


_GRANT: Final = f"""
t.trial_id, t.fence, t.sweep_id, t.number, t.config_hash, t.lineage, t.head_id, t.attempts, t.crashes, {STOP}"""


def _lease(*branches: str) -> sa.TextClause:
    """Lock the chosen trial, grant it, open its attempt; branches are tried in order until one gives a row.

    Locking follows a row to its newest version, while everything else is read as of the statement's beginning. A trial
    that was leased and given back, or whose history was cut, in that moment is left for the next claim: its reports
    and its config could not be seen.
    """
    return statement(f"""
WITH chosen AS MATERIALIZED (
    SELECT c.trial_id, c.fence, c.lineage FROM (
        {" UNION ALL ".join(branches)}
    ) c LIMIT 1
), granted AS (
    UPDATE sweeper.trials t
    SET state = 'running', fence = greatest(t.fence, s.seen_fence) + 1, lease_id = :lease_id, worker_id = :worker_id,
        {EXTENDED}, child_started = false, saved_seq = 0, attempts = t.attempts + 1, step = coalesce(t.head_step, 0),
        available_at = NULL
    FROM chosen c JOIN sweeper.trials u ON u.trial_id = c.trial_id AND u.fence = c.fence AND u.lineage = c.lineage
    JOIN sweeper.sweeps s ON s.sweep_id = u.sweep_id
    WHERE t.trial_id = c.trial_id AND t.state = 'pending'
    RETURNING {_GRANT}, t.step
), opened AS (
    INSERT INTO sweeper.attempts
        (lease_id, trial_id, fence, lineage, worker_id, host, pool, threads, started_at, first_step)
    SELECT :lease_id, g.trial_id, g.fence, g.lineage, :worker_id, :host, :pool, :threads, {NOW}, g.step FROM granted g
), superseded AS (
    DELETE FROM sweeper.reports r USING granted g
    WHERE r.trial_id = g.trial_id AND (g.head_id IS NULL OR r.at_step > g.step) AND {NOT_DECIDED}
), seen AS (
    UPDATE sweeper.workers w SET seen_at = {NOW}
    WHERE w.worker_id = :worker_id
      AND {NOW} - w.seen_at NOT BETWEEN interval '0' AND make_interval(secs => least(5, :heartbeat_s / 2))
), {TOUCHED}, mine AS (
    SELECT {_GRANT} FROM granted t
    UNION ALL
    SELECT {_GRANT} FROM sweeper.trials t WHERE t.state = 'running' AND t.lease_id = :lease_id
)
SELECT m.trial_id, m.fence, m.sweep_id, m.number, m.config_hash, m.lineage, m.attempts, m.crashes,
       m.stop_kind, m.stop_step, m.stop_reason, c.config_text, c.overrides, c.params, s.seen_fence,
       {head_columns("m")}, :lease_id AS lease_id,
       (SELECT a.threads FROM sweeper.attempts a
        WHERE a.trial_id = m.trial_id AND a.lineage = m.lineage AND a.fence < m.fence
        ORDER BY a.fence LIMIT 1) AS threads
FROM mine m
JOIN sweeper.configs c ON c.trial_id = m.trial_id AND c.lineage = m.lineage
JOIN sweeper.sweeps s ON s.sweep_id = m.sweep_id
LEFT JOIN sweeper.checkpoints h ON h.checkpoint_id = m.head_id
""")


LEASE_ANY: Final = _lease(_first("true", "t.priority DESC, t.number"))
"""The best trial there is."""

LEASE_BEYOND: Final = _lease(
    _first("t.priority > 0", "t.priority DESC, t.number"),
    _first("t.priority = 0 AND t.number >= :number_floor", "t.number"),
)
"""The same, but starting past the index entries of trials below the floor: while an old snapshot keeps their dead
versions, walking over them makes claims four times slower within seconds. Finds nothing below the floor."""


def _looked_at(condition: str) -> str:
    return f"""(
        SELECT true FROM sweeper.trials t
        WHERE t.sweep_id = :sweep_id AND t.state = 'pending' AND (t.available_at IS NULL OR t.available_at <= {NOW})
          AND {condition}
        ORDER BY t.priority DESC, t.number LIMIT 1)"""


ANYTHING_TO_LEASE: Final = statement(f"""
SELECT coalesce(
    {_looked_at("t.priority > 0")},
    {_looked_at("t.priority = 0 AND t.number >= :number_floor")},
    {_looked_at("true")},
    (SELECT true FROM sweeper.trials t WHERE t.state = 'running' AND t.lease_id = :lease_id),
    false) AS found
""")
"""Whether a claim could find anything, be it what this lease id was granted already: a tenth of a claim's work."""


def grant_of(row: sa.Row[Any]) -> Grant:
    """Read a row of either."""
    return Grant(
        lease=Lease(trial_id=TrialId(row.trial_id), fence=row.fence, lease_id=LeaseId(row.lease_id)),
        sweep_id=SweepId(row.sweep_id),
        number=TrialNumber(row.number),
        config_hash=ConfigHash(row.config_hash),
        lineage=row.lineage,
        config_text=row.config_text,
        overrides=tuple(row.overrides),
        head=head_of(row),
        attempt=row.attempts,
        crashes=row.crashes,
        threads=row.threads,
        look_for_evidence=row.fence > 1,
        seen_fence=row.seen_fence,
        params=row.params,
        stop=stop_of(row),
    )
