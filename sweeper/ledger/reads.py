"""Reading the ledger: for the command line, the coordinator's turn, and the results that a command returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sweeper.errors import UserError
from sweeper.ids import AskerId, ConfigHash, SweepId, TrialId, TrialNumber
from sweeper.ledger.guards import NOW
from sweeper.ledger.rows import attempt_of, checkpoint_of, head_columns, trial_of
from sweeper.ledger.search_progress import search_progress
from sweeper.ledger.sql import statement
from sweeper.ledger.statements import Statements
from sweeper.model.progress import RunningTrial, SweepProgress
from sweeper.model.states import TrialState
from sweeper.model.tagged import from_tagged
from sweeper.model.trial import Attempt, CheckpointRef, Report, Trial

_BATCH: Final = 1000

_TRIALS: Final = f"""
SELECT t.trial_id, t.number, t.config_hash, t.state, t.lineage, t.fence, t.worker_id, t.lease_id, t.crashes,
       t.no_progress, t.result, t.outcome_key, t.outcome_stored, t.step, t.available_at, c.overrides, c.params,
       {head_columns("t")},
       (SELECT r.value FROM sweeper.reports r WHERE r.trial_id = t.trial_id ORDER BY r.step DESC LIMIT 1) AS last_value,
       EXISTS (SELECT FROM sweeper.requests q WHERE q.trial_id = t.trial_id) AS requested,
       CASE WHEN t.state IN ('pending', 'failed') THEN coalesce((
           SELECT a.error FROM sweeper.attempts a
           WHERE a.trial_id = t.trial_id AND a.lineage = t.lineage AND a.error IS NOT NULL
           ORDER BY a.fence DESC LIMIT 1
       ), t.reason) END AS error
FROM sweeper.trials t
JOIN sweeper.configs c ON c.trial_id = t.trial_id AND c.lineage = t.lineage
LEFT JOIN sweeper.checkpoints h ON h.checkpoint_id = t.head_id
"""

_TRIALS_OF_SWEEP = statement(f"{_TRIALS} WHERE t.sweep_id = :sweep_id ORDER BY t.number")

_TRIALS_NUMBERED = statement(f"""
{_TRIALS}
WHERE t.trial_id IN (
    SELECT n.trial_id FROM sweeper.numbers n WHERE n.sweep_id = :sweep_id AND n.number = ANY (:numbers)
)
ORDER BY t.number
""")

_TRIALS_WITH_IDS = statement(f"{_TRIALS} WHERE t.trial_id = ANY (:trial_ids) ORDER BY t.number")

_TRIALS_WITH_HASHES = statement(f"""
{_TRIALS} WHERE t.sweep_id = :sweep_id AND t.config_hash = ANY (:hashes) ORDER BY t.number
""")

_ATTEMPTS: Final = """
SELECT a.lease_id, a.trial_id, a.fence, a.lineage, a.worker_id, a.host, a.pool, a.started_at, a.ended_at, a.outcome,
       a.reason, a.error, a.exit_code, a.first_step, a.last_step, a.adopted_from
FROM sweeper.attempts a
"""

_ATTEMPTS_OF_SWEEP = statement(f"""
{_ATTEMPTS} JOIN sweeper.trials t ON t.trial_id = a.trial_id
WHERE t.sweep_id = :sweep_id ORDER BY a.trial_id, a.fence, a.started_at
""")

_ATTEMPTS_OF_TRIAL = statement(f"{_ATTEMPTS} WHERE a.trial_id = :trial_id ORDER BY a.fence, a.started_at")

_CHECKPOINTS = statement("""
SELECT c.fence, c.seq, c.step, c.manifest_key, c.manifest_hash, c.size_bytes, c.state
FROM sweeper.checkpoints c WHERE c.trial_id = :trial_id ORDER BY c.fence, c.seq, c.checkpoint_id
""")

_REPORTS = statement("""
SELECT r.step, r.at_step, r.value, r.metrics FROM sweeper.reports r WHERE r.trial_id = :trial_id ORDER BY r.step
""")

_REPORTS_OF_SWEEP = statement("""
SELECT r.trial_id, r.step, r.at_step, r.value, r.metrics
FROM sweeper.reports r JOIN sweeper.trials t ON t.trial_id = r.trial_id
WHERE t.sweep_id = :sweep_id ORDER BY r.trial_id, r.step
""")

_BEGUN_CONFIGS = statement("""
WITH newest AS (
    SELECT max(t.number) AS number FROM sweeper.trials t
    WHERE t.sweep_id = :sweep_id AND t.state IN ('completed', 'pruned', 'failed', 'cancelled')
)
SELECT t.number, c.overrides, c.config_text, t.number IS NOT DISTINCT FROM n.number AS final
FROM newest n
JOIN sweeper.trials t ON t.sweep_id = :sweep_id
                     AND (t.number = n.number OR t.state IN ('pending', 'running', 'paused'))
JOIN sweeper.configs c ON c.trial_id = t.trial_id AND c.lineage = t.lineage
ORDER BY final DESC, t.number
LIMIT :limit
""")

_REQUESTED_COUNTS = statement("""
SELECT t.state, count(*) AS trials
FROM sweeper.requests q JOIN sweeper.trials t ON t.trial_id = q.trial_id
WHERE q.asker_id = :asker_id AND q.sweep_id = :sweep_id
GROUP BY t.state
""")

_COUNTS = statement("""
SELECT s.name, t.state, count(t.trial_id) AS trials,
       count(t.trial_id) FILTER (
           WHERE t.finished_at IS NULL AND NOT EXISTS (SELECT FROM sweeper.requests q WHERE q.trial_id = t.trial_id)
       ) AS not_requested,
       (SELECT count(*) FROM sweeper.attempts a JOIN sweeper.trials u ON u.trial_id = a.trial_id
        WHERE u.sweep_id = s.sweep_id AND a.outcome = 'evicted') AS evictions
FROM sweeper.sweeps s LEFT JOIN sweeper.trials t ON t.sweep_id = s.sweep_id
WHERE s.sweep_id = :sweep_id
GROUP BY s.sweep_id, t.state
""")

_EVICTIONS = statement("""
SELECT count(*) AS evictions FROM sweeper.attempts a JOIN sweeper.trials u ON u.trial_id = a.trial_id
WHERE u.sweep_id = :sweep_id AND a.outcome = 'evicted'
""")

_RUNNING = statement(f"""
SELECT t.number, t.step, t.attempts, coalesce(a.host, '') AS host, left(t.worker_id, 8) AS worker,
       (SELECT r.value FROM sweeper.reports r WHERE r.trial_id = t.trial_id ORDER BY r.step DESC LIMIT 1) AS last_value,
       (SELECT extract(epoch FROM {NOW} - max(c.committed_at)) FROM sweeper.checkpoints c
        WHERE c.trial_id = t.trial_id AND c.lineage = t.lineage) AS checkpoint_age_s
FROM sweeper.trials t LEFT JOIN sweeper.attempts a ON a.lease_id = t.lease_id
WHERE t.sweep_id = :sweep_id AND t.state = 'running'
ORDER BY t.number
""")


def trials(db: Statements, sweep_id: SweepId, numbers: Sequence[int] | None = None) -> list[Trial]:
    """The sweep's trials by number: all, or those that the numbers (aliases too) belong to, each once."""
    if numbers is None:
        return [trial_of(row) for row in db.run(_TRIALS_OF_SWEEP, {"sweep_id": sweep_id})]
    found = {
        trial.number: trial
        for batch in _batches(numbers)
        for trial in map(trial_of, db.run(_TRIALS_NUMBERED, {"sweep_id": sweep_id, "numbers": batch}))
    }
    return [found[number] for number in sorted(found)]


def trials_with_ids(db: Statements, trial_ids: Sequence[int]) -> list[Trial]:
    """Those trials, by number."""
    rows = [row for batch in _batches(trial_ids) for row in db.run(_TRIALS_WITH_IDS, {"trial_ids": batch})]
    return sorted(map(trial_of, rows), key=lambda trial: trial.number)


def trials_with_hashes(db: Statements, sweep_id: SweepId, hashes: Sequence[ConfigHash]) -> list[Trial]:
    """Those trials that exist, by number."""
    return [trial_of(row) for row in db.run(_TRIALS_WITH_HASHES, {"sweep_id": sweep_id, "hashes": list(hashes)})]


def attempts(db: Statements, sweep_id: SweepId) -> dict[TrialId, list[Attempt]]:
    """Every attempt of the sweep, in order, by trial; trials that never ran are absent."""
    by_trial: dict[TrialId, list[Attempt]] = {}
    for row in db.run(_ATTEMPTS_OF_SWEEP, {"sweep_id": sweep_id}):
        by_trial.setdefault(TrialId(row.trial_id), []).append(attempt_of(row))
    return by_trial


def attempts_of(db: Statements, trial_id: TrialId) -> list[Attempt]:
    """The trial's attempts, in order."""
    return [attempt_of(row) for row in db.run(_ATTEMPTS_OF_TRIAL, {"trial_id": trial_id})]


def checkpoints_of(db: Statements, trial_id: TrialId) -> list[CheckpointRef]:
    """The trial's checkpoints of every state and lineage, oldest first."""
    return [checkpoint_of(row) for row in db.run(_CHECKPOINTS, {"trial_id": trial_id})]


def reports_of(db: Statements, trial_id: TrialId) -> list[Report]:
    """The trial's reports, by step."""
    return [
        Report(step=row.step, at_step=row.at_step, value=row.value, metrics=from_tagged(row.metrics))
        for row in db.run(_REPORTS, {"trial_id": trial_id})
    ]


def reports(db: Statements, sweep_id: SweepId) -> dict[TrialId, list[Report]]:
    """Every report of the sweep, by trial and by step; trials without any are absent."""
    by_trial: dict[TrialId, list[Report]] = {}
    for row in db.run(_REPORTS_OF_SWEEP, {"sweep_id": sweep_id}):
        report = Report(step=row.step, at_step=row.at_step, value=row.value, metrics=from_tagged(row.metrics))
        by_trial.setdefault(TrialId(row.trial_id), []).append(report)
    return by_trial


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunConfig:
    """What a trial was composed of, and what came of it."""

    number: TrialNumber
    overrides: tuple[str, ...]
    config_text: str
    final: bool


def begun_configs(db: Statements, sweep_id: SweepId, *, most: int) -> list[BegunConfig]:
    """The configs of the newest trial that is final, and of those that are not, by number; so many at most."""
    return [
        BegunConfig(
            number=TrialNumber(row.number), overrides=tuple(row.overrides), config_text=row.config_text, final=row.final
        )
        for row in db.run(_BEGUN_CONFIGS, {"sweep_id": sweep_id, "limit": most})
    ]


def requested_counts(db: Statements, sweep_id: SweepId, asker_id: AskerId) -> Mapping[TrialState, int]:
    """How the trials that this command asked for stand; states without any are absent."""
    rows = db.run(_REQUESTED_COUNTS, {"sweep_id": sweep_id, "asker_id": asker_id})
    return {TrialState(row.state): row.trials for row in rows}


def progress(db: Statements, sweep_id: SweepId) -> SweepProgress:
    """What a watcher is shown: final and requested trials by state, and what runs where.

    Raises:
        UserError: there is no such sweep.
    """
    rows = db.run(_COUNTS, {"sweep_id": sweep_id})
    if not rows:
        raise UserError(f"there is no sweep {sweep_id} in this ledger")
    counted = [row for row in rows if row.state is not None]
    return SweepProgress(
        name=rows[0].name,
        counts={TrialState(row.state): row.trials - row.not_requested for row in counted},
        running=running_trials(db, sweep_id),
        evictions=rows[0].evictions,
        not_requested=sum(row.not_requested for row in counted),
        search=search_progress(db, sweep_id),
    )


def running_trials(db: Statements, sweep_id: SweepId) -> tuple[RunningTrial, ...]:
    """What is held now, by number."""
    return tuple(_running(db, sweep_id))


def evictions(db: Statements, sweep_id: SweepId) -> int:
    """Attempts of the sweep that ended evicted."""
    count: int = db.run(_EVICTIONS, {"sweep_id": sweep_id})[0].evictions
    return count


def _running(db: Statements, sweep_id: SweepId) -> Iterator[RunningTrial]:
    for row in db.run(_RUNNING, {"now": db.now, "sweep_id": sweep_id}):
        age_s = row.checkpoint_age_s
        yield RunningTrial(
            number=TrialNumber(row.number),
            worker=f"{row.host}-{row.worker}",
            step=row.step,
            last_value=row.last_value,
            checkpoint_age_s=None if age_s is None else max(0.0, float(age_s)),
            attempt=row.attempts,
        )


def _batches(items: Sequence[int]) -> Iterator[list[int]]:
    for start in range(0, len(items), _BATCH):
        yield list(items[start : start + _BATCH])
