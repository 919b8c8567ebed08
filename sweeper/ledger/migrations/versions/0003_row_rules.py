"""Rules of trials and attempts: a trigger checks them, and only where a column that they speak of is written."""

from __future__ import annotations

from collections.abc import Mapping

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_FINAL = "NEW.state IN ('cancelled', 'completed', 'failed', 'pruned')"
TRIALS = {
    "state": "NEW.state IN ('pending', 'running', 'paused', 'completed', 'pruned', 'failed', 'cancelled')",
    "running_is_leased": "(NEW.state = 'running') = (NEW.lease_id IS NOT NULL)"
    " AND (NEW.state = 'running') = (NEW.worker_id IS NOT NULL)",
    "running_is_fenced": "NEW.state <> 'running' OR (NEW.fence >= 1 AND NEW.attempts >= 1)",
    "final_is_finished": f"({_FINAL}) = (NEW.finished_at IS NOT NULL)",
    "result_is_final": "NEW.result IS NULL OR NEW.state IN ('completed', 'pruned')",
    "outcome_is_final": f"({_FINAL}) OR (NEW.outcome_key IS NULL AND NOT NEW.outcome_stored)",
    "finished_ran": "NEW.state NOT IN ('completed', 'pruned') OR NEW.fence >= 1",
    "outcome_is_whole": "(NEW.outcome_key IS NULL) = (NEW.outcome_hash IS NULL)",
    "stored_outcome_is_named": "NOT NEW.outcome_stored OR NEW.outcome_key IS NOT NULL",
    "head_is_whole": "(NEW.head_id IS NULL) = (NEW.head_step IS NULL)",
    "crash_is_whole": "(NEW.crash_host IS NULL) = (NEW.crashed_at IS NULL)",
    "fault": "NEW.fault IN ('none', 'nan', 'kind', 'arity')",
    "fault_is_failed": "NEW.fault IS NULL OR NEW.state = 'failed'",
    "stop_kind": "NEW.stop_kind IN ('prune', 'pause')",
    "stop_is_whole": "(NEW.stop_kind IS NULL) = (NEW.stop_step IS NULL)"
    " AND (NEW.stop_kind IS NULL) = (NEW.stop_reason IS NULL)",
    "stop_is_open": "NEW.stop_kind IS NULL OR NEW.state IN ('pending', 'running', 'pruned')",
    "counters": "NEW.number >= 0 AND NEW.lineage >= 0 AND NEW.fence >= 0 AND NEW.attempts >= 0"
    " AND NEW.crashes >= 0 AND NEW.no_progress >= 0 AND NEW.saved_seq >= 0"
    " AND NEW.version >= NEW.mirrored_version",
}
ATTEMPTS = {
    "outcome": "NEW.outcome IN ('completed', 'pruned', 'paused', 'evicted', 'crashed', 'lost', 'cancelled', 'invalid',"
    " 'environment')",
    "led_to": "NEW.led_to IN ('pending', 'paused', 'completed', 'pruned', 'failed', 'cancelled')",
    "ends_once": "(NEW.ended_at IS NULL) = (NEW.outcome IS NULL) AND (NEW.ended_at IS NULL) = (NEW.led_to IS NULL)",
    "fence": "NEW.fence >= 1",
}
WATCHED = {
    "trials": "number, state, lineage, fence, lease_id, worker_id, saved_seq, attempts, crashes, no_progress,"
    " crash_host, crashed_at, head_id, head_step, result, outcome_key, outcome_hash, outcome_stored, fault,"
    " finished_at, stop_kind, stop_step, stop_reason, version, mirrored_version",
    "attempts": "fence, ended_at, outcome, led_to",
}


def upgrade() -> None:
    """Each rule keeps its name. Programs of older code write the same rows and meet the same errors."""
    for table, rules in (("trials", TRIALS), ("attempts", ATTEMPTS)):
        for name in rules:
            op.drop_constraint(op.f(f"{table}_{name}"), table, schema="sweeper", type_="check")
        op.execute(_function(table, rules))
        op.execute(
            f"CREATE TRIGGER {table}_rules AFTER INSERT OR UPDATE OF {WATCHED[table]}\n"
            f"ON sweeper.{table} FOR EACH ROW EXECUTE FUNCTION sweeper.{table}_rules()"
        )
    op.create_check_constraint(
        op.f("trials_heartbeat"),
        "trials",
        "(state = 'running') = (lease_expires_at IS NOT NULL) AND step >= 0",
        schema="sweeper",
    )


def _function(table: str, rules: Mapping[str, str]) -> str:
    all_hold = "\n       AND ".join(f"({rule}) IS NOT FALSE" for rule in rules.values())
    broken = "\n        ".join(f"WHEN ({rule}) IS FALSE THEN '{table}_{name}'" for name, rule in rules.items())
    return f"""CREATE FUNCTION sweeper.{table}_rules() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE broken text;
BEGIN
    IF {all_hold} THEN
        RETURN NULL;
    END IF;
    broken := CASE
        {broken}
    END;
    RAISE check_violation USING
        MESSAGE = 'new row for relation "{table}" violates constraint "' || broken || '"',
        SCHEMA = 'sweeper', TABLE = '{table}', CONSTRAINT = broken;
END $$"""
