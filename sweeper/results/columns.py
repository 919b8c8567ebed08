"""The columns in which results are written, alike in the frame and in `results.csv`."""

from __future__ import annotations

from typing import Any, Final

from sweeper.results.records import SweepResult, TrialResult

ABSENT: Final = object()
"""Stands for a parameter that does not apply, which is something else than None."""


def columns_of(result: SweepResult) -> dict[str, list[Any]]:  # Any: cells of every type
    """Give the columns by name, one cell for each trial: number, state, values, parameters, then how it went.

    A parameter's column is `params_<name>`. One objective is `value`, several are `values_0`, `values_1`, ….
    """
    trials = result.trials
    names = list(dict.fromkeys(name for trial in trials for name in trial.params))
    columns: dict[str, list[Any]] = {
        "number": [trial.number for trial in trials],
        "state": [trial.state.value for trial in trials],
    }
    count = value_count(result)
    for at in range(count):
        columns["value" if count == 1 else f"values_{at}"] = [_value(trial, at) for trial in trials]
    for name in names:
        columns[f"params_{name}"] = [trial.params.get(name, ABSENT) for trial in trials]
    columns["attempts"] = [trial.attempts for trial in trials]
    columns["step"] = [trial.step for trial in trials]
    columns["config_hash"] = [trial.config_hash for trial in trials]
    return columns


def value_count(result: SweepResult) -> int:
    """How many values a trial has: one for each direction; of a plain grid as many as any trial returned."""
    if result.directions:
        return len(result.directions)
    return max((len(trial.values) for trial in result.trials if trial.values is not None), default=1)


def _value(trial: TrialResult, at: int) -> float | None:
    return trial.values[at] if trial.values is not None and at < len(trial.values) else None
