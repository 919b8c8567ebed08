"""What becomes of paused trials: they go on, go on as another's heir, or end (FENCE).

Each is one statement under the coordinator's fence; a trial that is not paused in that lineage is left as it is, and
the caller looks again.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from sweeper.ids import CoordinatorId, SweepId, TrialId, TrialNumber
from sweeper.ledger.choices import LEADING, coordinator_lost, leader
from sweeper.ledger.guards import NOW
from sweeper.ledger.pins import PINNED, freed
from sweeper.ledger.sql import statement
from sweeper.ledger.statements import Statements
from sweeper.ledger.storable import storable
from sweeper.ledger.superseding import BEYOND_STOP
from sweeper.model.search import Decision, Proposal
from sweeper.model.trial import Json, NewTrial

EXPLOIT_PRIORITY: Final = 1


def _made(by: str) -> str:
    """The CTE that keeps the decision of a transition in CTE `by` (trial_id, lineage before it), if there was one."""
    return f"""made AS (
    INSERT INTO sweeper.decisions (trial_id, lineage, kind, step, sweep_id, action, value, facts, decided_at)
    SELECT m.trial_id, :lineage, :kind, :step, :sweep_id, :action, :decided_value, :decided_facts, {NOW} FROM {by} m
    ON CONFLICT (trial_id, lineage, kind, step) DO NOTHING
)"""


_MOVED: Final = "SELECT m.trial_id FROM led l LEFT JOIN moved m ON true"
"""One row while the caller leads."""

_DECIDED = statement("""
SELECT d.position FROM sweeper.decisions d
WHERE d.trial_id = :trial_id AND d.lineage = :lineage AND d.kind = :kind AND d.step = :step
""")

_PRUNED = statement("""
SELECT t.trial_id FROM sweeper.trials t
WHERE t.trial_id = :trial_id AND t.state = 'pruned' AND t.reason = :reason AND t.stop_step IS NOT DISTINCT FROM :step
""")

_PROMOTE = statement(f"""
WITH {LEADING}, moved AS (
    UPDATE sweeper.trials t
    SET state = 'pending', priority = :priority, available_at = NULL, version = t.version + 1
    FROM led l
    WHERE t.trial_id = :trial_id AND t.sweep_id = l.sweep_id AND t.state = 'paused' AND t.lineage = :lineage
    RETURNING t.trial_id
), {_made("moved")}
{_MOVED}
""")

_PRUNE = statement(f"""
WITH {LEADING}, moved AS (
    UPDATE sweeper.trials t
    SET state = 'pruned', result = :result, reason = :reason, finished_at = {NOW}, version = t.version + 1,
        stop_kind = CASE WHEN :step IS NOT NULL THEN 'prune' END, stop_step = :step,
        stop_reason = CASE WHEN :step IS NOT NULL THEN :reason END
    FROM led l
    WHERE t.trial_id = :trial_id AND t.sweep_id = l.sweep_id AND t.state = 'paused'
    RETURNING t.trial_id, t.stop_step
), superseded AS (
    DELETE FROM sweeper.reports r USING moved g WHERE r.trial_id = g.trial_id AND {BEYOND_STOP}
)
{_MOVED}
""")

# The source is locked as live, so that what was retired before is not inherited; what is retired right after is pinned,
# and keeps its objects. Reports up to the new head stay, for people; by their fence they are of the earlier lineage.
_EXPLOIT = statement(f"""
WITH {LEADING}, heir AS MATERIALIZED (
    SELECT t.trial_id, t.lineage FROM led l, sweeper.trials t
    WHERE t.trial_id = :trial_id AND t.sweep_id = l.sweep_id AND t.state = 'paused' AND t.lineage = :lineage
    FOR NO KEY UPDATE OF t
), source AS MATERIALIZED (
    SELECT c.checkpoint_id, c.step, h.trial_id FROM heir h, sweeper.checkpoints c
    JOIN sweeper.trials o ON o.trial_id = c.trial_id AND o.sweep_id = :sweep_id
    WHERE c.checkpoint_id = :checkpoint_id AND c.state = 'live'
    FOR NO KEY UPDATE OF c
), moved AS (
    UPDATE sweeper.trials t
    SET state = 'pending', priority = greatest(t.priority, {EXPLOIT_PRIORITY}), available_at = NULL,
        lineage = t.lineage + 1, lineage_fence = t.fence, head_id = s.checkpoint_id, head_step = s.step, step = s.step,
        crashes = 0, no_progress = 0, crash_host = NULL, crashed_at = NULL, version = t.version + 1
    FROM source s
    WHERE t.trial_id = s.trial_id
    RETURNING t.trial_id, t.lineage, t.head_id, t.head_step
), configured AS (
    INSERT INTO sweeper.configs (trial_id, lineage, config_text, overrides, params, proposal)
    SELECT m.trial_id, m.lineage, :config_text, :overrides_of_one, :params_of_one, :proposal FROM moved m
), pinned AS (
    INSERT INTO sweeper.pins (checkpoint_id, trial_id, reason) SELECT m.head_id, m.trial_id, 'heir' FROM moved m
    ON CONFLICT (checkpoint_id, trial_id, reason) DO NOTHING
), unpinned AS (
    DELETE FROM sweeper.pins p USING moved m WHERE p.trial_id = m.trial_id AND p.checkpoint_id <> m.head_id
    RETURNING p.checkpoint_id, p.trial_id
), {freed("unpinned")}, retired AS (
    UPDATE sweeper.checkpoints c SET state = 'retired', retired_at = {NOW} FROM moved m
    WHERE c.trial_id = m.trial_id AND c.state = 'live' AND c.checkpoint_id <> m.head_id AND NOT {PINNED}
), superseded AS (
    DELETE FROM sweeper.reports r USING moved m WHERE r.trial_id = m.trial_id AND r.at_step > m.head_step
), {_made("moved")}
{_MOVED}
""")

_NEWEST = statement("""
SELECT c.checkpoint_id
FROM sweeper.numbers n JOIN sweeper.trials t ON t.trial_id = n.trial_id
JOIN sweeper.checkpoints c
    ON c.checkpoint_id = t.head_id OR (c.trial_id = t.trial_id AND c.lineage = t.lineage)
WHERE n.sweep_id = :sweep_id AND n.number = :number AND c.state = 'live'
ORDER BY c.checkpoint_id = t.head_id DESC, c.fence DESC, c.seq DESC LIMIT 1
""")


def promote_trial(
    db: Statements, sweep_id: SweepId, coordinator_id: CoordinatorId, fence: int, decision: Decision, *, priority: int
) -> bool:
    """Let a paused trial go on from its head, and keep the decision; False when it is not paused in that lineage.

    Raises:
        CoordinatorLost: another coordinator leads; choose nothing more.
    """
    parameters = {**leader(sweep_id, coordinator_id, fence), **_decision(decision), "priority": priority}
    return _moved(db, _PROMOTE, parameters, before=_DECIDED)


def prune_paused(
    db: Statements,
    sweep_id: SweepId,
    coordinator_id: CoordinatorId,
    fence: int,
    trial_id: TrialId,
    *,
    result: Json,
    reason: str,
    step: int | None = None,
) -> bool:
    """End a paused trial as pruned; False when it is not paused.

    Args:
        result: tagged JSON, the value of its last rung.
        reason: for people.
        step: the report at which its history ends, if later ones do not count; None keeps them all.

    Raises:
        CoordinatorLost: another coordinator leads; choose nothing more.
    """
    parameters = {
        **leader(sweep_id, coordinator_id, fence),
        "trial_id": trial_id,
        "result": result,
        "reason": storable(reason),
        "step": step,
    }
    return _moved(db, _PRUNE, parameters, before=_PRUNED)


def exploit_trial(
    db: Statements,
    sweep_id: SweepId,
    coordinator_id: CoordinatorId,
    fence: int,
    *,
    heir: TrialId,
    source_checkpoint_id: int,
    new: NewTrial,
    proposal: Proposal,
    decision: Decision,
) -> bool:
    """Let a paused trial go on from another one's checkpoint, with another config: a new lineage of the heir.

    The checkpoint is pinned for it. The trial keeps its number and config hash; the config that it runs from here on,
    and the proposal that this is, are its lineage's. False when the heir is not paused in the decision's lineage, or
    the checkpoint is not live any more.

    Raises:
        CoordinatorLost: another coordinator leads; choose nothing more.
    """
    if decision.trial_id != heir:
        raise ValueError(f"a decision about trial {decision.trial_id} does not move trial {heir}")
    parameters = {
        **leader(sweep_id, coordinator_id, fence),
        **_decision(decision),
        "checkpoint_id": source_checkpoint_id,
        "config_text": new.config_text,
        "overrides_of_one": list(new.overrides),
        "params_of_one": dict(new.params),
        "proposal": proposal.as_json(),
    }
    return _moved(db, _EXPLOIT, parameters, before=_DECIDED)


def newest_checkpoint(db: Statements, sweep_id: SweepId, number: TrialNumber | int) -> int | None:
    """Give the id of the live checkpoint that the trial of this number would resume from; None when it has none."""
    rows = db.run(_NEWEST, {"sweep_id": sweep_id, "number": number})
    return rows[0].checkpoint_id if rows else None


def _moved(db: Statements, move: sa.TextClause, parameters: dict[str, Any], *, before: sa.TextClause) -> bool:
    """Move a trial, or find by statement `before` that this very call did it before, and its reply was lost."""
    rows = db.run(move, {"now": db.now, **parameters})
    if not rows:
        raise coordinator_lost(parameters["sweep_id"], parameters["coordinator_id"], parameters["fence"])
    return rows[0].trial_id is not None or bool(db.run(before, parameters))


def _decision(decision: Decision) -> dict[str, Any]:
    return {
        "trial_id": decision.trial_id,
        "lineage": decision.lineage,
        "kind": decision.kind.value,
        "step": decision.step,
        "action": decision.action,
        "decided_value": decision.value,
        "decided_facts": dict(decision.facts),
    }
