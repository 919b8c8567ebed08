"""A search as a whole: what its samplers remember, whether it proposes more, and who is there to train."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sweeper.ids import AskerId, CoordinatorId, SweepId
from sweeper.ledger.choices import LEADING, coordinator_lost, leader
from sweeper.ledger.guards import NOW
from sweeper.ledger.sql import statement
from sweeper.ledger.statements import Statements
from sweeper.ledger.storable import storable
from sweeper.model.states import SweepState
from sweeper.model.trial import Json

RECENT_S: Final = 60.0
"""A worker that holds nothing is live while it asked for a trial within this time."""

_STUDY_ATTRS = statement("SELECT a.key, a.value FROM sweeper.study_attrs a WHERE a.sweep_id = :sweep_id ORDER BY a.key")

_SEARCH = statement("SELECT s.search FROM sweeper.sweeps s WHERE s.sweep_id = :sweep_id")

_END = statement(f"""
WITH {LEADING}, ended AS (
    UPDATE sweeper.sweeps s SET ended_reason = :reason FROM led l
    WHERE s.sweep_id = l.sweep_id AND s.ended_reason IS NULL
)
SELECT l.sweep_id FROM led l
""")

_RESUME = statement(f"""
WITH {LEADING}, resumed AS (
    UPDATE sweeper.sweeps s SET ended_reason = NULL, state = 'active' FROM led l
    WHERE s.sweep_id = l.sweep_id AND s.state <> 'cancelled' AND (s.ended_reason IS NOT NULL OR s.state <> 'active')
)
SELECT l.sweep_id FROM led l
""")

# A retry that commits while this waits for the row raises the revision, and its trials cannot be seen from here.
_FINISH = statement("""
UPDATE sweeper.sweeps s SET state = 'finished'
FROM sweeper.sweeps w JOIN sweeper.coordinators c ON c.sweep_id = w.sweep_id
WHERE s.sweep_id = :sweep_id AND w.sweep_id = s.sweep_id AND w.revision = s.revision AND s.state = 'active'
  AND (s.ended_reason IS NOT NULL OR c.next_number >= :expected)
  AND NOT EXISTS (SELECT FROM sweeper.trials t WHERE t.sweep_id = :sweep_id AND t.finished_at IS NULL)
""")

_STANDING = statement(f"""
SELECT s.state, s.ended_reason, s.revision, c.next_number,
  (c.coordinator_id IS NULL OR c.lease_expires_at < {NOW}) AS leaderless, (
    SELECT count(*) FROM (
        SELECT w.worker_id FROM sweeper.workers w
        WHERE w.sweep_id = s.sweep_id AND w.retired_at IS NULL AND w.seen_at > {NOW} - make_interval(secs => :recent_s)
        UNION
        SELECT t.worker_id FROM sweeper.trials t WHERE t.sweep_id = s.sweep_id AND t.state = 'running'
    ) live
) AS live_workers, EXISTS (
    SELECT FROM sweeper.enqueued e WHERE e.sweep_id = s.sweep_id AND e.number IS NULL AND e.refused IS NULL
) AS points_wait
FROM sweeper.sweeps s JOIN sweeper.coordinators c ON c.sweep_id = s.sweep_id
WHERE s.sweep_id = :sweep_id
""")

_REQUEST_OPEN = statement("""
WITH open AS MATERIALIZED (
    SELECT t.trial_id FROM sweeper.trials t WHERE t.sweep_id = :sweep_id AND t.finished_at IS NULL
), asked AS (
    INSERT INTO sweeper.requests (trial_id, asker_id, sweep_id)
    SELECT o.trial_id, a.asker_id, :sweep_id
    FROM open o, (SELECT b.asker_id FROM sweeper.askers b WHERE b.asker_id = :asker_id FOR KEY SHARE) a
    ON CONFLICT (trial_id, asker_id) DO NOTHING
)
SELECT count(*) AS trials FROM open
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStanding:
    """A search at one moment."""

    state: SweepState
    ended_reason: str | None
    """Why it proposes no more; None while it may."""
    next_number: int
    revision: int
    """Differs when final trials were opened again: whatever was built on their ends is void."""
    live_workers: int
    """Workers of any command that hold a trial, or asked for one lately."""
    points_wait: bool = False
    """Whether there are points to try first."""
    leaderless: bool = False
    """Whether nobody holds the sweep's lease."""


def study_attrs(db: Statements, sweep_id: SweepId) -> dict[str, Json]:
    """Give the attributes that samplers keep in the study, as tagged JSON."""
    return {row.key: row.value for row in db.run(_STUDY_ATTRS, {"sweep_id": sweep_id})}


def end_search(db: Statements, sweep_id: SweepId, coordinator_id: CoordinatorId, fence: int, *, reason: str) -> None:
    """Write down why the search proposes no more; the first reason stays. Open trials go on.

    Raises:
        CoordinatorLost: another coordinator leads; choose nothing more.
    """
    if not db.run(_END, {**leader(sweep_id, coordinator_id, fence), "reason": storable(reason)}):
        raise coordinator_lost(sweep_id, coordinator_id, fence)


def resume_search(db: Statements, sweep_id: SweepId, coordinator_id: CoordinatorId, fence: int) -> None:
    """Take a search up again that had ended or was finished: a larger total, another limit. A cancelled one stays.

    Raises:
        CoordinatorLost: another coordinator leads; choose nothing more.
    """
    if not db.run(_RESUME, leader(sweep_id, coordinator_id, fence)):
        raise coordinator_lost(sweep_id, coordinator_id, fence)


def finish_search(db: Statements, sweep_id: SweepId) -> None:
    """Mark the search finished, if it proposes no more and all its trials are final."""
    rows = db.run(_SEARCH, {"sweep_id": sweep_id})
    if rows and rows[0].search is not None:
        db.run(_FINISH, {"sweep_id": sweep_id, "expected": rows[0].search["n_trials"]})


def search_standing(db: Statements, sweep_id: SweepId, *, recent_s: float = RECENT_S) -> SearchStanding:
    """See how the search stands. A sweep that was deleted counts as cancelled."""
    rows = db.run(_STANDING, {"now": db.now, "sweep_id": sweep_id, "recent_s": recent_s})
    if not rows:
        return SearchStanding(state=SweepState.CANCELLED, ended_reason=None, next_number=0, revision=0, live_workers=0)
    row = rows[0]
    return SearchStanding(
        state=SweepState(row.state),
        ended_reason=row.ended_reason,
        next_number=row.next_number,
        revision=row.revision,
        live_workers=row.live_workers,
        points_wait=row.points_wait,
        leaderless=row.leaderless,
    )


def request_open(db: Statements, sweep_id: SweepId, asker_id: AskerId) -> int:
    """Ask for every open trial of the sweep, so that it is trained for as long as this command lives; give how many."""
    rows = db.run(_REQUEST_OPEN, {"sweep_id": sweep_id, "asker_id": asker_id})
    count: int = rows[0].trials
    return count
