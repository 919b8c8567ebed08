"""What people order by hand: run a trial again, or no more of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from sweeper.errors import LedgerUnavailable
from sweeper.ids import CoordinatorId, SweepId
from sweeper.ledger.choices import LEADING, coordinator_lost, leader
from sweeper.ledger.endings import NO_STOP, UNLEASED, closed
from sweeper.ledger.guards import NOW
from sweeper.ledger.pins import freed
from sweeper.ledger.reads import trials_with_ids
from sweeper.ledger.sql import statement
from sweeper.ledger.statements import Statements
from sweeper.ledger.storable import storable
from sweeper.model.trial import Trial

_NAMED: Final = """
t.trial_id IN (SELECT n.trial_id FROM sweeper.numbers n WHERE n.sweep_id = :sweep_id AND n.number = ANY (:numbers))"""

# Rows are locked in the order of their ids, so that two commands cannot lock each other out. Locking follows a row to
# its newest version, while everything else is read as of the statement's beginning: a trial that became final anew in
# that moment has a config, checkpoints and reports that cannot be seen, and is left for the next round.
_RETRY = statement(f"""
WITH target AS MATERIALIZED (
    SELECT t.trial_id, t.version FROM sweeper.trials t
    WHERE t.sweep_id = :sweep_id AND (
        t.state IN ('failed', 'cancelled') AND (:numbers IS NULL OR {_NAMED})
        OR t.state IN ('completed', 'pruned') AND :from_zero AND {_NAMED})
    ORDER BY t.trial_id
    FOR NO KEY UPDATE
), seen AS MATERIALIZED (
    SELECT g.trial_id, u.version = g.version AS whole
    FROM target g JOIN sweeper.trials u ON u.trial_id = g.trial_id
), retried AS (
    UPDATE sweeper.trials t
    SET state = 'pending', available_at = NULL, crashes = 0, no_progress = 0, crash_host = NULL, crashed_at = NULL,
        result = NULL, reason = NULL, outcome_key = NULL, outcome_hash = NULL, outcome_stored = false,
        fault = NULL, finished_at = NULL, version = t.version + 1, {NO_STOP},
        lineage = t.lineage + (:from_zero)::int,
        lineage_fence = CASE WHEN :from_zero THEN t.fence ELSE t.lineage_fence END,
        head_id = CASE WHEN NOT :from_zero THEN t.head_id END,
        head_step = CASE WHEN NOT :from_zero THEN t.head_step END,
        step = CASE WHEN :from_zero THEN 0 ELSE coalesce(t.head_step, 0) END
    FROM seen g
    WHERE t.trial_id = g.trial_id AND g.whole
    RETURNING t.trial_id, t.lineage
), copied AS (
    INSERT INTO sweeper.configs (trial_id, lineage, config_text, overrides, params)
    SELECT r.trial_id, r.lineage, c.config_text, c.overrides, c.params
    FROM retried r JOIN sweeper.configs c ON c.trial_id = r.trial_id AND c.lineage = 0
    WHERE :from_zero
), voided AS (
    DELETE FROM sweeper.reports p USING retried r WHERE p.trial_id = r.trial_id AND :from_zero
), unmade AS (
    DELETE FROM sweeper.decisions d USING retried r WHERE d.trial_id = r.trial_id AND :from_zero
), retired AS (
    UPDATE sweeper.checkpoints c SET state = 'retired', retired_at = {NOW}
    FROM retried r
    WHERE c.trial_id = r.trial_id AND c.state = 'live' AND :from_zero
      AND NOT EXISTS (
          SELECT FROM sweeper.pins q WHERE q.checkpoint_id = c.checkpoint_id AND q.trial_id <> c.trial_id
      )
), unpinned AS (
    DELETE FROM sweeper.pins p USING retried r
    WHERE p.trial_id = r.trial_id AND :from_zero
    RETURNING p.checkpoint_id, p.trial_id
), {freed("unpinned")}, revived AS (
    UPDATE sweeper.sweeps s SET state = 'active', revision = s.revision + 1
    WHERE s.sweep_id = :sweep_id AND EXISTS (SELECT FROM retried)
), standing AS (
    INSERT INTO sweeper.askers (asker_id, sweep_id, standing, host, boot_id, lock_path, lock_inode, pid, seen_at)
    SELECT :sweep_id, :sweep_id, true, '', '', '', '', 0, {NOW} WHERE EXISTS (SELECT FROM retried)
    ON CONFLICT (asker_id) DO NOTHING
), asked AS (
    INSERT INTO sweeper.requests (trial_id, asker_id, sweep_id)
    SELECT r.trial_id, :sweep_id, :sweep_id FROM retried r
    ON CONFLICT (trial_id, asker_id) DO NOTHING
)
SELECT g.trial_id, g.whole FROM seen g
""")


# Likewise, a trial that was leased while this statement waited for its row has an attempt that it cannot see and close.
def _cancelled(among: str, condition: str) -> str:
    return f"""target AS MATERIALIZED (
    SELECT t.trial_id, t.lease_id FROM {among}
    WHERE t.sweep_id = :sweep_id AND t.state IN ('pending', 'running', 'paused') AND {condition}
    ORDER BY t.trial_id
    FOR NO KEY UPDATE OF t
), seen AS MATERIALIZED (
    SELECT g.trial_id, g.lease_id, g.lease_id IS NULL OR a.lease_id IS NOT NULL AS whole
    FROM target g LEFT JOIN sweeper.attempts a ON a.lease_id = g.lease_id
), cancelled AS (
    UPDATE sweeper.trials t
    SET state = 'cancelled', reason = :reason, available_at = NULL, finished_at = {NOW}, version = t.version + 1,
        {UNLEASED}, {NO_STOP}
    FROM seen g
    WHERE t.trial_id = g.trial_id AND g.whole
    RETURNING t.trial_id, g.lease_id, t.state, t.step
), {closed(ending="cancelled", outcome="'cancelled'", last_step="NULL")}"""


_OUTCOME: Final = "SELECT g.trial_id, g.whole FROM seen g"

_CANCELLED: Final = _cancelled("sweeper.trials t", f"(:numbers IS NULL OR {_NAMED})")

_CANCEL_TRIALS = statement(f"WITH {_CANCELLED} {_OUTCOME}")

_CANCEL_SWEEP = statement(f"""
WITH {_CANCELLED}, ended AS (
    UPDATE sweeper.sweeps s SET state = 'cancelled'
    WHERE s.sweep_id = :sweep_id AND (SELECT count(*) FROM cancelled) >= 0
)
{_OUTCOME}
""")

# A number that was given in the meantime may have a trial that cannot be seen; then once more.
_CANCEL_OPEN = statement(f"""
WITH {LEADING}, {_cancelled("led l, sweeper.trials t", "t.sweep_id = l.sweep_id AND t.finished_at IS NULL")}
SELECT g.trial_id, g.whole IS NOT FALSE AND l.next_number = c.next_number AS whole
FROM led l JOIN sweeper.coordinators c ON c.sweep_id = l.sweep_id LEFT JOIN seen g ON true
""")

MAX_ROUNDS: Final = 20
"""How often a command is repeated for trials that changed under it; one round is the rule."""


def retry_trials(db: Statements, sweep_id: SweepId, numbers: Sequence[int] | None, *, from_zero: bool) -> list[Trial]:
    """Make failed and cancelled trials pending again, with fresh counters; give those that changed.

    Without `from_zero` a trial keeps its head and goes on from there. With it the history is cut: the lineage rises,
    checkpoints, reports and what was decided on them are void, and *named* trials may also be completed or pruned ones.
    A trial that went on with other parameters (an exploit) begins again with those that its hash names. `numbers` may
    be aliases; None means every failed and cancelled trial.

    The sweep's revision rises: what a search had built on these ends is void.

    The trials are asked for by the sweep's *standing* asker, whose id is the sweep's and which never dies, so that
    any worker takes them. A cancelled or finished sweep becomes active again.
    """
    parameters = {"now": db.now, "sweep_id": sweep_id, "numbers": _list(numbers), "from_zero": from_zero}
    return _insist(db, _RETRY, parameters)


def cancel_trials(db: Statements, sweep_id: SweepId, numbers: Sequence[int] | None) -> list[Trial]:
    """Cancel trials that are pending, running or paused (all of them for None); give those that changed.

    A holder learns it at its next heartbeat: `LeaseLost` with `cancelled`.
    """
    return _cancel(db, _CANCEL_TRIALS, sweep_id, numbers)


def cancel_sweep(db: Statements, sweep_id: SweepId) -> list[Trial]:
    """Cancel the sweep: nothing of it is leased any more, and its unfinished trials (given back) are cancelled."""
    cancelled = _cancel(db, _CANCEL_SWEEP, sweep_id, None)
    late = _cancel(db, _CANCEL_TRIALS, sweep_id, None)  # proposed in that moment; from here on nothing is
    return [*cancelled, *late]


def cancel_open(db: Statements, sweep_id: SweepId, coordinator_id: CoordinatorId, fence: int, *, reason: str) -> int:
    """Cancel every trial that is not final, because the search has ended; give how many.

    Raises:
        CoordinatorLost: another coordinator leads; choose nothing more.
    """
    parameters = {"now": db.now, **leader(sweep_id, coordinator_id, fence), "reason": storable(reason)}
    changed: set[int] = set()
    for _ in range(MAX_ROUNDS):
        rows = db.run(_CANCEL_OPEN, parameters)
        if not rows:
            raise coordinator_lost(sweep_id, coordinator_id, fence)
        changed |= {row.trial_id for row in rows if row.trial_id is not None}
        if all(row.whole for row in rows):
            return len(changed)
    raise _overtaken()


def _cancel(db: Statements, cancel: sa.Executable, sweep_id: SweepId, numbers: Sequence[int] | None) -> list[Trial]:
    parameters = {"now": db.now, "sweep_id": sweep_id, "numbers": _list(numbers), "reason": "cancelled by command"}
    return _insist(db, cancel, parameters)


def _insist(db: Statements, command: sa.Executable, parameters: Mapping[str, Any]) -> list[Trial]:
    changed: set[int] = set()
    for _ in range(MAX_ROUNDS):
        rows = db.run(command, parameters)
        changed |= {row.trial_id for row in rows if row.whole}
        if all(row.whole for row in rows):
            return trials_with_ids(db, sorted(changed))
    raise _overtaken()


def _overtaken() -> LedgerUnavailable:
    return LedgerUnavailable("trials change state faster than a command can lock them")


def _list(numbers: Sequence[int] | None) -> list[int] | None:
    return None if numbers is None else list(numbers)
