"""The pulse: one row that witnesses that heartbeats could get through lately (BLIND).

Every statement that grants, renews or expires a lease touches it, at most every five seconds (or every half
heartbeat, if that is less). A gap of more than two heartbeats between touches, or a negative one, means that for a
while nobody could reach the ledger, or that its clock moved: `awake_since` starts again. A lease may expire only when
the ledger has been awake for one whole lease time, so that after an outage everybody alive has had the time to renew.
The server's start time is no such witness: after a promotion it tells of another server.
"""

from __future__ import annotations

from typing import Final

from sweeper.ledger.guards import NOW

_AWAKE_SINCE: Final = f"""
CASE WHEN {NOW} - p.last_seen_at BETWEEN interval '0' AND make_interval(secs => 2 * :heartbeat_s)
     THEN p.awake_since ELSE {NOW} END"""

TOUCHED: Final = f"""touched AS (
    UPDATE sweeper.pulse p SET last_seen_at = {NOW}, awake_since = {_AWAKE_SINCE}
    FROM (
        SELECT q.singleton FROM sweeper.pulse q
        WHERE {NOW} - q.last_seen_at NOT BETWEEN interval '0' AND make_interval(secs => least(5, :heartbeat_s / 2))
        FOR NO KEY UPDATE SKIP LOCKED
    ) due
    WHERE p.singleton = due.singleton
)"""
"""A CTE. Whoever finds the row locked goes on: somebody else is touching it. Parameters: now, heartbeat_s."""

AWAKE: Final = f"""
(SELECT {_AWAKE_SINCE} <= {NOW} - make_interval(secs => :lease_s) FROM sweeper.pulse p)"""
"""Whether leases may expire: awake for one lease time, this statement's own touch counted. Adds lease_s."""


def heartbeat_of(lease_s: float, heartbeat_s: float | None) -> float:
    """The heartbeat that a caller did not name: a quarter of the lease, as in the default settings."""
    return lease_s / 4 if heartbeat_s is None else heartbeat_s
