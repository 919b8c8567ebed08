"""What people are shown of a run, at most once a second, and only then reading what is only for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sweeper.coordinator.parts import CoordinatorParts, SearchStanding
from sweeper.coordinator.telling import Teller
from sweeper.ids import TrialNumber
from sweeper.ledger.reads import evictions, progress, running_trials, trials
from sweeper.model.progress import SweepProgress
from sweeper.model.states import TrialState

EVICTIONS_EVERY_S = 10.0
"""Between two counts of the sweep's evictions, which are only for display and take the longer the more there were."""


class Display:
    """Turns what a turn saw into events and a picture for the sink."""

    def __init__(self, parts: CoordinatorParts) -> None:
        self._parts = parts
        self._teller = Teller()
        self._due_s = float("-inf")
        self._shown: Mapping[TrialState, int] | None = None
        self._changed: set[int] = set()
        self._furthest: dict[TrialNumber, int] = {}
        self._evictions = 0
        self._evictions_due_s = float("-inf")

    def saw(self, search: SearchStanding) -> None:
        """Remember what changed in a turn; it may be shown only some turns later."""
        self._changed.update(search.changed)

    def show(
        self, now_s: float, counts: Mapping[TrialState, int], search: SearchStanding | None, *, last: bool = False
    ) -> None:
        """Tell what changed, if it is time for that or this is the last time; tell the workers' engine of progress."""
        if now_s < self._due_s and not last:
            return
        parts = self._parts
        self._due_s = now_s + parts.settings.tend_every_s
        self._tell(counts, search, last=last)
        if search is None:
            standing = progress(parts.database, parts.sweep.sweep_id)
        else:
            standing = self._of_search(now_s, counts, search)
        further = {
            trial.number: trial.step for trial in standing.running if trial.step > self._furthest.get(trial.number, 0)
        }
        if further:  # that attempts begin is no progress: they may all die at their start
            self._furthest |= further
            parts.workers.progressed()
        parts.sink.turn(standing)

    def _tell(self, counts: Mapping[TrialState, int], search: SearchStanding | None, *, last: bool) -> None:
        """One event per transition; of a search only the trials that it saw change are read."""
        database, sweep_id = self._parts.database, self._parts.sweep.sweep_id
        if search is not None:
            found = trials(database, sweep_id, sorted(self._changed))
            self._changed.clear()
        elif counts != self._shown or last:
            found = trials(database, sweep_id)
        else:
            return
        self._shown = counts
        for event in self._teller.transitions(found):
            self._parts.sink.transition(event)

    def _of_search(self, now_s: float, counts: Mapping[TrialState, int], search: SearchStanding) -> SweepProgress:
        """Counts come from memory: counting some ten thousand rows a second would cost more than all else."""
        parts = self._parts
        if now_s >= self._evictions_due_s:
            self._evictions = evictions(parts.database, parts.sweep.sweep_id)
            self._evictions_due_s = now_s + EVICTIONS_EVERY_S
        lag = None if parts.mirror is None else parts.mirror.lag
        return SweepProgress(
            name=parts.sweep.name,
            counts=counts,
            running=running_trials(parts.database, parts.sweep.sweep_id),
            evictions=self._evictions,
            search=replace(search.progress, mirror_lag=lag),
        )
