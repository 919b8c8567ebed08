"""Tables that only a search fills: its decisions, what they pin, the points to try first, and the mirror's map."""

from __future__ import annotations

import sqlalchemy as sa

from sweeper.ledger.row_rules import one_of
from sweeper.ledger.tables import SCHEMA, checkpoints, metadata, moment, sweeps, trials
from sweeper.model.search import DecisionKind
from sweeper.model.states import PinReason, PointSource

__all__ = ["SCHEMA", "decisions", "enqueued", "metadata", "mirrored", "pins", "study_attrs"]

decisions = sa.Table(
    "decisions",
    metadata,
    sa.Column("trial_id", sa.BigInteger, sa.ForeignKey(trials.c.trial_id, ondelete="CASCADE"), primary_key=True),
    sa.Column("lineage", sa.Integer, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("step", sa.BigInteger, primary_key=True, comment="of the report, or a rung's resource"),
    sa.Column("sweep_id", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("value", sa.Double, comment="what it rests on, NaN included"),
    sa.Column("facts", sa.JSON, nullable=False),
    moment("decided_at"),
    # A cursor on a sequence misses rows that commit late; these are written by one session at a time, under the lock
    # of the sweep's row in `coordinators`, so they commit in this order.
    sa.Column("position", sa.BigInteger, sa.Identity(always=True), nullable=False),
    sa.CheckConstraint(one_of("kind", DecisionKind), name="kind"),
    sa.CheckConstraint("action IN ('go_on', 'pause', 'prune')", name="action"),
    sa.Index("decisions_sweep_id_position", "sweep_id", "position"),
    comment="choices of the search, each made once",
)

study_attrs = sa.Table(
    "study_attrs",
    metadata,
    sa.Column("sweep_id", sa.Text, sa.ForeignKey(sweeps.c.sweep_id, ondelete="CASCADE"), primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.JSON, nullable=False, comment="tagged JSON"),
    comment="what samplers keep in the study",
)

pins = sa.Table(
    "pins",
    metadata,
    sa.Column(
        "checkpoint_id", sa.BigInteger, sa.ForeignKey(checkpoints.c.checkpoint_id, ondelete="CASCADE"), primary_key=True
    ),
    sa.Column(
        "trial_id",
        sa.BigInteger,
        sa.ForeignKey(trials.c.trial_id, ondelete="CASCADE"),
        primary_key=True,
        comment="who needs it; another trial than its own for an heir",
    ),
    sa.Column("reason", sa.Text, primary_key=True),
    sa.CheckConstraint(one_of("reason", PinReason), name="reason"),
    sa.Index("pins_trial_id", "trial_id"),
    comment="checkpoints that outlive retention",
)

enqueued = sa.Table(
    "enqueued",
    metadata,
    sa.Column("sweep_id", sa.Text, sa.ForeignKey(sweeps.c.sweep_id, ondelete="CASCADE"), primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("point", sa.JSON, nullable=False, comment="tagged JSON by parameter name"),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("mirror_id", sa.BigInteger, comment="the waiting entry of the mirrored study that it was copied from"),
    sa.Column("number", sa.Integer, comment="the number that it was tried under"),
    sa.Column("refused", sa.Text, comment="why it cannot be tried"),
    sa.CheckConstraint(one_of("source", PointSource), name="source"),
    sa.CheckConstraint("number IS NULL OR refused IS NULL", name="number_or_refused"),
    comment="points that are tried first, once each",
)
sa.Index(
    "enqueued_waiting",
    enqueued.c.sweep_id,
    enqueued.c.position,
    postgresql_where=sa.text("number IS NULL AND refused IS NULL"),
)

mirrored = sa.Table(
    "mirrored",
    metadata,
    sa.Column("trial_id", sa.BigInteger, sa.ForeignKey(trials.c.trial_id, ondelete="CASCADE"), primary_key=True),
    sa.Column("optuna_trial_id", sa.BigInteger, nullable=False),
    sa.Column("lineage", sa.Integer, nullable=False),
    sa.Column("at_step", sa.BigInteger, nullable=False, comment="reports up to here are in the mirror"),
    sa.Column("study", sa.Text, nullable=False),
    comment="where our trials are in the mirrored Optuna study",
)
