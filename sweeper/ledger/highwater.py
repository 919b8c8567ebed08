"""How far this ledger has come with a sweep, and whether it is behind what it once wrote of itself (rolled back).

A ledger that was restored from an older copy, or lost its last seconds in a failover, does not know it. But the mark
that its coordinator keeps in the store names the newest grant of that time by its random lease id, and attempts are
never deleted: a ledger that does not know that lease has forgotten it, whatever was granted since.
"""

from __future__ import annotations

from typing import Final

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

# Numbers of a search are beyond doubt only in their order; what the lost ones stood for is in the store, or nowhere.
# A plain grid numbers its jobs by their order, and gets the same numbers again. Whoever searches this sweep at the
# moment, in whatever process, remembers a past that is no longer the ledger's: so the revision rises.
_NOTE = statement("""
WITH behind AS MATERIALIZED (
    SELECT c.sweep_id, c.next_number FROM sweeper.coordinators c JOIN sweeper.sweeps s ON s.sweep_id = c.sweep_id
    WHERE c.sweep_id = :sweep_id AND c.next_number < :expected AND s.search IS NOT NULL
    FOR NO KEY UPDATE OF c
), noted AS (
    UPDATE sweeper.sweeps s
    SET seen_fence = greatest(s.seen_fence, :seen_fence),
        revision = s.revision + ((SELECT count(*) FROM behind) > 0 OR s.seen_fence < :seen_fence)::int
    WHERE s.sweep_id = :sweep_id
), raised AS (
    UPDATE sweeper.coordinators c SET next_number = :expected FROM behind b WHERE c.sweep_id = b.sweep_id
)
INSERT INTO sweeper.numbers (sweep_id, number, reason)
SELECT b.sweep_id, n, :reason FROM behind b, generate_series(b.next_number, :expected - 1) n
ON CONFLICT (sweep_id, number) DO NOTHING
""")

LOST: Final = "given before the ledger was put back to an earlier copy, which does not know it"


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


def note_rollback(db: Statements, sweep_id: SweepId, *, seen_fence: int, next_number: int = 0) -> None:
    """Have every further grant look for evidence in the store, under fences above all that were ever seen (ONCE).

    A search gives no number again: those that the ledger has lost stay without a trial, the next one is beyond them.

    Args:
        db: the ledger that is behind.
        sweep_id: the sweep.
        seen_fence: the highest fence known to have been granted; the mark only rises.
        next_number: the next number by the mark in the store.
    """
    parameters = {"sweep_id": sweep_id, "seen_fence": seen_fence, "expected": next_number, "reason": LOST}
    db.run(_NOTE, parameters)
