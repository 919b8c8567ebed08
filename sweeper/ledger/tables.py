"""The ledger's tables: schema `sweeper`, the only truth about what ran. Those of a search alone: `search_tables`.

Constraints tie columns to states, so a row that contradicts itself cannot be written by anyone; those of the tables
that every heartbeat, grant and ending writes are `row_rules`. Who may move a trial from where to where is
`sweeper.model.states.TRANSITIONS`; the statements that do it are in the sibling modules. Tagged JSON is kept as `json`,
never `jsonb`: `jsonb` rewrites `1e300` as an integer and `1.0` by value (TRUTH).
"""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from sweeper.ledger.row_rules import RowRules, one_of
from sweeper.model.states import (
    FINAL_STATES,
    AttemptOutcome,
    CheckpointState,
    ObjectiveFault,
    SearchStopKind,
    SweepState,
    TrialState,
)

SCHEMA = "sweeper"

metadata = sa.MetaData(
    schema=SCHEMA,
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "pk": "%(table_name)s_pkey",
    },
)


def _count(name: str, *, comment: str | None = None) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False, server_default=sa.text("0"), comment=comment)


def _big_count(name: str, *, comment: str | None = None) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text("0"), comment=comment)


def _no(name: str, *, comment: str | None = None) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False, server_default=sa.text("false"), comment=comment)


def moment(name: str, *, nullable: bool = False) -> sa.Column[datetime]:
    """Give a column for a moment."""
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


_FINAL = one_of("NEW.state", sorted(FINAL_STATES))

ledger = sa.Table(
    "ledger",
    metadata,
    sa.Column("singleton", sa.Boolean, primary_key=True),
    sa.Column("ledger_id", sa.Text, nullable=False, comment="32 random hex digits, drawn when the tables are made"),
    sa.Column("min_code", sa.Integer, nullable=False, comment="workers of older code lease nothing more"),
    moment("created_at"),
    sa.CheckConstraint("singleton", name="singleton"),
    comment="one row: who this ledger is",
)

pulse = sa.Table(
    "pulse",
    metadata,
    sa.Column("singleton", sa.Boolean, primary_key=True),
    moment("last_seen_at"),
    moment("awake_since"),
    sa.CheckConstraint("singleton", name="singleton"),
    sa.CheckConstraint("awake_since <= last_seen_at", name="awake"),
    comment="one row: the witness that heartbeats could get through lately (BLIND)",
    postgresql_with={"fillfactor": 50},
)

sweeps = sa.Table(
    "sweeps",
    metadata,
    sa.Column("sweep_id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("state", sa.Text, nullable=False, server_default=SweepState.ACTIVE.value),
    sa.Column("task", sa.Text, nullable=False, comment="module:qualified name"),
    sa.Column("source_digest", sa.Text, nullable=False),
    sa.Column("sweep_dir", sa.Text, nullable=False, comment="pinned at the first launch"),
    sa.Column("store_url", sa.Text, nullable=False, comment="without credentials"),
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("direction", sa.Text, comment="unused; upgrades only add, and older programs that still run select it"),
    sa.Column("search", sa.JSON, comment="what is searched and how; none for a plain grid"),
    sa.Column("ended_reason", sa.Text, comment="why the search proposes no more"),
    _big_count("revision", comment="raised when final trials are opened again: whatever was built on them is void"),
    sa.Column("identity", sa.JSON, nullable=False, comment="rules of config identity"),
    sa.Column("max_crashes", sa.Integer, nullable=False),
    sa.Column("max_no_progress", sa.Integer, nullable=False),
    sa.Column("backoff_s", sa.Double, nullable=False),
    sa.Column("backoff_max_s", sa.Double, nullable=False),
    sa.Column("checkpoint_keep", sa.Integer, nullable=False),
    sa.Column("default_named", sa.Boolean, nullable=False),
    _big_count("seen_fence", comment="highest fence found in the store when this ledger was behind it; else 0"),
    moment("created_at"),
    sa.CheckConstraint(one_of("state", SweepState), name="state"),
    sa.CheckConstraint("char_length(name) BETWEEN 1 AND 200", name="name_length"),
    sa.CheckConstraint(
        "max_crashes >= 1 AND max_no_progress >= 1 AND backoff_s >= 0 AND backoff_max_s >= 0", name="retry"
    ),
)

coordinators = sa.Table(
    "coordinators",
    metadata,
    sa.Column("sweep_id", sa.Text, sa.ForeignKey(sweeps.c.sweep_id, ondelete="CASCADE"), primary_key=True),
    _count("next_number"),
    sa.Column("coordinator_id", sa.Text),
    _big_count("fence"),
    moment("lease_expires_at", nullable=True),
    sa.CheckConstraint("(coordinator_id IS NULL) = (lease_expires_at IS NULL)", name="held"),
    comment="one row a sweep: the next trial number, and the fenced coordinator",
    postgresql_with={"fillfactor": 50},
)

trials = sa.Table(
    "trials",
    metadata,
    sa.Column("trial_id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    sa.Column("sweep_id", sa.Text, sa.ForeignKey(sweeps.c.sweep_id, ondelete="CASCADE"), nullable=False),
    sa.Column("number", sa.Integer, nullable=False, comment="its first number, for life"),
    sa.Column("config_hash", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False, server_default=TrialState.PENDING.value),
    _count("lineage"),
    _big_count("lineage_fence", comment="reports of fences up to this one are of an earlier lineage"),
    _count("priority"),
    moment("available_at", nullable=True),
    # The lease. Heartbeats touch only lease_expires_at, step and child_started, none of them indexed, so they stay HOT.
    _big_count("fence"),
    sa.Column("lease_id", sa.Text),
    sa.Column("worker_id", sa.Text),
    moment("lease_expires_at", nullable=True),
    _no("child_started", comment="user code was reached under this lease"),
    _count("saved_seq", comment="highest checkpoint committed under this lease"),
    _big_count("step"),
    # What retry decisions rest on, since the lineage began.
    _count("attempts", comment="of any lineage"),
    _count("crashes"),
    _count("no_progress"),
    sa.Column("crash_host", sa.Text),
    moment("crashed_at", nullable=True),
    # Where to resume.
    sa.Column(
        "head_id",
        sa.BigInteger,
        sa.ForeignKey("sweeper.checkpoints.checkpoint_id", name="trials_head_id_fkey", use_alter=True),
    ),
    sa.Column("head_step", sa.BigInteger),
    # How it ended.
    sa.Column("result", sa.JSON, comment="tagged JSON"),
    sa.Column("reason", sa.Text),
    sa.Column("outcome_key", sa.Text),
    sa.Column("outcome_hash", sa.Text),
    _no("outcome_stored"),
    sa.Column("fault", sa.Text, comment="why what the function returned is no objective"),
    moment("finished_at", nullable=True),
    # What the search decided, for its holder to obey: the history ends or pauses at the report of that step.
    sa.Column("stop_kind", sa.Text),
    sa.Column("stop_step", sa.BigInteger),
    sa.Column("stop_reason", sa.Text),
    # The projection into an Optuna study.
    sa.Column("version", sa.BigInteger, nullable=False, server_default=sa.text("1")),
    _big_count("mirrored_version"),
    # Of what heartbeats write; the rest is in TRIAL_RULES.
    sa.CheckConstraint("(state = 'running') = (lease_expires_at IS NOT NULL) AND step >= 0", name="heartbeat"),
    sa.UniqueConstraint("sweep_id", "config_hash"),
    postgresql_with={"fillfactor": 80},
)
TRIAL_RULES = RowRules(
    trials,
    {
        "state": one_of("NEW.state", TrialState),
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
        "fault": one_of("NEW.fault", ObjectiveFault),
        "fault_is_failed": "NEW.fault IS NULL OR NEW.state = 'failed'",
        "stop_kind": one_of("NEW.stop_kind", SearchStopKind),
        "stop_is_whole": "(NEW.stop_kind IS NULL) = (NEW.stop_step IS NULL)"
        " AND (NEW.stop_kind IS NULL) = (NEW.stop_reason IS NULL)",
        "stop_is_open": "NEW.stop_kind IS NULL OR NEW.state IN ('pending', 'running', 'pruned')",
        "counters": "NEW.number >= 0 AND NEW.lineage >= 0 AND NEW.fence >= 0 AND NEW.attempts >= 0"
        " AND NEW.crashes >= 0 AND NEW.no_progress >= 0 AND NEW.saved_seq >= 0"
        " AND NEW.version >= NEW.mirrored_version",
    },
)
sa.Index(
    "trials_pending",
    trials.c.sweep_id,
    trials.c.priority.desc(),
    trials.c.number,
    postgresql_where=sa.text("state = 'pending'"),
)
# Also what expiry scans. There is none on lease_expires_at: with it no heartbeat is HOT.
sa.Index("trials_lease", trials.c.lease_id, unique=True, postgresql_where=sa.text("state = 'running'"))
sa.Index("trials_unfinished", trials.c.sweep_id, trials.c.number, postgresql_where=sa.text("finished_at IS NULL"))
sa.Index("trials_unmirrored", trials.c.sweep_id, postgresql_where=sa.text("version <> mirrored_version"))

configs = sa.Table(
    "configs",
    metadata,
    sa.Column("trial_id", sa.BigInteger, sa.ForeignKey(trials.c.trial_id, ondelete="CASCADE"), primary_key=True),
    sa.Column("lineage", sa.Integer, primary_key=True),
    sa.Column("config_text", sa.Text, nullable=False, comment="canonical; its hash is the trial's config_hash"),
    sa.Column("overrides", sa.JSON, nullable=False),
    sa.Column("params", sa.JSON, nullable=False),
    sa.Column("proposal", sa.JSON, comment="of an exploit; otherwise it is the number's"),
    comment="immutable",
)

numbers = sa.Table(
    "numbers",
    metadata,
    sa.Column("sweep_id", sa.Text, sa.ForeignKey(sweeps.c.sweep_id, ondelete="CASCADE"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("trial_id", sa.BigInteger, sa.ForeignKey(trials.c.trial_id, ondelete="CASCADE")),
    sa.Column("reason", sa.Text, comment="why this number has no trial"),
    sa.Column("proposal", sa.JSON, comment="what the sampler chose, and what it needs to know of that later"),
    sa.CheckConstraint("(trial_id IS NULL) <> (reason IS NULL)", name="trial_or_reason"),
    comment="first numbers and aliases alike",
)

askers = sa.Table(
    "askers",
    metadata,
    sa.Column("asker_id", sa.Text, primary_key=True),
    sa.Column("sweep_id", sa.Text, sa.ForeignKey(sweeps.c.sweep_id, ondelete="CASCADE"), nullable=False),
    _no("standing", comment="asks for as long as the sweep lives: `sweeper retry`"),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("boot_id", sa.Text, nullable=False),
    sa.Column("lock_path", sa.Text, nullable=False),
    sa.Column("lock_inode", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    moment("seen_at"),
    sa.Index("askers_sweep_id", "sweep_id"),
    comment="commands that ask for trials",
)

requests = sa.Table(
    "requests",
    metadata,
    sa.Column("trial_id", sa.BigInteger, sa.ForeignKey(trials.c.trial_id, ondelete="CASCADE"), primary_key=True),
    sa.Column("asker_id", sa.Text, sa.ForeignKey(askers.c.asker_id, ondelete="CASCADE"), primary_key=True),
    sa.Column("sweep_id", sa.Text, nullable=False),
    sa.Index("requests_asker_id", "asker_id"),
    comment="workers lease only what somebody asks for",
)

workers = sa.Table(
    "workers",
    metadata,
    sa.Column("worker_id", sa.Text, primary_key=True),
    sa.Column("sweep_id", sa.Text, sa.ForeignKey(sweeps.c.sweep_id, ondelete="CASCADE"), nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("boot_id", sa.Text, nullable=False),
    sa.Column("lock_path", sa.Text, nullable=False),
    sa.Column("lock_inode", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("pool", sa.Text, nullable=False),
    moment("registered_at"),
    sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False, comment="when it last asked for a trial"),
    moment("retired_at", nullable=True),
    sa.Column("retire_reason", sa.Text),
    sa.CheckConstraint("retire_reason IS NULL OR retired_at IS NOT NULL", name="retired"),
    sa.Index("workers_sweep_id", "sweep_id"),
    postgresql_with={"fillfactor": 80},
)

attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("lease_id", sa.Text, primary_key=True),
    sa.Column("trial_id", sa.BigInteger, sa.ForeignKey(trials.c.trial_id, ondelete="CASCADE"), nullable=False),
    sa.Column("fence", sa.BigInteger, nullable=False),
    sa.Column("lineage", sa.Integer, nullable=False),
    sa.Column("worker_id", sa.Text, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pool", sa.Text, nullable=False),
    sa.Column("threads", sa.Integer),
    moment("started_at"),
    sa.Column("first_step", sa.BigInteger, nullable=False),
    moment("ended_at", nullable=True),
    sa.Column("outcome", sa.Text),
    sa.Column("led_to", sa.Text, comment="the trial's state right after; the receipt that replays are answered from"),
    sa.Column("reason", sa.Text),
    sa.Column("error", sa.Text),
    sa.Column("exit_code", sa.Integer),
    sa.Column("last_step", sa.BigInteger),
    sa.Column("adopted_from", sa.Text),
    sa.Index("attempts_trial_id_fence", "trial_id", "fence"),
    comment="append-only: opened by the grant, closed by exactly one ending",
    postgresql_with={"fillfactor": 80},
)

ATTEMPT_RULES = RowRules(
    attempts,
    {
        "outcome": one_of("NEW.outcome", AttemptOutcome),
        "led_to": one_of("NEW.led_to", [state for state in TrialState if state is not TrialState.RUNNING]),
        "ends_once": "(NEW.ended_at IS NULL) = (NEW.outcome IS NULL) AND (NEW.ended_at IS NULL) = (NEW.led_to IS NULL)",
        "fence": "NEW.fence >= 1",
    },
)

checkpoints = sa.Table(
    "checkpoints",
    metadata,
    sa.Column("checkpoint_id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    sa.Column("trial_id", sa.BigInteger, sa.ForeignKey(trials.c.trial_id, ondelete="CASCADE"), nullable=False),
    sa.Column("lineage", sa.Integer, nullable=False),
    sa.Column("lease_id", sa.Text, nullable=False, comment="the lease that committed the row"),
    sa.Column("fence", sa.BigInteger, nullable=False),
    sa.Column("seq", sa.Integer, nullable=False),
    sa.Column("step", sa.BigInteger, nullable=False),
    sa.Column("manifest_key", sa.Text, nullable=False),
    sa.Column("manifest_hash", sa.Text, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("save_s", sa.Double, comment="from the seal to the commit; unknown when adopted"),
    sa.Column("state", sa.Text, nullable=False, server_default=CheckpointState.LIVE.value),
    sa.Column("evidence", sa.Text, comment="why it is suspect"),
    moment("committed_at"),
    moment("retired_at", nullable=True),
    sa.CheckConstraint(one_of("state", CheckpointState), name="state"),
    sa.CheckConstraint("(state = 'retired') = (retired_at IS NOT NULL)", name="retired"),
    sa.UniqueConstraint("trial_id", "manifest_key"),
)
sa.Index("checkpoints_retired_at", checkpoints.c.retired_at, postgresql_where=sa.text("state = 'retired'"))

reports = sa.Table(
    "reports",
    metadata,
    sa.Column("trial_id", sa.BigInteger, sa.ForeignKey(trials.c.trial_id, ondelete="CASCADE"), primary_key=True),
    sa.Column("step", sa.BigInteger, primary_key=True, comment="in whatever unit the user chose"),
    sa.Column("at_step", sa.BigInteger, nullable=False, comment="training step at which it was made"),
    sa.Column("value", sa.Double, nullable=False, comment="NaN and infinities included"),
    sa.Column("metrics", sa.JSON, nullable=False, comment="tagged JSON"),
    sa.Column("fence", sa.BigInteger, nullable=False),
    moment("reported_at"),
)
