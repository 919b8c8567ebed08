"""How far this ledger has come with a sweep, and whether it is behind what it once wrote of itself (rolled back).

A ledger that was restored from an older copy, or lost its last seconds in a failover, does not know it. But the mark
that its coordinator keeps in the store names the newest grant of that time by its random lease id, and attempts are
never deleted: a ledger that does not know that lease has forgotten it, whatever was granted since.
"""

from __future__ import annotations

from sweeper.ids import SweepId
from sweeper.ledger.sql import statement
from sweeper.ledger.statements import Statements
from sweeper.model.highwater import HighWater

_MARK = statement("""
SELECT c.next_number, l.ledger_id,
       (SELECT count(*) FROM sweeper.trials t WHERE t.sweep_id = c.sweep_id AND t.finished_at IS NOT NULL) AS finals,
       (SELECT coalesce(sum(t.fence), 0)::bigint FROM sweeper.trials t WHERE t.sweep_id = c.sweep_id) AS grants,
       (SELECT a.lease_id FROM sweeper.attempts a JOIN sweeper.trials t ON t.trial_id = a.trial_id
        WHERE t.sweep_id = c.sweep_id ORDER BY a.started_at DESC, a.lease_id LIMIT 1) AS newest_lease
FROM sweeper.coordinators c CROSS JOIN sweeper.ledger l
WHERE c.sweep_id = :sweep_id
""")

_BEHIND = statement("""
SELECT c.next_number < :expected
       OR (:lease_id IS NOT NULL AND NOT EXISTS (SELECT FROM sweeper.attempts a WHERE a.lease_id = :lease_id)) AS behind
FROM sweeper.coordinators c WHERE c.sweep_id = :sweep_id
""")

_NOTE = statement("""
UPDATE sweeper.sweeps s SET seen_fence = :seen_fence WHERE s.sweep_id = :sweep_id AND s.seen_fence < :seen_fence
""")


def high_water(db: Statements, sweep_id: SweepId) -> HighWater:
    """How far the sweep is in this ledger."""
    row = db.run(_MARK, {"sweep_id": sweep_id})[0]
    return HighWater(
        ledger_id=row.ledger_id,
        next_number=row.next_number,
        finals=row.finals,
        grants=row.grants,
        newest_lease=row.newest_lease,
    )


def is_behind(db: Statements, sweep_id: SweepId, mark: HighWater) -> bool:
    """Whether this ledger has lost what was there when the mark was made. Read the mark first, then ask."""
    parameters = {"sweep_id": sweep_id, "expected": mark.next_number, "lease_id": mark.newest_lease}
    return bool(db.run(_BEHIND, parameters)[0].behind)


def note_rollback(db: Statements, sweep_id: SweepId, *, seen_fence: int) -> None:
    """Have every further grant look for evidence in the store, under fences above all that were ever seen (ONCE).

    Args:
        db: the ledger that is behind.
        sweep_id: the sweep.
        seen_fence: the highest fence known to have been granted; the mark only rises.
    """
    db.run(_NOTE, {"sweep_id": sweep_id, "seen_fence": seen_fence})
