"""A search in miniature: trials that are curves, places that train them step by step, and a scheduler that decides.

Nothing but rows survives a restart, as in the ledger.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sweeper.ids import TrialId
from sweeper.model.rungs import Scheduler, exploit_params, exploit_source, scheduler_from
from sweeper.model.search import Decision, DecisionKind, SearchSpec
from sweeper.model.states import TrialState
from sweeper.model.trial import Json

Curve = Callable[[int, int], float]
"""From number and resource to the objective value."""


@dataclass
class World:
    """One search with `places` workers; `faults` decides on crashes, evictions and restarts of the coordinator."""

    spec: SearchSpec
    curve: Curve
    length: int
    places: int = 1
    faults: random.Random | None = None
    crash_probability: float = 0.0
    restart_probability: float = 0.0
    params: Sequence[dict[str, Json]] = ()
    rows: list[Decision] = field(default_factory=list)
    standing: dict[int, TrialState | None] = field(default_factory=dict)
    trained: dict[int, int] = field(default_factory=dict)
    """Steps that the trial has behind it, at its head."""
    epochs: int = 0
    """Steps trained in all, repeated ones too."""
    reported: set[tuple[int, int, int]] = field(default_factory=set)
    lineages: dict[int, int] = field(default_factory=dict)
    inherited: list[tuple[int, int, dict[str, Json]]] = field(default_factory=list)
    """Heir, source, parameters."""
    closed_at: int | None = None
    """How many rows there were when the search was closing."""

    def __post_init__(self) -> None:
        self.scheduler = self.rebuilt()

    def rebuilt(self) -> Scheduler:
        scheduler = scheduler_from(self.spec, seed=7)
        assert scheduler is not None
        for number in sorted(self.standing):
            if self.params:
                scheduler.feed_params(number, self.params[number])
        for row in self.rows:
            scheduler.feed(row)
        return scheduler

    def run(self) -> "World":
        for _ in range(100_000):
            if self._happens(self.restart_probability):
                self.scheduler = self.rebuilt()
            running = [number for number, state in self.standing.items() if state is TrialState.RUNNING]
            if len(running) < self.places and self._fill_place():
                continue
            if not running:
                if not self._close():
                    return self
                continue
            for number in running:
                self._train(number)
        raise AssertionError("the search does not end")

    def of_kind(self, kind: DecisionKind) -> list[Decision]:
        return [row for row in self.rows if row.kind is kind]

    def numbers(self, state: TrialState) -> list[int]:
        return sorted(number for number, found in self.standing.items() if found is state)

    def _fill_place(self, *, closing: bool = False) -> bool:
        move = self.scheduler.next_move(self.standing, closing=closing)
        assert move == self.rebuilt().next_move(self.standing, closing=closing)  # rows are all that counts
        if move is not None:
            self._make(move)
            return True
        number = len(self.standing)
        if closing or number >= self.spec.n_trials:
            return False
        if self.params:
            self.scheduler.feed_params(number, self.params[number])
        self.standing[number] = TrialState.RUNNING
        self.trained[number] = self.lineages[number] = 0
        return True

    def _make(self, move: Decision) -> None:
        assert self.standing[move.number] is TrialState.PAUSED
        assert move.lineage == self.lineages[move.number]
        self.rows.append(move)
        self.scheduler.feed(move)
        self.standing[move.number] = TrialState.RUNNING
        if move.kind is DecisionKind.EXPLOIT:
            source = exploit_source(move)
            assert self.standing[source] is TrialState.PAUSED  # its head is still this generation's checkpoint
            self.trained[move.number] = self.trained[source]
            self.lineages[move.number] += 1
            self.inherited.append((move.number, source, dict(exploit_params(move))))

    def _train(self, number: int) -> None:
        if self._happens(self.crash_probability):
            self.standing[number] = TrialState.FAILED
            return
        if self._happens(self.crash_probability):  # an eviction: back by a step, which is then reported again
            self.trained[number] = max(self.trained[number] - 1, 0)
        self.trained[number] += 1
        self.epochs += 1
        step = self.trained[number]
        key = (number, self.lineages[number], step)
        if key in self.reported:  # decided already; the ledger gives the same answer again
            action = next((row.action for row in self.rows if self._key(row) == key), "go_on")
            action = "go_on" if action == "pause" else action  # it was let on since
        else:
            self.reported.add(key)
            row = self.scheduler.on_report(
                trial_id=TrialId(1000 + number),
                number=number,
                lineage=self.lineages[number],
                step=step,
                value=self.curve(number, step),
                standing=self.standing,
            )
            self.rows.append(row)
            action = row.action
        if action != "go_on":
            self.standing[number] = {"pause": TrialState.PAUSED, "prune": TrialState.PRUNED}[action]
        elif step >= self.length:
            self.standing[number] = TrialState.COMPLETED

    def _close(self) -> bool:
        if self.closed_at is None:
            self.closed_at = len(self.rows)
        if self._fill_place(closing=True):
            return True
        left = self.scheduler.left_over(self.standing)
        for one in left:
            assert self.standing[one.number] is TrialState.PAUSED
            self.standing[one.number] = TrialState.PRUNED
        return bool(left)

    def _key(self, row: Decision) -> tuple[int, int, int]:
        return (row.number, row.lineage, row.step) if row.kind is DecisionKind.RUNG else (-1, 0, 0)

    def _happens(self, probability: float) -> bool:
        return self.faults is not None and self.faults.random() < probability
