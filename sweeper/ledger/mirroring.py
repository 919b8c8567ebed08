"""What the mirror has to show.

Two things change a trial's entry: a new version of its row (`version`, raised by every change of state that lasts), and
under the same version its attempts and reports, which are looked up for the few trials that run. A trial that was never
started is not shown.

Of a long history of reports the mirror has a selection: all of the first `DENSE`, then each that is a hundredth further
from the first than the one before; of a final trial also the last. Which are selected depends on earlier ones only, and
is found by index, so neither a look at a running trial nor one at a finished one reads all that it reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from sweeper.ids import ConfigHash, SweepId, TrialId, TrialNumber
from sweeper.ledger.guards import NOW
from sweeper.ledger.sql import statement
from sweeper.ledger.statements import Statements
from sweeper.model.mirror import (
    FreshReports,
    LiveTrial,
    MirrorPlace,
    MirrorReport,
    MirrorTrial,
    PointAnswer,
)
from sweeper.model.search import Proposal
from sweeper.model.states import TrialState
from sweeper.model.tagged import from_tagged

DENSE: Final = 300
"""Reports of a trial that are all mirrored; of later ones ever fewer."""
SPREAD: Final = 100
"""A later report is mirrored when it is at least this part of the way so far beyond the one before."""

STARTED: Final = "(t.attempts > 0 OR t.state NOT IN ('pending', 'cancelled'))"
"""Condition on a trial `t`: it is shown."""

_TRIALS: Final = f"""
SELECT t.trial_id, t.number, t.config_hash, t.lineage, t.state, t.version, t.fence, t.attempts, t.crashes, t.step,
       t.result, t.finished_at, coalesce(t.reason, last.reason, '') AS reason,
       CASE WHEN t.state IN ('pending', 'failed') THEN coalesce(last.error, '') ELSE '' END AS error,
       coalesce(a.started_at, t.finished_at, {NOW}) AS started_at, a.evictions,
       coalesce(CASE WHEN t.lineage > 0 THEN c.proposal END, n.proposal) AS proposal, p.mirror_id,
       m.optuna_trial_id, m.lineage AS mirrored_lineage, m.at_step, m.study
FROM sweeper.trials t
JOIN sweeper.configs c ON c.trial_id = t.trial_id AND c.lineage = t.lineage
JOIN sweeper.numbers n ON n.sweep_id = t.sweep_id AND n.number = t.number
LEFT JOIN sweeper.mirrored m ON m.trial_id = t.trial_id
LEFT JOIN sweeper.enqueued p ON p.sweep_id = t.sweep_id AND p.number = t.number AND p.source = 'mirror'
CROSS JOIN LATERAL (
    SELECT min(b.started_at) AS started_at, count(*) FILTER (WHERE b.outcome = 'evicted') AS evictions
    FROM sweeper.attempts b WHERE b.trial_id = t.trial_id
) a
LEFT JOIN LATERAL (
    SELECT b.reason, b.error FROM sweeper.attempts b
    WHERE b.trial_id = t.trial_id AND b.lineage = t.lineage AND b.ended_at IS NOT NULL
    ORDER BY b.fence DESC LIMIT 1
) last ON true
"""

_UNMIRRORED = statement(f"""
{_TRIALS} WHERE t.sweep_id = :sweep_id AND t.version <> t.mirrored_version AND {STARTED}
ORDER BY t.state <> 'running', t.number LIMIT :limit
""")

_PLACED = statement(f"""
{_TRIALS} WHERE t.sweep_id = :sweep_id AND t.version <> t.mirrored_version AND {STARTED}
    AND (m.trial_id IS NOT NULL OR p.mirror_id IS NOT NULL)
ORDER BY t.state <> 'running', t.number LIMIT :limit
""")

_NEW = statement(f"""
{_TRIALS} WHERE t.sweep_id = :sweep_id AND t.version <> t.mirrored_version AND {STARTED}
    AND m.trial_id IS NULL AND p.mirror_id IS NULL
    AND (t.finished_at IS NOT NULL OR a.started_at < {NOW} - make_interval(secs => :older_than_s))
ORDER BY t.number LIMIT :limit
""")

_OF_IDS = statement(f"{_TRIALS} WHERE t.trial_id = ANY (:trial_ids) AND {STARTED} ORDER BY t.number")

_FROM_NUMBER = statement(f"""
{_TRIALS} WHERE t.sweep_id = :sweep_id AND t.number >= :number_floor AND {STARTED} ORDER BY t.number LIMIT :limit
""")

_LIVE = statement("""
SELECT t.trial_id, t.fence, t.state, m.trial_id IS NOT NULL AS placed
FROM sweeper.trials t LEFT JOIN sweeper.mirrored m ON m.trial_id = t.trial_id
WHERE t.sweep_id = :sweep_id AND t.finished_at IS NULL
  AND (t.state = 'running' OR (t.state = 'pending' AND t.attempts > 0))
""")

# From the selected report `p` to the next one: one lookup by primary key. `nth` counts the selected ones, up to DENSE.
_NEXT: Final = f"""
SELECT p.trial_id, r.step, r.value, least(p.nth + 1, {DENSE})::int, coalesce(p.first, r.step)
FROM picked p CROSS JOIN LATERAL (
    SELECT q.step, q.value FROM sweeper.reports q
    WHERE q.trial_id = p.trial_id
      AND q.step >= p.step + CASE WHEN p.nth < {DENSE} THEN 1 ELSE greatest((p.step - p.first) / {SPREAD}, 1) END
    ORDER BY q.step LIMIT 1
) r
"""

_REPORTS = statement(f"""
WITH RECURSIVE dense AS (
    SELECT g.trial_id, r.step, r.value, row_number() OVER (PARTITION BY g.trial_id ORDER BY r.step)::int AS nth,
           min(r.step) OVER (PARTITION BY g.trial_id) AS first
    FROM unnest(:trial_ids) AS g (trial_id) CROSS JOIN LATERAL (
        SELECT q.step, q.value FROM sweeper.reports q WHERE q.trial_id = g.trial_id ORDER BY q.step LIMIT {DENSE}
    ) r
), picked AS (
    SELECT d.trial_id, d.step, d.value, d.nth, d.first FROM dense d WHERE d.nth = {DENSE}
    UNION ALL
    {_NEXT}
)
SELECT d.trial_id, d.step, d.value FROM dense d
UNION SELECT p.trial_id, p.step, p.value FROM picked p
UNION SELECT t.trial_id, l.step, l.value
FROM sweeper.trials t CROSS JOIN LATERAL (
    SELECT q.step, q.value FROM sweeper.reports q WHERE q.trial_id = t.trial_id ORDER BY q.step DESC LIMIT 1
) l
WHERE t.trial_id = ANY (:trial_ids) AND t.finished_at IS NOT NULL
ORDER BY trial_id, step
""")

_FRESH = statement(f"""
WITH RECURSIVE picked (trial_id, step, value, nth, first) AS (
    SELECT m.trial_id, m.at_step, CAST(NULL AS double precision), (
               SELECT count(*)::int FROM (
                   SELECT FROM sweeper.reports q
                   WHERE q.trial_id = m.trial_id AND q.step <= m.at_step ORDER BY q.step LIMIT {DENSE}
               ) d
           ), (SELECT q.step FROM sweeper.reports q WHERE q.trial_id = m.trial_id ORDER BY q.step LIMIT 1)
    FROM sweeper.mirrored m WHERE m.trial_id = ANY (:trial_ids)
    UNION ALL
    {_NEXT}
)
SELECT p.trial_id, p.step, p.value, m.optuna_trial_id, m.lineage, m.at_step, m.study
FROM picked p JOIN sweeper.mirrored m ON m.trial_id = p.trial_id
WHERE p.value IS NOT NULL
ORDER BY p.trial_id, p.step
""")

_LAST_METRICS = statement("""
SELECT DISTINCT ON (r.trial_id) r.trial_id, r.metrics FROM sweeper.reports r
WHERE r.trial_id = ANY (:trial_ids) ORDER BY r.trial_id, r.step DESC
""")

_LARGEST_STEP = statement("""
SELECT coalesce(max(r.step), 0) AS largest
FROM sweeper.trials t CROSS JOIN LATERAL (
    SELECT q.step FROM sweeper.reports q WHERE q.trial_id = t.trial_id ORDER BY q.step DESC LIMIT 1
) r
WHERE t.sweep_id = :sweep_id
""")

_LAG = statement(f"""
SELECT count(*) AS lag FROM sweeper.trials t
WHERE t.sweep_id = :sweep_id AND t.version <> t.mirrored_version AND {STARTED}
""")

_ANSWERS = statement("""
SELECT e.key, coalesce(e.refused, n.reason) AS refused, t.number, t.number = e.number AS is_own
FROM sweeper.enqueued e
LEFT JOIN sweeper.numbers n ON n.sweep_id = e.sweep_id AND n.number = e.number
LEFT JOIN sweeper.trials t ON t.trial_id = n.trial_id
WHERE e.sweep_id = :sweep_id AND e.key = ANY (:texts) AND (e.number IS NOT NULL OR e.refused IS NOT NULL)
""")


def mirror_batch(db: Statements, sweep_id: SweepId, *, limit: int, placed: bool = False) -> list[MirrorTrial]:
    """Trials whose newest version the mirror does not have, running ones first; without their reports.

    Args:
        limit: how many at most.
        placed: only those that have an entry, or are to have one that is there.
    """
    query = _PLACED if placed else _UNMIRRORED
    return [_trial(row) for row in db.run(query, {"now": db.now, "sweep_id": sweep_id, "limit": limit})]


def mirror_new(db: Statements, sweep_id: SweepId, *, older_than_s: float, limit: int) -> list[MirrorTrial]:
    """Trials that have no entry yet, by number; without their reports.

    Args:
        older_than_s: how long ago one that is not final must have begun.
        limit: how many at most.
    """
    parameters = {"now": db.now, "sweep_id": sweep_id, "older_than_s": older_than_s, "limit": limit}
    return [_trial(row) for row in db.run(_NEW, parameters)]


def mirror_trials(db: Statements, trial_ids: Sequence[TrialId]) -> list[MirrorTrial]:
    """Those trials, by number, as far as they were started; without their reports."""
    return [_trial(row) for row in db.run(_OF_IDS, {"now": db.now, "trial_ids": list(trial_ids)})]


def mirror_page(db: Statements, sweep_id: SweepId, *, first: int, limit: int) -> list[MirrorTrial]:
    """Trials from a number on, mirrored or not, by number; without their reports."""
    parameters = {"now": db.now, "sweep_id": sweep_id, "number_floor": first, "limit": limit}
    return [_trial(row) for row in db.run(_FROM_NUMBER, parameters)]


def live_trials(db: Statements, sweep_id: SweepId) -> list[LiveTrial]:
    """Trials whose attempts go on: running, or taken from a worker and waiting for the next."""
    return [
        LiveTrial(trial_id=TrialId(row.trial_id), fence=row.fence, state=TrialState(row.state), placed=row.placed)
        for row in db.run(_LIVE, {"sweep_id": sweep_id})
    ]


def mirror_reports(db: Statements, trial_ids: Sequence[TrialId]) -> Mapping[TrialId, tuple[MirrorReport, ...]]:
    """The reports that the mirror shows, by step; trials without any are absent."""
    found: dict[TrialId, list[MirrorReport]] = {}
    for row in db.run(_REPORTS, {"trial_ids": list(trial_ids)}):
        found.setdefault(TrialId(row.trial_id), []).append(MirrorReport(step=row.step, value=row.value))
    return {trial_id: tuple(reports) for trial_id, reports in found.items()}


def fresh_reports(db: Statements, trial_ids: Sequence[TrialId]) -> list[FreshReports]:
    """Reports of those mirrored trials beyond the last that the mirror has."""
    found: dict[TrialId, tuple[MirrorPlace, list[MirrorReport]]] = {}
    for row in db.run(_FRESH, {"trial_ids": list(trial_ids)}):
        reports = found.setdefault(TrialId(row.trial_id), (_place(row, row.lineage), []))[1]
        reports.append(MirrorReport(step=row.step, value=row.value))
    return [
        FreshReports(trial_id=trial_id, place=place, reports=tuple(reports))
        for trial_id, (place, reports) in found.items()
    ]


def last_metrics(db: Statements, trial_ids: Sequence[TrialId]) -> Mapping[TrialId, Mapping[str, float]]:
    """The metrics of each trial's last report; trials without reports are absent."""
    rows = db.run(_LAST_METRICS, {"trial_ids": list(trial_ids)})
    return {TrialId(row.trial_id): from_tagged(row.metrics) for row in rows}


def largest_step(db: Statements, sweep_id: SweepId) -> int:
    """The largest step that any trial reported; 0 where none did."""
    largest: int = db.run(_LARGEST_STEP, {"sweep_id": sweep_id})[0].largest
    return largest


def mirror_lag(db: Statements, sweep_id: SweepId) -> int:
    """How many trials the mirror does not show as they are."""
    lag: int = db.run(_LAG, {"sweep_id": sweep_id})[0].lag
    return lag


def point_answers(db: Statements, sweep_id: SweepId, keys: Sequence[str]) -> list[PointAnswer]:
    """What became of enqueued points, as far as anything has."""
    return [
        PointAnswer(
            key=row.key,
            refused=row.refused,
            trial_number=None if row.number is None else TrialNumber(row.number),
            is_own=bool(row.is_own),
        )
        for row in db.run(_ANSWERS, {"sweep_id": sweep_id, "texts": list(keys)})
    ]


def _trial(row: sa.Row[Any]) -> MirrorTrial:
    proposal = Proposal() if row.proposal is None else Proposal.from_json(row.proposal)
    return MirrorTrial(
        trial_id=TrialId(row.trial_id),
        number=TrialNumber(row.number),
        config_hash=ConfigHash(row.config_hash),
        lineage=row.lineage,
        state=TrialState(row.state),
        version=row.version,
        fence=row.fence,
        attempts=row.attempts,
        evictions=row.evictions,
        crashes=row.crashes,
        step=row.step,
        reason=row.reason,
        error=row.error,
        result=row.result,
        params=proposal.params,
        extra=proposal.extra,
        started_at=row.started_at,
        finished_at=row.finished_at,
        place=None if row.optuna_trial_id is None else _place(row, row.mirrored_lineage),
        point_id=row.mirror_id,
    )


def _place(row: sa.Row[Any], lineage: int) -> MirrorPlace:
    return MirrorPlace(optuna_trial_id=row.optuna_trial_id, lineage=lineage, last_step=row.at_step, study=row.study)
