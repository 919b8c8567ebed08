"""Sweeps: one row per named search, its settings, and the fenced lease of its coordinator."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from sweeper.errors import UserError
from sweeper.ids import CoordinatorId, LedgerId, SweepId
from sweeper.ledger.guards import NOW
from sweeper.ledger.matching import as_stored, check_name, check_same
from sweeper.ledger.sql import statement
from sweeper.ledger.statements import Statements
from sweeper.model.retry import RetryPolicy
from sweeper.model.states import SweepState, TrialState
from sweeper.model.trial import Sweep, SweepSpec

_SWEEP: Final = """
s.sweep_id, s.name, s.state, s.task, s.source_digest, s.sweep_dir, s.store_url, s.seed, s.search, s.identity,
s.max_crashes, s.max_no_progress, s.backoff_s, s.backoff_max_s, s.checkpoint_keep, s.created_at"""

_LEDGER_ID = statement("SELECT l.ledger_id FROM sweeper.ledger l")

_INSERT = statement(f"""
WITH opened AS (
    INSERT INTO sweeper.sweeps
        (sweep_id, name, task, source_digest, sweep_dir, store_url, seed, search, identity, max_crashes,
         max_no_progress, backoff_s, backoff_max_s, checkpoint_keep, default_named, created_at)
    VALUES (:sweep_id, :name, :task, :source_digest, :sweep_dir, :store_url, :seed, :search, :identity, :max_crashes,
            :max_no_progress, :backoff_s, :backoff_max_s, :checkpoint_keep, :default_named, {NOW})
    ON CONFLICT (name) DO NOTHING
    RETURNING sweep_id
)
INSERT INTO sweeper.coordinators (sweep_id) SELECT o.sweep_id FROM opened o
RETURNING sweep_id
""")

_REFRESH = statement("""
UPDATE sweeper.sweeps s
SET source_digest = :source_digest, max_crashes = :max_crashes, max_no_progress = :max_no_progress,
    backoff_s = :backoff_s, backoff_max_s = :backoff_max_s, checkpoint_keep = :checkpoint_keep, identity = :identity,
    search = :search
WHERE s.sweep_id = :sweep_id AND
    (s.source_digest, s.max_crashes, s.max_no_progress, s.backoff_s, s.backoff_max_s, s.checkpoint_keep,
     s.identity::text, s.search::text)
    IS DISTINCT FROM
    (:source_digest, :max_crashes, :max_no_progress, :backoff_s, :backoff_max_s, :checkpoint_keep, (:identity)::text,
     (:search)::text)
""")

_FIND = statement(f"SELECT {_SWEEP} FROM sweeper.sweeps s WHERE s.name = :name")

_LIST = statement(f"""
SELECT {_SWEEP}, c.state AS trial_state, c.trials, c.last_at
FROM sweeper.sweeps s
LEFT JOIN (
    SELECT t.sweep_id, t.state, count(*) AS trials, max(greatest(t.finished_at, a.last_at)) AS last_at
    FROM sweeper.trials t
    LEFT JOIN (
        SELECT b.trial_id, max(greatest(b.started_at, b.ended_at)) AS last_at FROM sweeper.attempts b GROUP BY 1
    ) a ON a.trial_id = t.trial_id
    GROUP BY 1, 2
) c ON c.sweep_id = s.sweep_id
ORDER BY s.created_at, s.name
""")

_SETTLE = statement("""
WITH settled AS (
    UPDATE sweeper.sweeps s
    SET state = n.state
    FROM (
        SELECT CASE WHEN count(t.trial_id) > count(t.finished_at) THEN 'active'
                    WHEN w.search IS NOT NULL THEN w.state
                    WHEN count(t.trial_id) > 0 THEN 'finished' ELSE 'active' END AS state
        FROM sweeper.sweeps w LEFT JOIN sweeper.trials t ON t.sweep_id = w.sweep_id
        WHERE w.sweep_id = :sweep_id
        GROUP BY w.sweep_id
    ) n
    WHERE s.sweep_id = :sweep_id AND s.state NOT IN ('cancelled', n.state)
    RETURNING s.state
)
SELECT d.state, 1 AS rank FROM settled d
UNION ALL SELECT s.state, 2 FROM sweeper.sweeps s WHERE s.sweep_id = :sweep_id
ORDER BY rank LIMIT 1
""")

_ACQUIRE = statement(f"""
UPDATE sweeper.coordinators c
SET coordinator_id = :coordinator_id, lease_expires_at = {NOW} + make_interval(secs => :lease_s),
    fence = c.fence + (c.coordinator_id IS DISTINCT FROM :coordinator_id)::int
WHERE c.sweep_id = :sweep_id
  AND (c.coordinator_id IS NULL OR c.coordinator_id = :coordinator_id
       OR c.lease_expires_at NOT BETWEEN {NOW} AND {NOW} + make_interval(secs => 2 * :lease_s))
RETURNING c.fence
""")

_RENEW = statement(f"""
UPDATE sweeper.coordinators c SET lease_expires_at = {NOW} + make_interval(secs => :lease_s)
WHERE c.sweep_id = :sweep_id AND c.coordinator_id = :coordinator_id AND c.fence = :fence
RETURNING c.fence
""")

_RELEASE = statement("""
UPDATE sweeper.coordinators c SET coordinator_id = NULL, lease_expires_at = NULL
WHERE c.sweep_id = :sweep_id AND c.coordinator_id = :coordinator_id AND c.fence = :fence
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSummary:
    """A sweep and how its trials stand; states without trials are absent from `counts`."""

    sweep: Sweep
    counts: Mapping[TrialState, int]
    last_activity_at: datetime | None
    """When an attempt last began or ended, or a trial became final; None before the first."""


def ledger_id(db: Statements) -> LedgerId:
    """Who this ledger is; drawn when its tables were made."""
    return LedgerId(db.run(_LEDGER_ID)[0].ledger_id)


def open_sweep(db: Statements, spec: SweepSpec, *, new_id: SweepId) -> Sweep:
    """Write the sweep's row, or match the one of that name: the same command again *is* resuming it.

    A matched sweep keeps its directory; its retry limits, retention and source digest become those given. So does its
    search, which may differ in what `sweeper.model.space_changes` accepts; `search_notices` says what is worth telling.

    Raises:
        UserError: the name cannot be one; the row says another task, seed, store, identity rule or search (each
            difference is named); or the sweep was cancelled.
    """
    check_name(spec.name)
    if not db.run(_INSERT, {"now": db.now, "sweep_id": new_id, **_columns(spec)}):
        known = _find(db, spec.name)
        check_same(spec, known)
        if known.state is SweepState.CANCELLED:
            raise UserError(
                f"sweep {spec.name!r} was cancelled",
                remedy=f"`sweeper retry {spec.name}` takes its trials up again; or give this one another name",
            )
        db.run(_REFRESH, {"sweep_id": known.sweep_id, **_columns(spec)})
    return _find(db, spec.name)


def find_sweep(db: Statements, name: str) -> Sweep | None:
    """The sweep of that name, if there is one."""
    rows = db.run(_FIND, {"name": name})
    return _sweep(rows[0]) if rows else None


def list_sweeps(db: Statements) -> list[SweepSummary]:
    """All sweeps, oldest first, with their trials counted by state."""
    summaries: dict[str, SweepSummary] = {}
    for row in db.run(_LIST):
        before = summaries.get(row.sweep_id)
        counts = dict(before.counts) if before else {}
        if row.trial_state is not None:
            counts[TrialState(row.trial_state)] = row.trials
        moments = [at for at in (before.last_activity_at if before else None, row.last_at) if at is not None]
        summaries[row.sweep_id] = SweepSummary(
            sweep=_sweep(row), counts=counts, last_activity_at=max(moments, default=None)
        )
    return list(summaries.values())


def require_sweep(db: Statements, name: str) -> Sweep:
    """Give the sweep of this name.

    Raises:
        UserError: there is none; the message names those of similar name.
    """
    sweep = find_sweep(db, name)
    if sweep is not None:
        return sweep
    known = [summary.sweep.name for summary in list_sweeps(db)]
    close = difflib.get_close_matches(name, known, n=3) or known[-5:]
    more = len(known) - len(close)
    others = f" and {more} more, which `sweeper status` lists" if more else ""
    remedy = f"known are: {', '.join(close)}{others}" if close else "this ledger holds no sweeps"
    raise UserError(f"there is no sweep named {name!r}", remedy=remedy)


def settle_sweep(db: Statements, sweep_id: SweepId) -> SweepState:
    """Bring the sweep's state in line: finished when it has trials and all are final, else active; cancelled stays.

    A search may propose more when all its trials are final: only `finish_search` ends it, an open trial takes it up.
    """
    return SweepState(db.run(_SETTLE, {"sweep_id": sweep_id})[0].state)


def acquire_coordinator(
    db: Statements, sweep_id: SweepId, coordinator_id: CoordinatorId, *, lease_s: float
) -> int | None:
    """Become the sweep's coordinator and get its fence; None while another one holds the lease."""
    parameters = {"now": db.now, "sweep_id": sweep_id, "coordinator_id": coordinator_id, "lease_s": lease_s}
    rows = db.run(_ACQUIRE, parameters)
    return rows[0].fence if rows else None


def renew_coordinator(
    db: Statements, sweep_id: SweepId, coordinator_id: CoordinatorId, fence: int, *, lease_s: float
) -> bool:
    """Extend the coordinator's lease; False when another has taken over."""
    parameters = {
        "now": db.now,
        "sweep_id": sweep_id,
        "coordinator_id": coordinator_id,
        "fence": fence,
        "lease_s": lease_s,
    }
    return bool(db.run(_RENEW, parameters))


def release_coordinator(db: Statements, sweep_id: SweepId, coordinator_id: CoordinatorId, fence: int) -> None:
    """Give the coordinator's lease up, if it is still ours."""
    db.run(_RELEASE, {"sweep_id": sweep_id, "coordinator_id": coordinator_id, "fence": fence})


def _find(db: Statements, name: str) -> Sweep:
    sweep = find_sweep(db, name)
    if sweep is None:
        raise UserError(f"sweep {name!r} was deleted just now", remedy="run the command again")
    return sweep


def _columns(spec: SweepSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "task": spec.task,
        "source_digest": spec.source_digest,
        "sweep_dir": spec.sweep_dir,
        "store_url": spec.store_url,
        "seed": spec.seed,
        "search": None if spec.search is None else as_stored(spec.search),
        "identity": as_stored(spec.identity),
        "max_crashes": spec.retry.max_crashes,
        "max_no_progress": spec.retry.max_no_progress,
        "backoff_s": spec.retry.backoff_s,
        "backoff_max_s": spec.retry.backoff_max_s,
        "checkpoint_keep": spec.checkpoint_keep,
        "default_named": spec.default_named,
    }


def _sweep(row: sa.Row[Any]) -> Sweep:
    return Sweep(
        sweep_id=SweepId(row.sweep_id),
        name=row.name,
        state=SweepState(row.state),
        task=row.task,
        source_digest=row.source_digest,
        sweep_dir=row.sweep_dir,
        store_url=row.store_url,
        seed=row.seed,
        search=row.search,
        identity=row.identity,
        retry=RetryPolicy(
            max_crashes=row.max_crashes,
            max_no_progress=row.max_no_progress,
            backoff_s=row.backoff_s,
            backoff_max_s=row.backoff_max_s,
        ),
        checkpoint_keep=row.checkpoint_keep,
        created_at=row.created_at,
    )
