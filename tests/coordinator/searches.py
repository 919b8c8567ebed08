"""A search on a real ledger, turn by turn: the test is the workers, and moves the clock."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sweeper.coordinator.parts import SearchLimits, SearchPlan, SearchStanding
from sweeper.coordinator.proposing import Chooser
from sweeper.coordinator.searching import Searching
from sweeper.errors import UserError
from sweeper.ids import AskerId, ConfigHash, CoordinatorId, SweepId, WorkerId
from sweeper.ledger.database import Database
from sweeper.ledger.decisions import decided
from sweeper.ledger.leases import renew_lease
from sweeper.ledger.proposals import history
from sweeper.ledger.requests import register_asker
from sweeper.ledger.results import commit_result, record_reports
from sweeper.ledger.sweeps import acquire_coordinator, open_sweep, release_coordinator
from sweeper.model.search import Numbered, SearchSpec
from sweeper.model.space import Choices, FloatRange, Space
from sweeper.model.states import AttemptOutcome, ObjectiveFault, SearchStopKind, TrialState
from sweeper.model.trial import Grant, Json, NewTrial, Report, SearchStop
from sweeper.search.optimizer import Optimizer
from sweeper.search.points import checked_point
from tests.ledger.world import HEARTBEAT_S, LEASE_S, START, Clock, World, asker, hex_id, spec

CONTINUOUS: Space = {"x": FloatRange(low=-5.0, high=5.0), "y": FloatRange(low=0.0, high=1.0)}
THREE: Space = {"c": Choices(values=("a", "b", "c"))}
RANDOM: Mapping[str, Json] = {"_target_": "optuna.samplers.RandomSampler"}
TPE: Mapping[str, Json] = {"_target_": "optuna.samplers.TPESampler", "n_startup_trials": 3}
GRID: Mapping[str, Json] = {"_target_": "optuna.samplers.GridSampler"}

Objective = Callable[[Mapping[str, Json]], Json]


def search(**changes: Any) -> SearchSpec:
    """A sequential random search of 4 trials in a continuous space, unless told otherwise."""
    return replace(SearchSpec(n_trials=4, space=CONTINUOUS, sampler=RANDOM), **changes)


def compose(number: int, params: Mapping[str, Json]) -> NewTrial:
    """A config that is nothing but its parameters."""
    text = json.dumps(dict(params), sort_keys=True)
    return NewTrial(
        config_hash=ConfigHash(hashlib.sha256(text.encode()).hexdigest()),
        config_text=text,
        overrides=tuple(f"{name}={json.dumps(value)}" for name, value in params.items()),
        params=dict(params),
    )


def squares(params: Mapping[str, Json]) -> Json:
    """A bowl."""
    return sum(float(value) ** 2 for value in params.values() if isinstance(value, int | float))


class MonotonicClock:
    """The ledger's clock as a process's own."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def monotonic_s(self) -> float:
        return (self._clock.now - START).total_seconds()

    def wall(self) -> datetime:
        return self._clock.now


@dataclass
class Search:
    """One sweep, and the command that searches it now."""

    url: str
    spec: SearchSpec
    name: str = "digits"
    seed: int = 5
    workers: int = 1
    limits: SearchLimits = field(default_factory=SearchLimits)
    enqueue: Sequence[Mapping[str, Json]] = ()
    compose: Callable[[int, Mapping[str, Json]], NewTrial] = compose

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.db = Database(self.url, "search", now=self.clock)
        self.notes: list[str] = []
        self.world = World(
            self.db, self.clock, open_sweep(self.db, self._sweep(), new_id=SweepId(hex_id())), AskerId("")
        )
        self.command: Command | None = None
        self.worker: WorkerId | None = None

    def start(self, **changes: Any) -> Command:
        """Give the command, again or with other settings, in a process of its own."""
        for name, value in changes.items():
            setattr(self, name, value)
        open_sweep(self.db, self._sweep(), new_id=SweepId(hex_id()))
        self.command = Command(self)
        return self.command

    def kill(self) -> None:
        """The command dies; its lease of the sweep is taken to have run out."""
        assert self.command is not None
        self.command.leave()

    def rows(self) -> list[Numbered]:
        """All numbers."""
        return history(self.db, self.world.sweep_id)

    def sequence(self) -> list[Mapping[str, Json]]:
        """What was proposed, in order."""
        return [row.proposal.params for row in self.rows()]

    def states(self) -> list[TrialState | None]:
        return [row.state for row in self.rows()]

    def train(self, objective: Objective = squares, *, worker: WorkerId | None = None) -> Grant | None:
        """Be a worker: take a trial and complete it; None when there is none to take."""
        self.worker = self.worker or self.world.worker()
        grant = self.world.try_lease(worker or self.worker)
        if grant is not None:
            self.world.complete(grant.lease, objective(grant.params))
        return grant

    def fail(self, grant: Grant, fault: ObjectiveFault | None = ObjectiveFault.NAN) -> None:
        """End a trial as one whose function returned something that is no objective."""
        commit_result(
            self.db, grant.lease, state=TrialState.FAILED, outcome=AttemptOutcome.INVALID, result=None,
            reason="no objective", outcome_key="k", outcome_hash="h", outcome_stored=True, fault=fault,
        )  # fmt: skip

    def report(self, grant: Grant, step: int, value: float, **metrics: float) -> SearchStop | None:
        """Report an intermediate value, as the holder."""
        reports = [Report(step=step, at_step=step, value=value, metrics=metrics)]
        return record_reports(self.db, grant.lease, reports, lease_s=LEASE_S, heartbeat_s=HEARTBEAT_S)

    def _sweep(self) -> Any:
        return spec(self.name, seed=self.seed, search=self.spec.as_json())


class Command:
    """A coordinator's search in a process of its own."""

    def __init__(self, search: Search) -> None:
        self._search = search
        record = asker()
        register_asker(search.db, search.world.sweep_id, record)
        search.world.asker_id = record.asker_id
        self.coordinator_id = CoordinatorId(hex_id())
        chooser = Chooser(
            database=search.db,
            sweep_id=search.world.sweep_id,
            coordinator_id=self.coordinator_id,
            asker_id=record.asker_id,
        )
        points = tuple(checked_point(search.spec.space, point, open_space=False) for point in search.enqueue)
        plan = SearchPlan(spec=search.spec, compose=search.compose, enqueue=points, limits=search.limits)
        self.turns = Searching(
            chooser,
            plan,
            Optimizer(search.spec, seed=search.seed),
            clock=MonotonicClock(search.clock),
            workers=search.workers,
            seed=search.seed,
            note=search.notes.append,
        )
        self.fence: int | None = None
        self.lead()

    def turn(self) -> SearchStanding:
        """One turn, leading if it does."""
        return self.turns.turn(self.fence)

    def lead(self) -> None:
        """Try to lead now."""
        search = self._search
        self.fence = acquire_coordinator(search.db, search.world.sweep_id, self.coordinator_id, lease_s=30.0)

    def leave(self) -> None:
        """Lead no more."""
        if self.fence is not None:
            release_coordinator(self._search.db, self._search.world.sweep_id, self.coordinator_id, self.fence)

    def run(self, objective: Objective = squares, *, most: int = 200) -> SearchStanding:
        """Take turns and train one trial after the other until the search is over."""
        for _ in range(most):
            standing = self.turn()
            if standing.end is not None and not any(not s.final for s in standing.counts):
                return standing
            self._search.train(objective)
        raise AssertionError(f"not over after {most} turns: {self._search.states()}")


def refusing(wrong: Callable[[Mapping[str, Json]], bool]) -> Callable[[int, Mapping[str, Json]], NewTrial]:
    """A composer to which some configs do not exist."""

    def composer(number: int, params: Mapping[str, Json]) -> NewTrial:
        if wrong(params):
            raise UserError(f"there is no config with {dict(params)}")
        return compose(number, params)

    return composer


Curve = Callable[[Mapping[str, Json], int], float]


def falling(params: Mapping[str, Json], epoch: int) -> float:
    """A loss that falls with training, to where the parameters let it."""
    return float(squares(params)) + 10.0 / epoch  # type: ignore[arg-type]


class Epochs:
    """A worker whose trials report each epoch, wait for what is decided, and obey."""

    def __init__(self, search: Search, *, epochs: int, curve: Curve = falling) -> None:
        self._search = search
        self._epochs = epochs
        self._curve = curve
        self.trained = 0
        """Epochs in all."""

    def train(self, turn: Callable[[], object]) -> Grant | None:
        """Take a trial and train it until it ends or pauses; a turn of the search follows each report."""
        search = self._search
        search.worker = search.worker or search.world.worker()
        grant = search.world.try_lease(search.worker)
        if grant is None:
            return None
        for epoch in range(1 + (0 if grant.head is None else grant.head.step), self._epochs + 1):
            self.trained += 1
            value = self._curve(grant.params, epoch)
            stop = search.report(grant, epoch, value)
            while stop is None and decided(search.db, grant.lease.trial_id, grant.lineage, epoch) is None:
                turn()
            stop = renew_lease(search.db, grant.lease, lease_s=LEASE_S, heartbeat_s=HEARTBEAT_S)
            if stop is not None:
                self._obey(grant, stop, epoch, value)
                return grant
        search.world.complete(grant.lease, value)
        return grant

    def _obey(self, grant: Grant, stop: SearchStop, epoch: int, value: float) -> None:
        if stop.kind is SearchStopKind.PAUSE:
            self._search.world.save(grant, epoch, epoch)
            self._search.world.release(grant.lease, AttemptOutcome.PAUSED)
            return
        commit_result(
            self._search.db, grant.lease, state=TrialState.PRUNED, outcome=AttemptOutcome.PRUNED, result=value,
            reason=stop.reason, outcome_key="k", outcome_hash="h", outcome_stored=True,
        )  # fmt: skip
