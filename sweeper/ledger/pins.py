"""Pins: checkpoints that outlive retention, because a rung or an heir still needs them.

A pin names the checkpoint, who needs it, and why. Retiring passes over pinned checkpoints, and so does collection,
which is what counts: a checkpoint that was retired in the very moment in which it was pinned keeps its objects.
"""

from __future__ import annotations

from typing import Final

from sweeper.ids import TrialId
from sweeper.ledger.guards import NOW
from sweeper.ledger.sql import statement
from sweeper.ledger.statements import Statements
from sweeper.model.states import PinReason

PINNED: Final = "EXISTS (SELECT FROM sweeper.pins q WHERE q.checkpoint_id = c.checkpoint_id)"
"""Condition on a checkpoint `c`."""


def freed(unpinned: str) -> str:
    """Give the CTE that retires what nobody needs any more, once the pins in CTE `unpinned` are gone.

    Its own trial would not: that has ended, or begun another lineage. `unpinned` has checkpoint_id and trial_id.
    """
    return f"""freed AS (
    UPDATE sweeper.checkpoints c SET state = 'retired', retired_at = {NOW}
    FROM {unpinned} n, sweeper.trials o
    WHERE c.checkpoint_id = n.checkpoint_id AND c.state = 'live' AND o.trial_id = c.trial_id
      AND (o.finished_at IS NOT NULL OR o.lineage <> c.lineage) AND o.head_id IS DISTINCT FROM c.checkpoint_id
      AND NOT EXISTS (
          SELECT FROM sweeper.pins q
          WHERE q.checkpoint_id = c.checkpoint_id AND q.trial_id <> n.trial_id
      )
)"""


_PIN_HEAD = statement("""
WITH guarded AS (
    SELECT t.trial_id, t.head_id FROM sweeper.trials t
    WHERE t.trial_id = :trial_id AND t.head_id IS NOT NULL
    FOR NO KEY UPDATE
), pinned AS (
    INSERT INTO sweeper.pins (checkpoint_id, trial_id, reason) SELECT g.head_id, g.trial_id, :reason FROM guarded g
    ON CONFLICT (checkpoint_id, trial_id, reason) DO NOTHING
)
SELECT g.head_id FROM guarded g
""")

_UNPIN = statement(f"""
WITH unpinned AS (
    DELETE FROM sweeper.pins p USING sweeper.trials t
    WHERE p.trial_id = :trial_id AND p.reason = :reason AND t.trial_id = p.trial_id
      AND (p.reason <> 'heir' OR t.head_id IS DISTINCT FROM p.checkpoint_id)
    RETURNING p.checkpoint_id, p.trial_id
), {freed("unpinned")}
SELECT n.checkpoint_id FROM unpinned n
""")


def pin_head(db: Statements, trial_id: TrialId, reason: PinReason) -> bool:
    """Keep the checkpoint that the trial would resume from; False when it has none."""
    return bool(db.run(_PIN_HEAD, {"trial_id": trial_id, "reason": reason.value}))


def unpin(db: Statements, trial_id: TrialId, reason: PinReason) -> None:
    """Give up what was pinned for the trial and this reason, but never what an heir would still begin with."""
    db.run(_UNPIN, {"now": db.now, "trial_id": trial_id, "reason": reason.value})
