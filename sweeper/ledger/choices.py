"""What every choice of a search has in common: it is made under the coordinator's fence, and kept with what it changed.

Whoever chooses locks the sweep's row in `coordinators` first, by id and fence. So choices of one sweep are made one
after the other, and a coordinator that was replaced changes nothing any more (FENCE).
"""

from __future__ import annotations

from typing import Any, Final

from sweeper.errors import CoordinatorLost
from sweeper.ids import CoordinatorId, SweepId

LEADS: Final = "c.sweep_id = :sweep_id AND c.coordinator_id = :coordinator_id AND c.fence = :fence"
"""Guard of the row `sweeper.coordinators c`."""

LEADING: Final = f"""led AS MATERIALIZED (
    SELECT c.sweep_id, c.next_number FROM sweeper.coordinators c WHERE {LEADS} FOR NO KEY UPDATE
)"""
"""A CTE, the first of its statement: one row while the caller leads."""

MERGED_ATTRS: Final = """(
    SELECT json_object_agg(m.key, m.value) FROM (
        SELECT o.key, o.value FROM json_each(coalesce(s.study_attrs, '{}')) o
        WHERE o.key NOT IN (SELECT json_object_keys(:study_attrs))
        UNION ALL SELECT n.key, n.value FROM json_each(:study_attrs) n
    ) m
)"""
"""The study attributes of sweep `s` with those given put over them; `json`, so that every number keeps its text."""


def leader(sweep_id: SweepId, coordinator_id: CoordinatorId, fence: int) -> dict[str, Any]:
    """The parameters of `LEADS`."""
    return {"sweep_id": sweep_id, "coordinator_id": coordinator_id, "fence": fence}


def coordinator_lost(sweep_id: SweepId, coordinator_id: CoordinatorId, fence: int) -> CoordinatorLost:
    """The error for a choice whose guard found no row."""
    return CoordinatorLost(f"coordinator {coordinator_id} (fence {fence}) no longer leads sweep {sweep_id}")
