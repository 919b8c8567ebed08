"""Searches: proposals, decisions and what they pin, enqueued points, the mirror's map."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add columns and tables. Workers of older code obey no stop and know no heirs: they lease nothing more."""
    _sweeps()
    _trials()
    op.add_column(
        "numbers",
        sa.Column("proposal", sa.JSON(), comment="what the sampler chose, and what it needs to know of that later"),
        schema="sweeper",
    )
    op.add_column(
        "configs",
        sa.Column("proposal", sa.JSON(), comment="of an exploit; otherwise it is the number's"),
        schema="sweeper",
    )
    _decisions()
    _study_attrs()
    _pins()
    _enqueued()
    _mirrored()
    op.execute("UPDATE sweeper.ledger SET min_code = 2 WHERE min_code < 2")


def _sweeps() -> None:
    for column in (
        sa.Column("search", sa.JSON(), comment="what is searched and how; none for a plain grid"),
        sa.Column("ended_reason", sa.Text(), comment="why the search proposes no more"),
        sa.Column(
            "revision",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="raised when final trials are opened again: whatever was built on them is void",
        ),
    ):
        op.add_column("sweeps", column, schema="sweeper")
    op.alter_column(
        "sweeps",
        "direction",
        comment="unused; upgrades only add, and older programs that still run select it",
        schema="sweeper",
    )


def _trials() -> None:
    for column in (
        sa.Column(
            "lineage_fence",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="reports of fences up to this one are of an earlier lineage",
        ),
        sa.Column("fault", sa.Text(), comment="why what the function returned is no objective"),
        sa.Column("stop_kind", sa.Text()),
        sa.Column("stop_step", sa.BigInteger()),
        sa.Column("stop_reason", sa.Text()),
    ):
        op.add_column("trials", column, schema="sweeper")
    for name, condition in (
        ("fault", "fault IN ('none', 'nan', 'kind', 'arity')"),
        ("fault_is_failed", "fault IS NULL OR state = 'failed'"),
        ("stop_kind", "stop_kind IN ('prune', 'pause')"),
        (
            "stop_is_whole",
            "(stop_kind IS NULL) = (stop_step IS NULL) AND (stop_kind IS NULL) = (stop_reason IS NULL)",
        ),
        ("stop_is_open", "stop_kind IS NULL OR state IN ('pending', 'running', 'pruned')"),
    ):
        op.create_check_constraint(op.f(f"trials_{name}"), "trials", condition, schema="sweeper")
    op.create_index(
        "trials_unfinished",
        "trials",
        ["sweep_id", "number"],
        unique=False,
        schema="sweeper",
        postgresql_where=sa.text("finished_at IS NULL"),
    )


def _decisions() -> None:
    op.create_table(
        "decisions",
        sa.Column("trial_id", sa.BigInteger(), nullable=False),
        sa.Column("lineage", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False, comment="of the report, or a rung's resource"),
        sa.Column("sweep_id", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), comment="what it rests on, NaN included"),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("position", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.CheckConstraint("kind IN ('report', 'rung', 'promote', 'exploit')", name=op.f("decisions_kind")),
        sa.CheckConstraint("action IN ('go_on', 'pause', 'prune')", name=op.f("decisions_action")),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["sweeper.trials.trial_id"], name=op.f("decisions_trial_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("trial_id", "lineage", "kind", "step", name=op.f("decisions_pkey")),
        schema="sweeper",
        comment="choices of the search, each made once",
    )
    op.create_index(
        "decisions_sweep_id_position", "decisions", ["sweep_id", "position"], unique=False, schema="sweeper"
    )


def _study_attrs() -> None:
    op.create_table(
        "study_attrs",
        sa.Column("sweep_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.JSON(), nullable=False, comment="tagged JSON"),
        sa.ForeignKeyConstraint(
            ["sweep_id"], ["sweeper.sweeps.sweep_id"], name=op.f("study_attrs_sweep_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("sweep_id", "key", name=op.f("study_attrs_pkey")),
        schema="sweeper",
        comment="what samplers keep in the study",
    )


def _pins() -> None:
    op.create_table(
        "pins",
        sa.Column("checkpoint_id", sa.BigInteger(), nullable=False),
        sa.Column(
            "trial_id",
            sa.BigInteger(),
            nullable=False,
            comment="who needs it; another trial than its own for an heir",
        ),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.CheckConstraint("reason IN ('rung', 'heir', 'best')", name=op.f("pins_reason")),
        sa.ForeignKeyConstraint(
            ["checkpoint_id"],
            ["sweeper.checkpoints.checkpoint_id"],
            name=op.f("pins_checkpoint_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["sweeper.trials.trial_id"], name=op.f("pins_trial_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("checkpoint_id", "trial_id", "reason", name=op.f("pins_pkey")),
        schema="sweeper",
        comment="checkpoints that outlive retention",
    )
    op.create_index("pins_trial_id", "pins", ["trial_id"], unique=False, schema="sweeper")


def _enqueued() -> None:
    op.create_table(
        "enqueued",
        sa.Column("sweep_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("point", sa.JSON(), nullable=False, comment="tagged JSON by parameter name"),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column(
            "mirror_id",
            sa.BigInteger(),
            nullable=True,
            comment="the waiting entry of the mirrored study that it was copied from",
        ),
        sa.Column("number", sa.Integer(), nullable=True, comment="the number that it was tried under"),
        sa.Column("refused", sa.Text(), nullable=True, comment="why it cannot be tried"),
        sa.CheckConstraint("source IN ('config', 'mirror')", name=op.f("enqueued_source")),
        sa.CheckConstraint("number IS NULL OR refused IS NULL", name=op.f("enqueued_number_or_refused")),
        sa.ForeignKeyConstraint(
            ["sweep_id"], ["sweeper.sweeps.sweep_id"], name=op.f("enqueued_sweep_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("sweep_id", "key", name=op.f("enqueued_pkey")),
        schema="sweeper",
        comment="points that are tried first, once each",
    )
    op.create_index(
        "enqueued_waiting",
        "enqueued",
        ["sweep_id", "position"],
        unique=False,
        schema="sweeper",
        postgresql_where=sa.text("number IS NULL AND refused IS NULL"),
    )


def _mirrored() -> None:
    op.create_table(
        "mirrored",
        sa.Column("trial_id", sa.BigInteger(), nullable=False),
        sa.Column("optuna_trial_id", sa.BigInteger(), nullable=False),
        sa.Column("lineage", sa.Integer(), nullable=False),
        sa.Column("at_step", sa.BigInteger(), nullable=False, comment="reports up to here are in the mirror"),
        sa.Column("study", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["sweeper.trials.trial_id"], name=op.f("mirrored_trial_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("trial_id", name=op.f("mirrored_pkey")),
        schema="sweeper",
        comment="where our trials are in the mirrored Optuna study",
    )
