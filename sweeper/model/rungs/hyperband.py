"""Synchronous Hyperband, by pause and resume.

Li et al., "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization", JMLR 2018, algorithm 1. Brackets
are filled by number, in the paper's order (the most exploring first) and over again. A rung is a barrier: its trials
pause until all of them are there, then the best 1/eta go on. While some wait, free places begin trials of the next
brackets, so nothing idles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from sweeper.model.rungs.history import GO_ON, PAUSE, Entry, Rung, Standing, gone
from sweeper.model.rungs.nodes import HyperbandRules
from sweeper.model.rungs.scheduler import Scheduler, alive
from sweeper.model.search import Decision, Direction
from sweeper.model.states import FINAL_STATES, TrialState


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """How many configs begin, and at which resources they are compared; the last of them train to the end."""

    size: int
    rungs: tuple[int, ...]


def brackets(rules: HyperbandRules) -> tuple[Bracket, ...]:
    """Give the paper's brackets s_max … 0 for whole resources."""
    eta, full = rules.reduction_factor, rules.max_resource
    most = 0
    while rules.min_resource * eta ** (most + 1) <= full:
        most += 1
    return tuple(
        Bracket(
            size=-(-(most + 1) * eta**halvings // (halvings + 1)),
            rungs=tuple(full // eta**left for left in range(halvings, 0, -1)),
        )
        for halvings in range(most, -1, -1)
    )


class Hyperband(Scheduler):
    """Numbers without a trial of their own (aliases, refused ones) and failed trials are their bracket's worst."""

    def __init__(self, rules: HyperbandRules, direction: Direction) -> None:
        super().__init__(direction)
        self._eta, self._full = rules.reduction_factor, rules.max_resource
        self._brackets = brackets(rules)
        self._starts = tuple(accumulate((bracket.size for bracket in self._brackets), initial=0))

    def next_move(self, standing: Standing, *, closing: bool = False) -> Decision | None:
        """See `Scheduler.next_move`."""
        for first, bracket in self._begun(standing):
            entry = self._due(first, bracket, standing, closing=closing)
            if entry is not None and standing.get(entry.number) is TrialState.PAUSED:
                return self._promotion(entry)
        return self._last_resort(standing) if closing else None

    def rung_at(self, number: int, resource: int) -> int | None:
        """See `Scheduler.rung_at`."""
        if resource >= self._full:
            return None
        _, bracket = self._place(number)
        return max((rung for rung in bracket.rungs if rung <= resource), default=None)

    def _judge(self, number: int, rung: int, standing: Standing) -> str:
        first, bracket = self._place(number)
        due = self._due(first, bracket, standing, just_came=number)
        return GO_ON if due is not None and due.number == number else PAUSE

    def _due(
        self, first: int, bracket: Bracket, standing: Standing, *, closing: bool = False, just_came: int | None = None
    ) -> Entry | None:
        """Give who goes on next in a bracket: the best that waits at the first rung with places left.

        None while a barrier holds. With `just_came` that one is answered if it is among those who go on.
        """
        members = [number for number in range(first, first + bracket.size) if number in standing]
        if len(members) < bracket.size and not closing:
            return None
        for resource in bracket.rungs:
            rung = self._history.rung(resource)
            # Whoever reports too seldom for this rung is compared at a higher one; nobody waits for it here.
            beyond = [number for number in members if self._history.reached(number) > resource]
            if not all(number in beyond or _settled(number, rung, standing) for number in members):
                return None
            left = max(1, len(members) // self._eta) - sum(
                number in beyond or _moved(number, rung, standing) for number in members
            )
            here = [rung.entries[number] for number in members if number in rung.entries]
            waiting = [entry for entry in alive(here, standing) if not _moved(entry.number, rung, standing)]
            if left > 0 and waiting:
                chosen = sorted(waiting, key=self._history.rank)[:left]
                return self._first_able(chosen, standing, just_came)
            members = [number for number in members if number in beyond or number in rung.moved]
        return None

    def _first_able(self, chosen: list[Entry], standing: Standing, just_came: int | None) -> Entry | None:
        if just_came is not None:
            return next((entry for entry in chosen if entry.number == just_came), None)
        return next((entry for entry in chosen if standing.get(entry.number) is TrialState.PAUSED), None)

    def _place(self, number: int) -> tuple[int, Bracket]:
        """The first number of a number's bracket, and the bracket."""
        turn, position = divmod(number, self._starts[-1])
        index = next(at for at, end in enumerate(self._starts[1:]) if position < end)
        return turn * self._starts[-1] + self._starts[index], self._brackets[index]

    def _begun(self, standing: Standing) -> Iterator[tuple[int, Bracket]]:
        number, last = 0, max(standing, default=-1)
        while number <= last:
            first, bracket = self._place(number)
            yield first, bracket
            number = first + bracket.size


def _settled(number: int, rung: Rung, standing: Standing) -> bool:
    return number in rung.entries or gone(number, standing) or standing.get(number) in FINAL_STATES


def _moved(number: int, rung: Rung, standing: Standing) -> bool:
    """Whether it took one of the rung's places; also by finishing before its pause could reach it."""
    completed = number in rung.entries and standing.get(number) is TrialState.COMPLETED
    return number in rung.moved or completed
