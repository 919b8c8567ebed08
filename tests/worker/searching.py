"""A search around the bench: a child that reports at each step, and the coordinator's choices made by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from sweeper.ids import CoordinatorId, TrialId
from sweeper.ledger.decisions import record_decisions, undecided_reports
from sweeper.ledger.promotions import promote_trial
from sweeper.ledger.reads import reports_of
from sweeper.ledger.sweeps import acquire_coordinator
from sweeper.model.messages import Decided, Finished, Reported, Start, Stop, Stopped, ToChild
from sweeper.model.search import Decision, DecisionKind, SearchSpec
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.trial import Report
from sweeper.model.waits import ExitStatus
from tests.simulation.child import SimChild, advance, expected_value
from tests.simulation.world import Process

from .bench import STEPS, Bench

PRUNED = SearchSpec(pruner={"_target_": "optuna.pruners.MedianPruner"}, deterministic=False)
WAITING = replace(PRUNED, deterministic=True)
RUNGS = SearchSpec(scheduler={"kind": "asha"}, deterministic=False)
WAITING_RUNGS = replace(RUNGS, deterministic=True)

Choose = Callable[[int], str | None]
"""What to do about the report of a step: go_on, prune or pause; None: not decided yet."""
Undecided = list[tuple[TrialId, int, int, Report]]


def go_on(step: int) -> str:
    return "go_on"


def at(step: int, action: str) -> Choose:
    return lambda seen: action if seen == step else "go_on"


class ReportingChild(SimChild):
    """Reports in the body of every step, and there leaves, goes on to the save point, or waits, as a real one does."""

    waiting: int | None = None
    reports_at: Callable[[int], bool] = staticmethod(lambda step: True)

    def _train(self) -> None:
        self.step += 1
        self._total = advance(self._total, self.step, self._start.config_hash)
        if self._crash is not None and self.step >= self._crash_at:
            self._die()
            return
        if not self.reports_at(self.step):
            self._go_on()
            return
        self._tell(Reported(step=self.step, at_step=self.step, value=float(self._total), metrics={}))
        if self._told() is None and self._start.reports_wait:
            self.waiting = self.step
        else:
            self._after_report()

    def send(self, message: ToChild) -> None:
        super().send(message)
        if self.waiting is not None and (isinstance(message, Stop) or message == Decided(step=self.waiting)):
            self.waiting = None
            self._later(0.01, self._after_report)

    def _told(self) -> Stop | None:
        return next((message for message in reversed(self._inbox) if isinstance(message, Stop)), None)

    def _after_report(self) -> None:
        stop = self._told()
        if stop is not None and not stop.save:
            self._tell(Stopped(kind=stop.kind, step=self.step))
            self._later(0.1, lambda: self._exit(ExitStatus(code=0)))
            return
        self._go_on()

    def _go_on(self) -> None:
        self.safe_points += 1
        if self.step >= self._steps:
            self._tell(Finished(value=self._total, step=self.step))
            self._later(0.1, lambda: self._exit(ExitStatus(code=0)))
        elif not self._safe_point():
            self._later(self._random.uniform(0.5, 3.0), self._train)


class SearchBench(Bench):
    """A search whose coordinator is the test: `decide` does what a coordinator's turn does about reports."""

    def __init__(self, database_url: str, search: SearchSpec, *, trials_: int = 1) -> None:
        super().__init__(database_url, trials_=trials_, search=search)
        self.kind = DecisionKind.REPORT if search.pruner else DecisionKind.RUNG
        self.leader = CoordinatorId("c" * 32)
        fence = acquire_coordinator(self.database, self.sweep.sweep_id, self.leader, lease_s=1e6)
        assert fence is not None
        self.fence = fence
        self.crash_at: int | None = None
        self.reports_at: Callable[[int], bool] = lambda step: True
        self.make_child = self._child
        self.choose: Choose = go_on

    def undecided(self) -> Undecided:
        """What a coordinator would decide on now."""
        return list(undecided_reports(self.database, self.sweep.sweep_id, kind=self.kind, limit=100))

    def decide(self, choose: Choose | None = None, reports: Undecided | None = None) -> list[Decision]:
        """Decide on every report that nobody has decided on, or on those read earlier."""
        decisions = [
            Decision(
                trial_id=trial_id, number=number, lineage=lineage, kind=self.kind, step=report.step, action=action,
                value=report.value,
            )
            for trial_id, number, lineage, report in reports or self.undecided()
            if (action := (choose or self.choose)(report.step)) is not None
        ]  # fmt: skip
        if decisions:
            record_decisions(self.database, self.sweep.sweep_id, self.leader, self.fence, decisions)
        return decisions

    def lead(self, choose: Choose, *, every_s: float = 1.0) -> None:
        """Have a coordinator decide this way from now on, until `choose` is replaced."""
        self.choose = choose

        def turn() -> None:
            self.decide()
            self.world.after(every_s, turn)

        self.world.after(every_s, turn)

    def promote(self, number: int = 0, *, step: int) -> bool:
        trial = self.trial(number)
        decision = Decision(
            trial_id=trial.trial_id, number=number, lineage=trial.lineage, kind=DecisionKind.PROMOTE, step=step,
            action="go_on",
        )  # fmt: skip
        return promote_trial(self.database, self.sweep.sweep_id, self.leader, self.fence, decision, priority=1)

    def fault(self, number: int = 0) -> str | None:
        text = sa.text("SELECT fault FROM sweeper.trials WHERE trial_id = :trial_id")
        fault: str | None = self.database.run(text, {"trial_id": self.trial(number).trial_id})[0].fault
        return fault

    def reports(self, number: int = 0) -> list[int]:
        return [report.step for report in reports_of(self.database, self.trial(number).trial_id)]

    def value(self, number: int = 0, *, steps: int = STEPS) -> int:
        """What the trial's training gives after so many steps, undisturbed."""
        return expected_value(self.trial(number).config_hash, steps)

    def run_to(self, *states: TrialState, number: int = 0, limit_s: float = 300.0) -> None:
        """Let time pass until the trial is in one of the states, looking only now and then."""
        end_s = self.world.now_s + limit_s
        while self.trial(number).state not in states and self.world.now_s < end_s:
            self.run(2)

    def kill(self, process: Process) -> None:
        """SIGKILL, to the worker; its child follows."""
        process.die("kill")

    def _child(self, process: Process, start: Start, restore_fd: int | None) -> SimChild:
        child = ReportingChild(process, start, restore_fd, steps=STEPS, padding=0, crash=None)
        child.reports_at = self.reports_at
        if self.crash_at is not None:
            child._crash, child._crash_at = "signal", self.crash_at
        return child


MakeBench = Callable[..., SearchBench]


def step_of(bench: SearchBench) -> int:
    """Where the newest child stands."""
    return bench.children[-1].step if bench.children else 0


def outcomes(bench: SearchBench, number: int = 0) -> list[AttemptOutcome | None]:
    """How the attempts ended."""
    return [attempt.outcome for attempt in bench.attempts(number)]


def reporting(crash: str | None = None, *, at_step: int = STEPS, steps: int = STEPS) -> Any:
    """Makes a child that reports at each step, and may die at one."""

    def make(process: Process, start: Start, restore_fd: int | None) -> ReportingChild:
        child = ReportingChild(process, start, restore_fd, steps=steps, padding=0, crash=crash)
        child._crash_at = at_step
        return child

    return make


class Quick(random.Random):
    """Makes each step of a child take a tenth of a second."""

    def uniform(self, a: float, b: float) -> float:
        return 0.1


def quick(*, steps: int) -> Any:
    """Makes a child whose steps take a tenth of a second."""

    def make(process: Process, start: Start, restore_fd: int | None) -> ReportingChild:
        child: ReportingChild = reporting(steps=steps)(process, start, restore_fd)
        child._random = Quick(1)
        return child

    return make


def talkative(*, steps: int, from_step: int = 1) -> Any:
    """Quick steps, with a report at each from one on."""

    def make(process: Process, start: Start, restore_fd: int | None) -> ReportingChild:
        child: ReportingChild = quick(steps=steps)(process, start, restore_fd)
        child.reports_at = lambda step: step >= from_step
        return child

    return make


def steps_of(bench: Bench) -> list[int]:
    """The steps of the first trial's reports."""
    return [report.step for report in reports_of(bench.database, bench.trial().trial_id)]
