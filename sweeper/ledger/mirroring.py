"""What the mirror has to show.

Two things change a trial's entry: a new version of its row (`version`, raised by every change of state that lasts), and
under the same version its attempts and reports, which are looked up for the few trials that run. A trial that was never
started is not shown.

Of a long history of reports the mirror has a selection by position: all of the first `DENSE`, then every tenth up to
ten times as many, every hundredth up to a hundred times, every thousandth of the rest; a final trial's last one always.
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

_OF_IDS = statement(f"{_TRIALS} WHERE t.trial_id = ANY (:trial_ids) AND {STARTED} ORDER BY t.number")

_FROM_NUMBER = statement(f"""
{_TRIALS} WHERE t.sweep_id = :sweep_id AND t.number >= :number_floor AND {STARTED} ORDER BY t.number LIMIT :limit
""")

_LIVE = statement("""
SELECT t.trial_id, t.fence, t.state FROM sweeper.trials t
WHERE t.sweep_id = :sweep_id AND t.finished_at IS NULL
  AND (t.state = 'running' OR (t.state = 'pending' AND t.attempts > 0))
""")

_SELECTED: Final = f"""(
    s.ordinal <= {DENSE} OR s.ordinal % 10 = 0 AND s.ordinal <= {10 * DENSE}
    OR s.ordinal % 100 = 0 AND s.ordinal <= {100 * DENSE} OR s.ordinal % 1000 = 0
)"""

_REPORTS = statement(f"""
SELECT s.trial_id, s.step, s.at_step, s.value, s.total
FROM (
    SELECT r.trial_id, r.step, r.at_step, r.value, t.finished_at,
           row_number() OVER (PARTITION BY r.trial_id ORDER BY r.step) AS ordinal,
           count(*) OVER (PARTITION BY r.trial_id) AS total
    FROM sweeper.reports r JOIN sweeper.trials t ON t.trial_id = r.trial_id
    WHERE r.trial_id = ANY (:trial_ids)
) s
WHERE {_SELECTED} OR (s.ordinal = s.total AND s.finished_at IS NOT NULL)
ORDER BY s.trial_id, s.step
""")

_FRESH = statement(f"""
SELECT s.trial_id, s.step, s.at_step, s.value, s.optuna_trial_id, s.lineage, s.mirrored_at_step, s.study
FROM (
    SELECT r.trial_id, r.step, r.at_step, r.value, m.optuna_trial_id, m.lineage, m.at_step AS mirrored_at_step, m.study,
           row_number() OVER (PARTITION BY r.trial_id ORDER BY r.step) AS ordinal
    FROM sweeper.mirrored m JOIN sweeper.reports r ON r.trial_id = m.trial_id
    WHERE m.trial_id = ANY (:trial_ids)
) s
WHERE s.at_step >= s.mirrored_at_step AND {_SELECTED}
ORDER BY s.trial_id, s.step
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


def mirror_batch(db: Statements, sweep_id: SweepId, *, limit: int) -> list[MirrorTrial]:
    """Trials whose newest version the mirror does not have, running ones first; without their reports."""
    return [_trial(row) for row in db.run(_UNMIRRORED, {"now": db.now, "sweep_id": sweep_id, "limit": limit})]


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
        LiveTrial(trial_id=TrialId(row.trial_id), fence=row.fence, state=TrialState(row.state))
        for row in db.run(_LIVE, {"sweep_id": sweep_id})
    ]


def mirror_reports(
    db: Statements, trial_ids: Sequence[TrialId]
) -> Mapping[TrialId, tuple[int, tuple[MirrorReport, ...]]]:
    """How many reports each trial has, and those that the mirror shows; trials without any are absent."""
    found: dict[TrialId, tuple[int, list[MirrorReport]]] = {}
    for row in db.run(_REPORTS, {"trial_ids": list(trial_ids)}):
        found.setdefault(TrialId(row.trial_id), (row.total, []))[1].append(_report(row))
    return {trial_id: (count, tuple(reports)) for trial_id, (count, reports) in found.items()}


def fresh_reports(db: Statements, trial_ids: Sequence[TrialId]) -> list[FreshReports]:
    """Reports of those mirrored trials from the last training step on that the mirror has."""
    found: dict[TrialId, tuple[MirrorPlace, list[MirrorReport]]] = {}
    for row in db.run(_FRESH, {"trial_ids": list(trial_ids)}):
        place = MirrorPlace(
            optuna_trial_id=row.optuna_trial_id, lineage=row.lineage, at_step=row.mirrored_at_step, study=row.study
        )
        found.setdefault(TrialId(row.trial_id), (place, []))[1].append(_report(row))
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
    place = None
    if row.optuna_trial_id is not None:
        place = MirrorPlace(
            optuna_trial_id=row.optuna_trial_id, lineage=row.mirrored_lineage, at_step=row.at_step, study=row.study
        )
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
        place=place,
        point_id=row.mirror_id,
    )


def _report(row: sa.Row[Any]) -> MirrorReport:
    return MirrorReport(step=row.step, at_step=row.at_step, value=row.value)
