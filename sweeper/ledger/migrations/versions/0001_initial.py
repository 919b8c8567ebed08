"""Initial schema: sweeps, trials and their leases, attempts, checkpoints, reports, requests, and who is here."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make every table, and the single rows of `ledger` and `pulse`."""
    _ledger()
    _pulse()
    _sweeps()
    _askers()
    _coordinators()
    _trials()
    _workers()
    _attempts()
    _checkpoints()
    _configs()
    _numbers()
    _reports()
    _requests()
    op.create_foreign_key(
        "trials_head_id_fkey",
        "trials",
        "checkpoints",
        ["head_id"],
        ["checkpoint_id"],
        source_schema="sweeper",
        referent_schema="sweeper",
    )
    op.execute(
        "INSERT INTO sweeper.ledger (singleton, ledger_id, min_code, created_at)"
        " VALUES (true, replace(gen_random_uuid()::text, '-', ''), 1, statement_timestamp())"
    )
    # The first touch finds a gap and starts the pulse; until one TTL later nothing expires.
    op.execute("INSERT INTO sweeper.pulse (singleton, last_seen_at, awake_since) VALUES (true, 'epoch', 'epoch')")


def _ledger() -> None:
    op.create_table(
        "ledger",
        sa.Column("singleton", sa.Boolean(), nullable=False),
        sa.Column(
            "ledger_id", sa.Text(), nullable=False, comment="32 random hex digits, drawn when the tables are made"
        ),
        sa.Column("min_code", sa.Integer(), nullable=False, comment="workers of older code lease nothing more"),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("singleton", name=op.f("ledger_singleton")),
        sa.PrimaryKeyConstraint("singleton", name=op.f("ledger_pkey")),
        schema="sweeper",
        comment="one row: who this ledger is",
    )


def _pulse() -> None:
    op.create_table(
        "pulse",
        sa.Column("singleton", sa.Boolean(), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("awake_since", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("awake_since <= last_seen_at", name=op.f("pulse_awake")),
        sa.CheckConstraint("singleton", name=op.f("pulse_singleton")),
        sa.PrimaryKeyConstraint("singleton", name=op.f("pulse_pkey")),
        schema="sweeper",
        comment="one row: the witness that heartbeats could get through lately (BLIND)",
        postgresql_with={"fillfactor": 50},
    )


def _sweeps() -> None:
    op.create_table(
        "sweeps",
        sa.Column("sweep_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default="active", nullable=False),
        sa.Column("task", sa.Text(), nullable=False, comment="module:qualified name"),
        sa.Column("source_digest", sa.Text(), nullable=False),
        sa.Column("sweep_dir", sa.Text(), nullable=False, comment="pinned at the first launch"),
        sa.Column("store_url", sa.Text(), nullable=False, comment="without credentials"),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("direction", sa.Text(), nullable=True),
        sa.Column("identity", sa.JSON(), nullable=False, comment="rules of config identity"),
        sa.Column("max_crashes", sa.Integer(), nullable=False),
        sa.Column("max_no_progress", sa.Integer(), nullable=False),
        sa.Column("backoff_s", sa.Double(), nullable=False),
        sa.Column("backoff_max_s", sa.Double(), nullable=False),
        sa.Column("checkpoint_keep", sa.Integer(), nullable=False),
        sa.Column("default_named", sa.Boolean(), nullable=False),
        sa.Column(
            "seen_fence",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="highest fence found in the store when this ledger was behind it; else 0",
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("state IN ('active', 'finished', 'cancelled')", name=op.f("sweeps_state")),
        sa.CheckConstraint("char_length(name) BETWEEN 1 AND 200", name=op.f("sweeps_name_length")),
        sa.CheckConstraint(
            "max_crashes >= 1 AND max_no_progress >= 1 AND backoff_s >= 0 AND backoff_max_s >= 0",
            name=op.f("sweeps_retry"),
        ),
        sa.PrimaryKeyConstraint("sweep_id", name=op.f("sweeps_pkey")),
        sa.UniqueConstraint("name", name=op.f("sweeps_name_key")),
        schema="sweeper",
    )


def _askers() -> None:
    op.create_table(
        "askers",
        sa.Column("asker_id", sa.Text(), nullable=False),
        sa.Column("sweep_id", sa.Text(), nullable=False),
        sa.Column(
            "standing",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="asks for as long as the sweep lives: `sweeper retry`",
        ),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("boot_id", sa.Text(), nullable=False),
        sa.Column("lock_path", sa.Text(), nullable=False),
        sa.Column("lock_inode", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["sweep_id"], ["sweeper.sweeps.sweep_id"], name=op.f("askers_sweep_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("asker_id", name=op.f("askers_pkey")),
        schema="sweeper",
        comment="commands that ask for trials",
    )
    op.create_index("askers_sweep_id", "askers", ["sweep_id"], unique=False, schema="sweeper")


def _coordinators() -> None:
    op.create_table(
        "coordinators",
        sa.Column("sweep_id", sa.Text(), nullable=False),
        sa.Column("next_number", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("coordinator_id", sa.Text(), nullable=True),
        sa.Column("fence", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("(coordinator_id IS NULL) = (lease_expires_at IS NULL)", name=op.f("coordinators_held")),
        sa.ForeignKeyConstraint(
            ["sweep_id"], ["sweeper.sweeps.sweep_id"], name=op.f("coordinators_sweep_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("sweep_id", name=op.f("coordinators_pkey")),
        schema="sweeper",
        comment="one row a sweep: the next trial number, and the fenced coordinator",
        postgresql_with={"fillfactor": 50},
    )


def _trials() -> None:
    op.create_table(
        "trials",
        sa.Column("trial_id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("sweep_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False, comment="its first number, for life"),
        sa.Column("config_hash", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default="pending", nullable=False),
        sa.Column("lineage", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("priority", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("available_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("fence", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("lease_id", sa.Text(), nullable=True),
        sa.Column("worker_id", sa.Text(), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "child_started",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="user code was reached under this lease",
        ),
        sa.Column(
            "saved_seq",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="highest checkpoint committed under this lease",
        ),
        sa.Column("step", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False, comment="of any lineage"),
        sa.Column("crashes", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("no_progress", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("crash_host", sa.Text(), nullable=True),
        sa.Column("crashed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("head_id", sa.BigInteger(), nullable=True),
        sa.Column("head_step", sa.BigInteger(), nullable=True),
        sa.Column("result", sa.JSON(), nullable=True, comment="tagged JSON"),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("outcome_key", sa.Text(), nullable=True),
        sa.Column("outcome_hash", sa.Text(), nullable=True),
        sa.Column("outcome_stored", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("version", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("mirrored_version", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint(
            "(state = 'running') = (lease_id IS NOT NULL)"
            " AND (state = 'running') = (worker_id IS NOT NULL)"
            " AND (state = 'running') = (lease_expires_at IS NOT NULL)",
            name=op.f("trials_running_is_leased"),
        ),
        sa.CheckConstraint(
            "(state IN ('cancelled', 'completed', 'failed', 'pruned')) = (finished_at IS NOT NULL)",
            name=op.f("trials_final_is_finished"),
        ),
        sa.CheckConstraint(
            "(state IN ('cancelled', 'completed', 'failed', 'pruned')) OR (outcome_key IS NULL AND NOT outcome_stored)",
            name=op.f("trials_outcome_is_final"),
        ),
        sa.CheckConstraint("result IS NULL OR state IN ('completed', 'pruned')", name=op.f("trials_result_is_final")),
        sa.CheckConstraint(
            "state <> 'running' OR (fence >= 1 AND attempts >= 1)", name=op.f("trials_running_is_fenced")
        ),
        sa.CheckConstraint(
            "state IN ('pending', 'running', 'paused', 'completed', 'pruned', 'failed', 'cancelled')",
            name=op.f("trials_state"),
        ),
        sa.CheckConstraint("state NOT IN ('completed', 'pruned') OR fence >= 1", name=op.f("trials_finished_ran")),
        sa.CheckConstraint("(crash_host IS NULL) = (crashed_at IS NULL)", name=op.f("trials_crash_is_whole")),
        sa.CheckConstraint("(head_id IS NULL) = (head_step IS NULL)", name=op.f("trials_head_is_whole")),
        sa.CheckConstraint("(outcome_key IS NULL) = (outcome_hash IS NULL)", name=op.f("trials_outcome_is_whole")),
        sa.CheckConstraint(
            "NOT outcome_stored OR outcome_key IS NOT NULL", name=op.f("trials_stored_outcome_is_named")
        ),
        sa.CheckConstraint(
            "number >= 0 AND lineage >= 0 AND fence >= 0 AND attempts >= 0 AND crashes >= 0 AND no_progress >= 0"
            " AND step >= 0 AND saved_seq >= 0 AND version >= mirrored_version",
            name=op.f("trials_counters"),
        ),
        sa.ForeignKeyConstraint(
            ["sweep_id"], ["sweeper.sweeps.sweep_id"], name=op.f("trials_sweep_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("trial_id", name=op.f("trials_pkey")),
        sa.UniqueConstraint("sweep_id", "config_hash", name=op.f("trials_sweep_id_config_hash_key")),
        schema="sweeper",
        postgresql_with={"fillfactor": 80},
    )
    op.create_index(
        "trials_lease",
        "trials",
        ["lease_id"],
        unique=True,
        schema="sweeper",
        postgresql_where=sa.text("state = 'running'"),
    )
    op.create_index(
        "trials_pending",
        "trials",
        ["sweep_id", sa.literal_column("priority DESC"), "number"],
        unique=False,
        schema="sweeper",
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_index(
        "trials_unmirrored",
        "trials",
        ["sweep_id"],
        unique=False,
        schema="sweeper",
        postgresql_where=sa.text("version <> mirrored_version"),
    )


def _workers() -> None:
    op.create_table(
        "workers",
        sa.Column("worker_id", sa.Text(), nullable=False),
        sa.Column("sweep_id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("boot_id", sa.Text(), nullable=False),
        sa.Column("lock_path", sa.Text(), nullable=False),
        sa.Column("lock_inode", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("registered_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False, comment="when it last asked for a trial"),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("retire_reason", sa.Text(), nullable=True),
        sa.CheckConstraint("retire_reason IS NULL OR retired_at IS NOT NULL", name=op.f("workers_retired")),
        sa.ForeignKeyConstraint(
            ["sweep_id"], ["sweeper.sweeps.sweep_id"], name=op.f("workers_sweep_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("worker_id", name=op.f("workers_pkey")),
        schema="sweeper",
        postgresql_with={"fillfactor": 80},
    )
    op.create_index("workers_sweep_id", "workers", ["sweep_id"], unique=False, schema="sweeper")


def _attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column("lease_id", sa.Text(), nullable=False),
        sa.Column("trial_id", sa.BigInteger(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("lineage", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("threads", sa.Integer(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column(
            "led_to",
            sa.Text(),
            nullable=True,
            comment="the trial's state right after; the receipt that replays are answered from",
        ),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("last_step", sa.BigInteger(), nullable=True),
        sa.Column("adopted_from", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "led_to IN ('pending', 'paused', 'completed', 'pruned', 'failed', 'cancelled')",
            name=op.f("attempts_led_to"),
        ),
        sa.CheckConstraint(
            "outcome IN ('completed', 'pruned', 'paused', 'evicted', 'crashed', 'lost',"
            " 'cancelled', 'invalid', 'environment')",
            name=op.f("attempts_outcome"),
        ),
        sa.CheckConstraint(
            "(ended_at IS NULL) = (outcome IS NULL) AND (ended_at IS NULL) = (led_to IS NULL)",
            name=op.f("attempts_ends_once"),
        ),
        sa.CheckConstraint("fence >= 1", name=op.f("attempts_fence")),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["sweeper.trials.trial_id"], name=op.f("attempts_trial_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("lease_id", name=op.f("attempts_pkey")),
        schema="sweeper",
        comment="append-only: opened by the grant, closed by exactly one ending",
        postgresql_with={"fillfactor": 80},
    )
    op.create_index("attempts_trial_id_fence", "attempts", ["trial_id", "fence"], unique=False, schema="sweeper")


def _checkpoints() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("checkpoint_id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("trial_id", sa.BigInteger(), nullable=False),
        sa.Column("lineage", sa.Integer(), nullable=False),
        sa.Column("lease_id", sa.Text(), nullable=False, comment="the lease that committed the row"),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("manifest_key", sa.Text(), nullable=False),
        sa.Column("manifest_hash", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("save_s", sa.Double(), nullable=True, comment="from the seal to the commit; unknown when adopted"),
        sa.Column("state", sa.Text(), server_default="live", nullable=False),
        sa.Column("evidence", sa.Text(), nullable=True, comment="why it is suspect"),
        sa.Column("committed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("(state = 'retired') = (retired_at IS NOT NULL)", name=op.f("checkpoints_retired")),
        sa.CheckConstraint("state IN ('live', 'suspect', 'retired')", name=op.f("checkpoints_state")),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["sweeper.trials.trial_id"], name=op.f("checkpoints_trial_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("checkpoint_id", name=op.f("checkpoints_pkey")),
        sa.UniqueConstraint("trial_id", "manifest_key", name=op.f("checkpoints_trial_id_manifest_key_key")),
        schema="sweeper",
    )
    op.create_index(
        "checkpoints_retired_at",
        "checkpoints",
        ["retired_at"],
        unique=False,
        schema="sweeper",
        postgresql_where=sa.text("state = 'retired'"),
    )


def _configs() -> None:
    op.create_table(
        "configs",
        sa.Column("trial_id", sa.BigInteger(), nullable=False),
        sa.Column("lineage", sa.Integer(), nullable=False),
        sa.Column("config_text", sa.Text(), nullable=False, comment="canonical; its hash is the trial's config_hash"),
        sa.Column("overrides", sa.JSON(), nullable=False),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["sweeper.trials.trial_id"], name=op.f("configs_trial_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("trial_id", "lineage", name=op.f("configs_pkey")),
        schema="sweeper",
        comment="immutable",
    )


def _numbers() -> None:
    op.create_table(
        "numbers",
        sa.Column("sweep_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("trial_id", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True, comment="why this number has no trial"),
        sa.CheckConstraint("(trial_id IS NULL) <> (reason IS NULL)", name=op.f("numbers_trial_or_reason")),
        sa.ForeignKeyConstraint(
            ["sweep_id"], ["sweeper.sweeps.sweep_id"], name=op.f("numbers_sweep_id_fkey"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["sweeper.trials.trial_id"], name=op.f("numbers_trial_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("sweep_id", "number", name=op.f("numbers_pkey")),
        schema="sweeper",
        comment="first numbers and aliases alike",
    )


def _reports() -> None:
    op.create_table(
        "reports",
        sa.Column("trial_id", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False, comment="in whatever unit the user chose"),
        sa.Column("at_step", sa.BigInteger(), nullable=False, comment="training step at which it was made"),
        sa.Column("value", sa.Double(), nullable=False, comment="NaN and infinities included"),
        sa.Column("metrics", sa.JSON(), nullable=False, comment="tagged JSON"),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("reported_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["sweeper.trials.trial_id"], name=op.f("reports_trial_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("trial_id", "step", name=op.f("reports_pkey")),
        schema="sweeper",
    )


def _requests() -> None:
    op.create_table(
        "requests",
        sa.Column("trial_id", sa.BigInteger(), nullable=False),
        sa.Column("asker_id", sa.Text(), nullable=False),
        sa.Column("sweep_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["asker_id"], ["sweeper.askers.asker_id"], name=op.f("requests_asker_id_fkey"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["sweeper.trials.trial_id"], name=op.f("requests_trial_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("trial_id", "asker_id", name=op.f("requests_pkey")),
        schema="sweeper",
        comment="workers lease only what somebody asks for",
    )
    op.create_index("requests_asker_id", "requests", ["asker_id"], unique=False, schema="sweeper")
