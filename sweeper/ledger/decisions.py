"""Decisions: choices of the search about trials, each made once and kept as a row.

A decision that ends or pauses a trial sets the trial's stop in the same statement; its holder learns it with the next
heartbeat or report, or the next holder with its grant. Decisions of a sweep have one order, in which they were made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import sqlalchemy as sa

from sweeper.ids import CoordinatorId, SweepId, TrialId
from sweeper.ledger.bulk import many
from sweeper.ledger.choices import LEADING, attr_parameters, attrs_kept, coordinator_lost, leader
from sweeper.ledger.guards import NOW
from sweeper.ledger.numbers import read_reports
from sweeper.ledger.sql import statement
from sweeper.ledger.statements import Statements
from sweeper.model.search import Decision, DecisionKind
from sweeper.model.tagged import from_tagged
from sweeper.model.trial import Json, Report

Undecided = tuple[TrialId, int, int, Report]
"""Trial, its number, its lineage, and the report."""

BATCH: Final = 1000

# Reports of an earlier lineage that its heir kept are told by their fence. OFFSET keeps the planner from joining all
# reports there are with the few trials that matter.
_UNDECIDED: Final = """
SELECT t.trial_id, t.number, t.lineage, u.step, u.at_step, u.value, u.metrics
FROM sweeper.trials t CROSS JOIN LATERAL (
    SELECT r.step, r.at_step, r.value, r.metrics, r.reported_at FROM sweeper.reports r
    WHERE r.trial_id = t.trial_id AND r.fence > t.lineage_fence AND NOT EXISTS (
        SELECT FROM sweeper.decisions d
        WHERE d.trial_id = t.trial_id AND d.lineage = t.lineage AND d.kind = :kind AND d.step = r.step
    )
    OFFSET 0
) u
WHERE t.sweep_id = :sweep_id AND {condition}
ORDER BY u.reported_at, t.number, u.step LIMIT :limit
"""

_UNDECIDED_OPEN = statement(
    _UNDECIDED.format(condition="t.finished_at IS NULL AND t.state <> 'paused' AND t.stop_kind IS NULL AND t.fence > 0")
)
_UNDECIDED_OF = statement(_UNDECIDED.format(condition="t.trial_id = ANY (:trial_ids)"))

_REPORTS = statement("""
SELECT json_build_array(
    json_agg(r.trial_id), json_agg(r.step), json_agg(r.at_step), json_agg(r.value), json_agg(r.metrics)) AS reports
FROM sweeper.reports r WHERE r.trial_id = ANY (:trial_ids)
""")

_DECISIONS: Final = """
SELECT json_agg(d.trial_id) AS trial_ids, json_agg(t.number) AS numbers, json_agg(d.lineage) AS lineages,
       json_agg(d.kind) AS kinds, json_agg(d.step) AS steps, json_agg(d.action) AS actions,
       json_agg(d.value) AS decided_values, json_agg(d.facts) AS facts, json_agg(d.position) AS orders
FROM sweeper.decisions d JOIN sweeper.trials t ON t.trial_id = d.trial_id
"""

_ALL = statement(f"{_DECISIONS} WHERE d.sweep_id = :sweep_id AND d.position > :after AND d.kind = ANY (:kinds)")

_GIVEN: Final = """given AS (
    SELECT n.trial_id, n.lineage, n.kind, n.step, n.action, n.value, n.facts, n.nth
    FROM unnest(:trial_ids, :lineages, :kinds, :steps, :actions, :values, :facts) WITH ORDINALITY
         AS n (trial_id, lineage, kind, step, action, value, facts, nth)
)"""

_RECORD = statement(f"""
WITH {LEADING}, {_GIVEN}, target AS MATERIALIZED (
    SELECT t.trial_id, t.lineage, l.sweep_id FROM led l, sweeper.trials t
    WHERE t.sweep_id = l.sweep_id AND t.trial_id = ANY (:trial_ids)
    ORDER BY t.trial_id
    FOR NO KEY UPDATE OF t
), made AS (
    INSERT INTO sweeper.decisions (trial_id, lineage, kind, step, sweep_id, action, value, facts, decided_at)
    SELECT g.trial_id, g.lineage, g.kind, g.step, a.sweep_id, g.action, g.value, CAST(g.facts AS json), {NOW}
    FROM given g JOIN target a ON a.trial_id = g.trial_id AND a.lineage = g.lineage
    ORDER BY g.nth
    ON CONFLICT (trial_id, lineage, kind, step) DO NOTHING
    RETURNING trial_id, lineage, kind, step, action, position
), stopped AS (
    UPDATE sweeper.trials t
    SET stop_kind = m.action, stop_step = m.step, version = t.version + 1,
        stop_reason = CASE m.kind WHEN 'report' THEN 'by the pruner' ELSE 'at a rung' END
    FROM (
        SELECT DISTINCT ON (n.trial_id) n.trial_id, n.lineage, n.kind, n.step, n.action FROM made n
        WHERE n.action <> 'go_on' ORDER BY n.trial_id, n.position
    ) m
    WHERE t.trial_id = m.trial_id AND t.lineage = m.lineage AND t.state IN ('pending', 'running')
      AND t.stop_kind IS NULL
), {attrs_kept("led")}
SELECT m.trial_id, m.lineage, m.kind, m.step, m.position FROM led l LEFT JOIN made m ON true
""")

_MADE = statement(f"""
WITH {_GIVEN}
{_DECISIONS} JOIN given g ON g.trial_id = d.trial_id AND g.lineage = d.lineage AND g.kind = d.kind AND g.step = d.step
WHERE d.sweep_id = :sweep_id
""")

_DECIDED = statement(f"""
{_DECISIONS} WHERE d.trial_id = :trial_id AND d.lineage = :lineage AND d.step = :step AND d.kind IN ('report', 'rung')
""")

_ASKED = statement("""
SELECT s.search FROM sweeper.trials t JOIN sweeper.sweeps s ON s.sweep_id = t.sweep_id WHERE t.trial_id = :trial_id
""")


def undecided_reports(
    db: Statements, sweep_id: SweepId, *, kind: DecisionKind, limit: int, of: Sequence[TrialId] | None = None
) -> list[Undecided]:
    """Give reports on which no decision of that kind was made, as they came in, then by number and step.

    Of trials that are pending or running and that nothing stops yet; or of the trials named, in whatever state (those
    that have ended since the last look).
    """
    parameters: dict[str, Any] = {"sweep_id": sweep_id, "kind": kind.value, "limit": limit}
    rows = db.run(_UNDECIDED_OPEN, parameters) if of is None else db.run(_UNDECIDED_OF, parameters | _ids(of))
    return [
        (
            TrialId(row.trial_id),
            row.number,
            row.lineage,
            Report(step=row.step, at_step=row.at_step, value=row.value, metrics=from_tagged(row.metrics)),
        )
        for row in rows
    ]


def reports_by_trial(db: Statements, trial_ids: Sequence[TrialId]) -> dict[TrialId, tuple[Report, ...]]:
    """Give the reports of those trials, by step; trials without any are absent."""
    return read_reports(db.run(_REPORTS, _ids(trial_ids))[0].reports) if trial_ids else {}


def decisions(
    db: Statements, sweep_id: SweepId, *, kinds: Sequence[DecisionKind], after_order: int = 0
) -> list[Decision]:
    """Give the sweep's decisions of those kinds in the order in which they were made, those after a known one."""
    parameters = {"sweep_id": sweep_id, "after": after_order, "kinds": [kind.value for kind in kinds]}
    return _read(db.run(_ALL, parameters)[0])


def record_decisions(
    db: Statements,
    sweep_id: SweepId,
    coordinator_id: CoordinatorId,
    fence: int,
    decisions: Sequence[Decision],
    *,
    study_attrs: Mapping[str, Json] | None = None,
) -> list[Decision]:
    """Write decisions on reports, in order, and stop the trials that are not to go on; give them as they now stand.

    One that was made before stays and is what comes back; one about a lineage that is over is left out. The study
    attributes that deciding changed are merged in the same statement.

    Raises:
        CoordinatorLost: another coordinator leads; choose nothing more. Nothing of the current thousand was written.
    """
    made: list[Decision] = []
    for start in range(0, max(len(decisions), 1), BATCH):
        batch = decisions[start : start + BATCH]
        made += _record(db, leader(sweep_id, coordinator_id, fence), batch, study_attrs or {})
    return made


def decided(db: Statements, trial_id: TrialId, lineage: int, step: int) -> Decision | None:
    """Give what a report that waits is waiting for: what was decided on it by all whom the sweep asks.

    The one that does not let the trial go on, if there is one; None while not all have decided.
    """
    found = _read(db.run(_DECIDED, {"trial_id": trial_id, "lineage": lineage, "step": step})[0])
    for decision in found:
        if decision.action != "go_on":
            return decision
    if not found:
        return None
    search = db.run(_ASKED, {"trial_id": trial_id})[0].search or {}
    asked = sum(search.get(name) is not None for name in ("pruner", "scheduler"))
    return found[0] if len(found) >= asked else None


def _record(
    db: Statements, leading: Mapping[str, Any], batch: Sequence[Decision], study_attrs: Mapping[str, Json]
) -> list[Decision]:
    given = given_parameters(batch)
    rows = db.run(_RECORD, {"now": db.now, **leading, **given, **attr_parameters(study_attrs)})
    if not rows:
        raise coordinator_lost(leading["sweep_id"], leading["coordinator_id"], leading["fence"])
    orders = {(row.trial_id, row.lineage, row.kind, row.step): row.position for row in rows}
    made = {_key(one): replace(one, order=orders[_key(one)]) for one in batch if _key(one) in orders}
    if len(made) < len(batch):
        earlier = _read(db.run(_MADE, {"sweep_id": leading["sweep_id"], **given})[0])
        made = {**{_key(one): one for one in earlier}, **made}
    return [made[_key(one)] for one in batch if _key(one) in made]


def given_parameters(batch: Sequence[Decision]) -> dict[str, Any]:
    """The parameters that name decisions to a statement."""
    return {
        "trial_ids": [one.trial_id for one in batch],
        "lineages": [one.lineage for one in batch],
        "kinds": [one.kind.value for one in batch],
        "steps": [one.step for one in batch],
        "actions": [one.action for one in batch],
        "values": [None if one.value is None else float(one.value) for one in batch],
        "facts": [json.dumps(dict(one.facts), allow_nan=False) for one in batch],
    }


def _key(decision: Decision) -> tuple[int, int, str, int]:
    return decision.trial_id, decision.lineage, decision.kind.value, decision.step


def _ids(trial_ids: Sequence[TrialId]) -> dict[str, Any]:
    return {"trial_ids": list(trial_ids)}


_KINDS: Final = {kind.value: kind for kind in DecisionKind}


def _read(row: sa.Row[Any]) -> list[Decision]:
    """Read columns of decisions; a value that is no JSON number comes as text."""
    if row.trial_ids is None:
        return []
    found = many(
        Decision,
        len(row.trial_ids),
        trial_id=row.trial_ids,
        number=row.numbers,
        lineage=row.lineages,
        kind=map(_KINDS.__getitem__, row.kinds),
        step=row.steps,
        action=row.actions,
        value=[None if value is None else float(value) for value in row.decided_values],
        facts=row.facts,
        order=row.orders,
    )
    found.sort(key=_order)
    return found


def _order(decision: Decision) -> int:
    return decision.order
