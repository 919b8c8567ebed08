"""A sweep's results as plain data; `sweeper.load` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sweeper.errors import UserError
from sweeper.model.best import best_numbers
from sweeper.model.search import Direction
from sweeper.model.states import SweepState, TrialState
from sweeper.model.trial import Report

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """One config and what came of it."""

    number: int
    config_hash: str
    state: TrialState
    values: tuple[float, ...] | None
    """What it is judged by, one for each direction: as returned when completed, its last report when pruned. None while
    there is none, or when a plain grid returned something else than numbers."""
    returned: Any  # Any: whatever the function returned
    """The returned value itself, type and all; None unless completed or pruned."""
    params: Mapping[str, Any]  # Any: a parameter may be any plain value
    """The swept parameters, typed; one that does not apply is absent."""
    overrides: tuple[str, ...]
    """What the job was composed with, fixed values included, as written."""
    reports: tuple[Report, ...]
    """Intermediate values by step; empty when loaded without."""
    attempts: int
    """How many times a worker took it up."""
    error: str | None
    """Why it failed, or the last error of one that is to be tried again."""
    step: int
    """Training steps behind it."""
    started_at: datetime | None
    finished_at: datetime | None
    """When its last attempt ended; None unless final."""
    aliases: tuple[int, ...] = ()
    """Further numbers that the search gave to the same config: answered from here, not trained again."""
    feasible: bool = True
    """Whether its last report keeps the search's constraints."""

    @property
    def value(self) -> float | None:
        """The value, where there is exactly one."""
        return self.values[0] if self.values is not None and len(self.values) == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """A sweep and all its trials, by number, at the moment of loading."""

    name: str
    state: SweepState
    directions: tuple[Direction, ...]
    """Empty for a plain grid: nothing says what is better there."""
    trials: tuple[TrialResult, ...]
    unreported: tuple[str, ...] = ()
    """Metrics that a constraint bounds and that no trial has reported, so that none keeps it."""

    @property
    def completed(self) -> tuple[TrialResult, ...]:
        """The trials that ran to their end."""
        return tuple(trial for trial in self.trials if trial.state is TrialState.COMPLETED)

    @property
    def best(self) -> TrialResult | None:
        """The completed, feasible trial of the best value, of equals the first; None when there is none (yet).

        Raises:
            UserError: the sweep has several directions (see `best_trials`) or none.
        """
        if len(self.directions) > 1:
            raise UserError(
                f"sweep {self.name!r} has {len(self.directions)} directions, so no single trial is the best",
                remedy="`best_trials` is their Pareto front.",
            )
        return next(iter(self.best_trials), None)

    @property
    def best_trials(self) -> tuple[TrialResult, ...]:
        """The completed, feasible trials that no other is better than in every direction (the Pareto front), by number.

        Raises:
            UserError: the sweep has no direction.
        """
        if not self.directions:
            raise UserError(
                f"sweep {self.name!r} is a plain grid, and nothing says whether smaller or larger is better",
                remedy="Compare `trials` yourself, or sweep with hydra/sweeper=sweeper and a direction.",
            )
        judged = {trial.number: trial.values for trial in self.completed if trial.values is not None and trial.feasible}
        best = set(best_numbers(judged, self.directions))
        return tuple(trial for trial in self.trials if trial.number in best)

    def counts(self) -> dict[TrialState, int]:
        """How many trials are in each state that any is in."""
        found = {state: sum(trial.state is state for trial in self.trials) for state in TrialState}
        return {state: count for state, count in found.items() if count}

    def frame(self) -> pd.DataFrame:
        """Give the trials as a pandas frame, one row each, with columns named as Optuna's `trials_dataframe` does.

        Raises:
            UserError: pandas is not installed.
        """
        from sweeper.results.frames import frame_of

        return frame_of(self)
