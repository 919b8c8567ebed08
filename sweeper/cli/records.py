"""What the command line says in JSON about sweeps, trials, attempts and checkpoints; the field names are promised.

Values are tagged JSON (`sweeper.model.tagged`): what JSON cannot carry exactly is an object like `{"$float": "nan"}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sweeper.model.progress import SearchProgress, SweepProgress
from sweeper.model.states import TrialState
from sweeper.model.tagged import to_tagged
from sweeper.model.trial import Attempt, CheckpointRef, Json, Report, Sweep, Trial

Record = dict[str, Any]  # Any: JSON of a shape that each function below writes out


def result_values(trial: Trial) -> list[Json] | None:
    """Give a completed trial's objective values: numbers, or None when the result is no number.

    A float that JSON cannot carry stays tagged (`{"$float": "nan"}`).
    """
    if trial.state is not TrialState.COMPLETED:
        return None
    result = trial.result
    items: list[Json] = result if isinstance(result, list) else [result]
    if isinstance(result, dict) and set(result) == {"$tuple"}:
        body = result["$tuple"]
        items = body if isinstance(body, list) else []
    return items if items and all(_is_number(item) for item in items) else None


def _is_number(value: Json) -> bool:
    if isinstance(value, dict):
        return set(value) in ({"$float"}, {"$int"})
    return isinstance(value, int | float) and not isinstance(value, bool)


def trial_record(trial: Trial, attempts: Sequence[Attempt]) -> Record:
    """Give one entry of `trials --json`."""
    return {
        "number": trial.number,
        "config_hash": trial.config_hash,
        "state": trial.state.value,
        "values": result_values(trial),
        "result": trial.result,
        "params": dict(trial.params),
        "overrides": list(trial.overrides),
        "step": trial.step,
        "last_value": to_tagged(trial.last_value),
        "requested": trial.requested,
        "lineage": trial.lineage,
        "attempts": [attempt_record(attempt) for attempt in attempts],
        "checkpoint": head_record(trial.head),
        "error": trial.error,
    }


def attempt_record(attempt: Attempt) -> Record:
    """Give one entry of a trial's `attempts`. `outcome` is null while the attempt runs."""
    return {
        "fence": attempt.fence,
        "outcome": attempt.outcome.value if attempt.outcome else None,
        "reason": attempt.reason,
        "first_step": attempt.first_step,
        "last_step": attempt.last_step,
        "worker": attempt.worker_id,
        "host": attempt.host,
        "pool": attempt.pool,
        "exit_code": attempt.exit_code,
        "started_at": moment(attempt.started_at),
        "ended_at": moment(attempt.ended_at),
        "lineage": attempt.lineage,
        "adopted_from": attempt.adopted_from,
    }


def head_record(head: CheckpointRef | None) -> Record | None:
    """Give a trial's `checkpoint`: the one it would resume from."""
    if head is None:
        return None
    return {"step": head.step, "key": head.manifest_key, "bytes": head.size_bytes}


def checkpoint_record(ref: CheckpointRef) -> Record:
    """Give one entry of `show --json`'s `checkpoints`."""
    return {
        "step": ref.step,
        "key": ref.manifest_key,
        "bytes": ref.size_bytes,
        "fence": ref.fence,
        "seq": ref.seq,
        "state": ref.state.value,
    }


def report_record(report: Report) -> Record:
    """Give one entry of `show --json`'s `reports`."""
    return {
        "step": report.step,
        "at_step": report.at_step,
        "value": to_tagged(report.value),
        "metrics": to_tagged(report.metrics),
    }


def sweep_record(sweep: Sweep, counts: Mapping[TrialState, int]) -> Record:
    """Give one entry of `status --json`. Every state is counted, also with 0."""
    return {
        "name": sweep.name,
        "sweep_id": sweep.sweep_id,
        "state": sweep.state.value,
        "task": sweep.task,
        "sweep_dir": sweep.sweep_dir,
        "store": sweep.store_url,
        "seed": sweep.seed,
        "directions": None if sweep.search is None else sweep.search["directions"],
        "created_at": moment(sweep.created_at),
        "counts": {state.value: counts.get(state, 0) for state in TrialState},
    }


def progress_record(progress: SweepProgress) -> Record:
    """Give one line of `watch --json`."""
    return {
        "name": progress.name,
        "counts": {state.value: progress.counts.get(state, 0) for state in TrialState},
        "not_requested": progress.not_requested,
        "evictions": progress.evictions,
        "running": [
            {
                "number": trial.number,
                "worker": trial.worker,
                "attempt": trial.attempt,
                "step": trial.step,
                "last_value": to_tagged(trial.last_value),
                "checkpoint_age_s": trial.checkpoint_age_s,
            }
            for trial in progress.running
        ],
        "search": None if progress.search is None else search_record(progress.search),
    }


def search_record(search: SearchProgress) -> Record:
    """Give what `status --json` and `watch --json` say of a search."""
    best = search.best
    return {
        "proposed": search.proposed,
        "n_trials": search.n_trials,
        "repeats": search.repeats,
        "best": None if best is None else {"number": best[0], "value": to_tagged(best[1])},
        "mirror_lag": search.mirror_lag,
    }


def moment(when: datetime | None) -> str | None:
    """Give a time in ISO 8601, or None."""
    return when.isoformat() if when else None
