"""Points that somebody wants tried first: from the command's config, or put into the mirrored study (OP-13)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from sweeper.ids import CoordinatorId, SweepId
from sweeper.ledger.choices import LEADING, coordinator_lost, leader
from sweeper.ledger.sql import statement
from sweeper.ledger.statements import Statements
from sweeper.ledger.storable import storable
from sweeper.model.states import PointSource
from sweeper.model.trial import Json

# The sweep's row in `coordinators` is locked first, so that two commands do not give one position twice.
_ENQUEUE = statement("""
WITH guarded AS MATERIALIZED (
    SELECT c.sweep_id FROM sweeper.coordinators c WHERE c.sweep_id = :sweep_id FOR NO KEY UPDATE
)
INSERT INTO sweeper.enqueued (sweep_id, key, position, point, source, mirror_id)
SELECT g.sweep_id, n.key, n.nth::int + (
    SELECT coalesce(max(e.position), 0) FROM sweeper.enqueued e WHERE e.sweep_id = :sweep_id
), CAST(n.point AS json), :source, n.mirror_id
FROM guarded g, unnest(:keys, :points, :mirror_ids) WITH ORDINALITY AS n (key, point, mirror_id, nth)
ON CONFLICT (sweep_id, key) DO NOTHING
""")

_NEXT = statement("""
SELECT e.key, e.point FROM sweeper.enqueued e
WHERE e.sweep_id = :sweep_id AND e.number IS NULL AND e.refused IS NULL
ORDER BY e.position, e.key LIMIT 1
""")

_REFUSE = statement(f"""
WITH {LEADING}, refused AS (
    UPDATE sweeper.enqueued e SET refused = :reason FROM led l
    WHERE e.sweep_id = l.sweep_id AND e.key = :key AND e.number IS NULL AND e.refused IS NULL
)
SELECT l.sweep_id FROM led l
""")

BATCH: Final = 1000


def enqueue(
    db: Statements,
    sweep_id: SweepId,
    points: Sequence[tuple[str, Mapping[str, Json]]],
    *,
    source: PointSource,
    mirror_ids: Sequence[int] | None = None,
) -> None:
    """Put points at the end of the queue, in order. One whose key is known stays as it is, tried or not.

    Args:
        points: key and values (tagged JSON by parameter name); the sampler chooses what a point leaves out.
        source: who wants it.
        mirror_ids: the waiting entries of the mirrored study that they were copied from, one for each.
    """
    ids: Sequence[int | None] = [None] * len(points) if mirror_ids is None else mirror_ids
    for start in range(0, len(points), BATCH):
        batch = points[start : start + BATCH]
        parameters = {
            "sweep_id": sweep_id,
            "keys": [key for key, _ in batch],
            "points": [json.dumps(dict(point), allow_nan=False) for _, point in batch],
            "mirror_ids": list(ids[start : start + BATCH]),
            "source": source.value,
        }
        db.run(_ENQUEUE, parameters)


def next_enqueued(db: Statements, sweep_id: SweepId) -> tuple[str, dict[str, Json]] | None:
    """Give key and values of the first point that was neither tried nor refused."""
    rows = db.run(_NEXT, {"sweep_id": sweep_id})
    return (rows[0].key, rows[0].point) if rows else None


def set_enqueued_refused(
    db: Statements, sweep_id: SweepId, coordinator_id: CoordinatorId, fence: int, *, key: str, reason: str
) -> None:
    """Say why a point cannot be tried, and pass over it from now on.

    Raises:
        CoordinatorLost: another coordinator leads; choose nothing more.
    """
    parameters = {**leader(sweep_id, coordinator_id, fence), "key": key, "reason": storable(reason)}
    if not db.run(_REFUSE, parameters):
        raise coordinator_lost(sweep_id, coordinator_id, fence)
