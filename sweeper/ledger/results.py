"""Reports, results, and outcome objects: what a trial's values are (ONCE, TRUTH)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from sweeper.errors import LedgerUnavailable
from sweeper.ids import ConfigHash, LeaseId, SweepId, TrialId, TrialNumber
from sweeper.ledger.endings import NO_STOP, UNLEASED, closed
from sweeper.ledger.guards import EXTENDED, HELD, NOW, held, receipt, refusal, replayed
from sweeper.ledger.pulse import TOUCHED, heartbeat_of
from sweeper.ledger.reads import reports_of
from sweeper.ledger.rows import STOP, stop_of
from sweeper.ledger.sql import statement
from sweeper.ledger.statements import Statements
from sweeper.ledger.storable import storable
from sweeper.ledger.superseding import BEYOND_STOP
from sweeper.model.states import AttemptOutcome, ObjectiveFault, TrialState
from sweeper.model.tagged import to_tagged
from sweeper.model.trial import Json, Lease, Report, SearchStop

RESULTS: Final = frozenset(
    {
        (TrialState.COMPLETED, AttemptOutcome.COMPLETED),
        (TrialState.PRUNED, AttemptOutcome.PRUNED),
        (TrialState.FAILED, AttemptOutcome.INVALID),
        (TrialState.FAILED, AttemptOutcome.CRASHED),
    }
)
"""The final states that a holder may commit, and how its attempt then ended."""

MAX_REPORTS: Final = 1000
"""Reports per statement; `record_reports` writes more in several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeGap:
    """A final trial whose outcome object is not in the store: all that `Outcome` and its prefix are built from.

    `fence` and `lease_id` are those of the trial's last attempt, under whose prefix the object belongs; `version` tells
    this end of the trial from a later one.
    """

    trial_id: TrialId
    sweep_id: SweepId
    config_hash: ConfigHash
    number: TrialNumber
    lineage: int
    version: int
    fence: int
    lease_id: LeaseId
    config_text: str
    state: TrialState
    reason: str
    value: Json
    step: int
    params: Mapping[str, Json]
    reports: tuple[Report, ...]


def _recorded(holder: str, condition: str = "true") -> str:
    """Give the CTE that writes the reports of the trial in CTE `holder` (trial_id, fence)."""
    return f"""recorded AS (
    INSERT INTO sweeper.reports AS old (trial_id, step, at_step, value, metrics, fence, reported_at)
    SELECT h.trial_id, r.step, r.at_step, r.value, CAST(r.metrics AS json), h.fence, {NOW}
    FROM {holder} h, unnest(:steps, :at_steps, :values, :metrics) AS r (step, at_step, value, metrics)
    WHERE {condition}
    ON CONFLICT (trial_id, step) DO UPDATE
    SET at_step = excluded.at_step, value = excluded.value, metrics = excluded.metrics, fence = excluded.fence,
        reported_at = excluded.reported_at
    WHERE old.fence < excluded.fence
)"""


def _recording(*, returned: str, beside: str) -> sa.TextClause:
    return statement(f"""
WITH renewed AS (
    UPDATE sweeper.trials t SET {EXTENDED}, step = greatest(t.step, :step)
    WHERE {HELD}
    RETURNING t.trial_id, t.fence, {STOP}{returned}
), {_recorded("renewed")}{beside}
SELECT {STOP} FROM renewed t
""")


_RECORD_REPORTS = _recording(returned="", beside=f", {TOUCHED}")
# The pulse is left to the next that waits.
_RECORD_IN_PASSING = _recording(returned=", set_config('synchronous_commit', 'off', true)", beside="")

_RESULT: Final = f"""
state = :state, result = :result, reason = :reason, outcome_key = :outcome_key, outcome_hash = :outcome_hash,
outcome_stored = :outcome_stored, step = coalesce(:last_step, t.step), finished_at = {NOW},
crashes = t.crashes + (:outcome = 'crashed')::int, fault = :fault, version = t.version + 1, {UNLEASED}"""

_CLOSED: Final = closed(
    ending="ended",
    outcome=":outcome",
    last_step=":last_step",
    extra=", error = :error, exit_code = :exit_code, adopted_from = :adopted_from",
)

# A scalar subquery, which stays one lookup a report; from an EXISTS an empty table's plan makes a merge with all rows.
_LACKED: Final = """
(SELECT true FROM sweeper.reports k WHERE k.trial_id = h.trial_id AND k.step = r.step AND k.fence >= h.fence) IS NULL"""


def _committing(beside: str) -> sa.TextClause:
    """A decision that met a trial at its end is done with: what the function returned is the result."""
    return statement(f"""
WITH ended AS (
    UPDATE sweeper.trials t SET {_RESULT}, {NO_STOP}
    WHERE {HELD}
    RETURNING :lease_id AS lease_id, t.trial_id, t.fence, t.state, t.step
), {beside}{_CLOSED}
SELECT true AS whole FROM ended
""")


_COMMIT_RESULT = _committing("")
_COMMIT_WITH_REPORTS = _committing(f"{_recorded('ended', _LACKED)}, ")

# Locking follows the row to its newest version, while reports are read as of the statement's beginning: those of a
# statement of this holder that was thought lost and committed just now could not be seen. Then once more.
_COMMIT_PRUNED = statement(f"""
WITH guarded AS MATERIALIZED (
    SELECT t.trial_id, t.xmin AS written FROM sweeper.trials t WHERE {HELD} FOR NO KEY UPDATE
), seen AS MATERIALIZED (
    SELECT g.trial_id, u.xmin = g.written AS whole
    FROM guarded g JOIN sweeper.trials u ON u.trial_id = g.trial_id
), ended AS (
    UPDATE sweeper.trials t SET {_RESULT}
    FROM seen n
    WHERE t.trial_id = n.trial_id AND n.whole
    RETURNING :lease_id AS lease_id, t.trial_id, t.state, t.step, t.stop_kind, t.stop_step
), superseded AS (
    DELETE FROM sweeper.reports r USING ended g
    WHERE r.trial_id = g.trial_id AND g.stop_kind = 'prune' AND {BEYOND_STOP}
), {_CLOSED}
SELECT n.whole FROM seen n
""")

MAX_ROUNDS: Final = 20
"""Writes of the same holder that a commit may find under way, before the ledger counts as overloaded."""

_OUTCOME_GAPS = statement("""
SELECT t.trial_id, t.sweep_id, t.config_hash, t.number, t.lineage, t.version, t.state, t.reason, t.result, t.step,
       c.config_text, c.params, a.fence, a.lease_id, a.reason AS attempt_reason
FROM sweeper.trials t
JOIN sweeper.configs c ON c.trial_id = t.trial_id AND c.lineage = t.lineage
CROSS JOIN LATERAL (
    SELECT b.fence, b.lease_id, b.reason FROM sweeper.attempts b
    WHERE b.trial_id = t.trial_id AND b.lineage = t.lineage
    ORDER BY b.fence DESC, b.started_at DESC LIMIT 1
) a
WHERE t.sweep_id = :sweep_id AND t.state IN ('completed', 'pruned', 'failed', 'cancelled') AND NOT t.outcome_stored
ORDER BY t.number LIMIT :limit
""")

_RECORD_OUTCOME_OBJECT = statement("""
UPDATE sweeper.trials t
SET outcome_key = :outcome_key, outcome_hash = :outcome_hash, outcome_stored = true
WHERE t.trial_id = :trial_id AND t.version = :version AND NOT t.outcome_stored
  AND t.state IN ('completed', 'pruned', 'failed', 'cancelled')
""")


def record_reports(
    db: Statements,
    lease: Lease,
    reports: Sequence[Report],
    *,
    lease_s: float,
    heartbeat_s: float | None = None,
    durable: bool = True,
) -> SearchStop | None:
    """Write intermediate values, and renew the lease. A fence's first value of a step stays; a higher one replaces it.

    Gives what the search has decided about the trial, for its holder to obey.

    Args:
        durable: whether to wait for the disk. A failing server may forget the last second of what did not wait, so the
            holder writes it once more, within half a heartbeat, for the pulse as well; whatever is decided on it
            meanwhile waits for the disk, with all before it.

    Raises:
        LeaseLost: the lease has ended; the reports (of the current thousand, if there are more) are not in the ledger.
    """
    kept = _first_of_each_step(reports)
    stop = None
    for start in range(0, max(len(kept), 1), MAX_REPORTS):
        batch = kept[start : start + MAX_REPORTS]
        parameters = {
            "now": db.now,
            **held(lease),
            "lease_s": lease_s,
            "heartbeat_s": heartbeat_of(lease_s, heartbeat_s),
            "step": max((report.at_step for report in batch), default=0),
            **_columns(batch),
        }
        rows = db.run(_RECORD_REPORTS if durable else _RECORD_IN_PASSING, parameters)
        if not rows:
            raise refusal(lease, receipt(db, lease))
        stop = stop_of(rows[0])
    return stop


def commit_result(
    db: Statements,
    lease: Lease,
    *,
    state: TrialState,
    outcome: AttemptOutcome,
    result: Json,
    reason: str,
    error: str | None = None,
    outcome_key: str | None,
    outcome_hash: str | None,
    outcome_stored: bool,
    exit_code: int | None = None,
    last_step: int | None = None,
    adopted_from: str | None = None,
    fault: ObjectiveFault | None = None,
    reports: Sequence[Report] = (),
) -> None:
    """End the trial: completed, pruned, or failed (invalid, crashed), with its one result.

    The reports of a trial that the search pruned end at the one that decided it.

    Args:
        result: tagged JSON; kept for completed and pruned trials.
        outcome_key: where the outcome object lies, with its hash; both None when none was written.
        outcome_stored: whether it is in the store; otherwise whoever reconciles writes it (`outcome_gaps`).
        adopted_from: key of the earlier outcome that this holder found in the store and makes its own.
        fault: why what the function returned is no objective; only of failed trials.
        reports: those of this attempt that did not wait for the disk, or were not written yet: the result waits, and
            with it all before it, so only those that the server lacks are written. None for a pruned trial, whose
            reports must be in the ledger for good before its end is.

    Raises:
        LeaseLost: the lease has ended otherwise. A replay of the same ending succeeds.
    """
    if (state, outcome) not in RESULTS:
        raise ValueError(f"a trial cannot end as {state} by an attempt that ended as {outcome}")
    if reports and state is TrialState.PRUNED:
        raise ValueError("a pruned trial's reports are written before its end")
    parameters = {
        "now": db.now,
        **held(lease),
        "state": state.value,
        "outcome": outcome.value,
        "result": result if state is not TrialState.FAILED else None,
        "reason": storable(reason),
        "error": storable(error),
        "outcome_key": outcome_key,
        "outcome_hash": outcome_hash,
        "outcome_stored": outcome_stored,
        "exit_code": exit_code,
        "last_step": last_step,
        "adopted_from": adopted_from,
        "fault": None if fault is None else fault.value,
        **(_columns(_first_of_each_step(reports)) if reports else {}),
    }
    written = _COMMIT_WITH_REPORTS if reports else _COMMIT_RESULT
    commit = _COMMIT_PRUNED if state is TrialState.PRUNED else written
    for _ in range(MAX_ROUNDS):
        rows = db.run(commit, parameters)
        if not rows:
            replayed(db, lease, outcome)
            return
        if rows[0].whole:
            return
    raise LedgerUnavailable("the trial's row changes faster than its result can be written")


def outcome_gaps(db: Statements, sweep_id: SweepId, *, limit: int) -> list[OutcomeGap]:
    """Final trials that ran and whose outcome object is not stored, lowest numbers first."""
    return [
        OutcomeGap(
            trial_id=TrialId(row.trial_id),
            sweep_id=SweepId(row.sweep_id),
            config_hash=ConfigHash(row.config_hash),
            number=TrialNumber(row.number),
            lineage=row.lineage,
            version=row.version,
            fence=row.fence,
            lease_id=LeaseId(row.lease_id),
            config_text=row.config_text,
            state=TrialState(row.state),
            reason=row.reason or row.attempt_reason or row.state,
            value=row.result,
            step=row.step,
            params=row.params,
            reports=tuple(reports_of(db, TrialId(row.trial_id))),
        )
        for row in db.run(_OUTCOME_GAPS, {"sweep_id": sweep_id, "limit": limit})
    ]


def record_outcome_object(db: Statements, gap: OutcomeGap, *, key: str, hash_: str) -> None:
    """Name the outcome object written after the row. Changes nothing if one was stored, or the trial has gone on since
    the gap was seen: the object tells of another end then."""
    parameters = {"trial_id": gap.trial_id, "version": gap.version, "outcome_key": key, "outcome_hash": hash_}
    db.run(_RECORD_OUTCOME_OBJECT, parameters)


def _first_of_each_step(reports: Sequence[Report]) -> list[Report]:
    first: dict[int, Report] = {}
    for report in reports:
        first.setdefault(report.step, report)
    return list(first.values())


def _columns(reports: Sequence[Report]) -> dict[str, list[Any]]:
    return {
        "steps": [report.step for report in reports],
        "at_steps": [report.at_step for report in reports],
        "values": [float(report.value) for report in reports],
        "metrics": [json.dumps(to_tagged(report.metrics)) for report in reports],
    }
