"""What every choice of a search has in common: it is made under the coordinator's fence, and kept with what it changed.

Whoever chooses locks the sweep's row in `coordinators` first, by id and fence. So choices of one sweep are made one
after the other, and a coordinator that was replaced changes nothing any more (FENCE).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from sweeper.errors import CoordinatorLost
from sweeper.ids import CoordinatorId, SweepId
from sweeper.model.trial import Json

LEADS: Final = "c.sweep_id = :sweep_id AND c.coordinator_id = :coordinator_id AND c.fence = :fence"
"""Guard of the row `sweeper.coordinators c`."""

LEADING: Final = f"""led AS MATERIALIZED (
    SELECT c.sweep_id, c.next_number FROM sweeper.coordinators c WHERE {LEADS} FOR NO KEY UPDATE
)"""
"""A CTE, the first of its statement: one row while the caller leads."""


def attrs_kept(by: str) -> str:
    """Give the CTE that keeps the study attributes that a choice changed, once CTE `by` (sweep_id) has a row."""
    return f"""kept AS (
    INSERT INTO sweeper.study_attrs (sweep_id, key, value)
    SELECT b.sweep_id, n.key, CAST(n.value AS json)
    FROM {by} b, unnest(:attr_keys, :attr_values) AS n (key, value)
    ON CONFLICT (sweep_id, key) DO UPDATE SET value = excluded.value
)"""


def attr_parameters(attrs: Mapping[str, Json]) -> dict[str, Any]:
    """The parameters of `attrs_kept`."""
    return {
        "attr_keys": list(attrs),
        "attr_values": [json.dumps(value, allow_nan=False) for value in attrs.values()],
    }


def leader(sweep_id: SweepId, coordinator_id: CoordinatorId, fence: int) -> dict[str, Any]:
    """The parameters of `LEADS`."""
    return {"sweep_id": sweep_id, "coordinator_id": coordinator_id, "fence": fence}


def coordinator_lost(sweep_id: SweepId, coordinator_id: CoordinatorId, fence: int) -> CoordinatorLost:
    """The error for a choice whose guard found no row."""
    return CoordinatorLost(f"coordinator {coordinator_id} (fence {fence}) no longer leads sweep {sweep_id}")
