"""Asynchronous successive halving: Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020.

*Promote* is Algorithm 2: each trial pauses at each rung, and whenever a place is free the best that is due goes on from
the highest rung that has one. One thing is stricter than the paper: a rung of n trials never lets more than
floor(n/eta) go on. The paper promotes whoever is in the top floor(n/eta) now, whoever went before, so that a sampler
that learns, whose newer trials are better, would have nearly all of them trained in full.

*Stop* is the variant of section 3.3 that never pauses: a trial that is not in the top 1/eta when it comes is pruned.
"""

from __future__ import annotations

import math

from sweeper.model.rungs.history import GO_ON, PAUSE, PRUNE, Rung, Standing, gone
from sweeper.model.rungs.nodes import AshaRules
from sweeper.model.rungs.scheduler import Scheduler
from sweeper.model.search import Decision, Direction
from sweeper.model.states import TrialState


class Asha(Scheduler):
    """Rungs at `min_resource * eta**k`, below `max_resource` where that is known: the end of training is no rung."""

    def __init__(self, rules: AshaRules, direction: Direction) -> None:
        super().__init__(direction)
        self._rules = rules

    def next_move(self, standing: Standing, *, closing: bool = False) -> Decision | None:
        """See `Scheduler.next_move`."""
        if not self._rules.promote:
            return None
        rungs = self._history.from_the_top()
        due = (self._due(rung, standing) for rung in rungs)
        number = next((found for found in due if found is not None), None)
        if number is None and closing:
            leaders = (self._leader(rung, standing) for rung in rungs)
            number = next((found for found in leaders if found is not None), None)
        if number is None:
            return self._last_resort(standing) if closing else None
        entry = self._history.entry(number)
        return None if entry is None else self._promotion(entry)

    def rung_at(self, number: int, resource: int) -> int | None:
        """See `Scheduler.rung_at`."""
        rules = self._rules
        if resource < rules.min_resource or (rules.max_resource is not None and resource >= rules.max_resource):
            return None
        rung = rules.min_resource
        while rung * rules.reduction_factor <= resource:
            rung *= rules.reduction_factor
        return rung

    def _judge(self, number: int, rung: int, standing: Standing) -> str:
        level = self._history.rung(rung)
        if self._rules.promote:
            return GO_ON if self._due(level, standing, just_came=number) == number else PAUSE
        value = level.entries[number].value
        best = [entry.number for entry in level.best_first()][: max(1, self._quota(level))]
        return GO_ON if number in best and not math.isnan(value) else PRUNE

    def _due(self, rung: Rung, standing: Standing, *, just_came: int | None = None) -> int | None:
        """Give who goes on next: the best that waits, as long as the rung has let fewer go on than it may.

        Better ones that are still on their way to their pause keep their place. With `just_came` the question is
        whether there is a place for that one, after all better ones.
        """
        left = self._quota(rung) - len(rung.moved)
        for entry in rung.best_first():
            if left <= 0:
                return None
            number = entry.number
            if number in rung.moved or gone(number, standing):
                continue
            if number == just_came or (just_came is None and standing.get(number) is TrialState.PAUSED):
                return number
            left -= 1
        return None

    def _leader(self, rung: Rung, standing: Standing) -> int | None:
        """At closing: the best of a rung goes on even if it came after the last place was filled.

        Without this, 20 trials with eta = 3 could lose the best because it was number 18 or 19.
        """
        for entry in rung.best_first():
            if not gone(entry.number, standing):
                waits = entry.number not in rung.moved and standing.get(entry.number) is TrialState.PAUSED
                return entry.number if waits and not math.isnan(entry.value) else None
        return None

    def _quota(self, rung: Rung) -> int:
        return len(rung.entries) // self._rules.reduction_factor
