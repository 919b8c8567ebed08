"""What a report does with the search's decisions: it leaves, goes on to the next save point, or waits for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import sweeper
from sweeper.model.messages import Decided, Reported, Saved, SaveNow
from tests.trial.lone_worker import START, Killed, LoneWorker

WAITING = replace(START, reports_wait=True)


def decide(worker: LoneWorker, report: Reported) -> None:
    worker.send(Decided(step=report.step))


def training(seen: list[Any] | None = None, *, epochs: int = 4, steps: int = 3) -> Callable[[], float]:
    """One report at each epoch's end, within the epoch's body; more of the body follows."""

    def train() -> float:
        run = sweeper.resume()
        for epoch in run.epochs(epochs):
            for _ in run.steps(steps):
                run.state["sum"] = run.state.get("sum", 0) * 2 + run.step
            run.report(run.state["sum"], step=epoch)
            if seen is not None:
                seen.append(epoch)
        return run.state["sum"]

    return train


@pytest.mark.parametrize("start", [START, WAITING], ids=["in passing", "waiting"])
def test_a_pruned_trial_is_left_right_at_the_report_and_nothing_is_saved(start: Any) -> None:
    def prune(worker: LoneWorker, report: Reported) -> None:
        worker.stop("pruned", save=False) if report.step == 1 else decide(worker, report)

    seen: list[Any] = []
    worker = LoneWorker(start=start, on_report=prune).run(training(seen))
    assert isinstance(worker.stopped, sweeper.Pruned)
    assert (seen, worker.saves) == ([0], [])


@pytest.mark.parametrize("start", [START, WAITING], ids=["in passing", "waiting"])
def test_a_paused_trial_goes_on_from_the_report_to_the_next_save_point(start: Any) -> None:
    def pause(worker: LoneWorker, report: Reported) -> None:
        worker.stop("paused", save=True) if report.step == 1 else decide(worker, report)

    seen: list[Any] = []
    worker = LoneWorker(start=start, on_report=pause).run(training(seen))
    assert isinstance(worker.stopped, sweeper.Paused)
    assert seen == [0, 1]
    assert [(save.facts.step, save.facts.epoch) for save in worker.saves] == [(6, 2)]
    promoted = LoneWorker(start=replace(start, attempt=2), restore=worker.saves[0], on_report=decide).run(training())
    assert promoted.value == LoneWorker().run(training()).value


@pytest.mark.parametrize("start", [START, WAITING], ids=["in passing", "waiting"])
def test_a_script_with_loops_of_its_own_is_paused_at_its_next_report(start: Any) -> None:
    """It has no save points, so it begins again when it is promoted; waiting for one would train it to the end."""

    def train() -> float:
        run = sweeper.resume()
        for epoch in range(4):
            run.report(float(epoch))
        return 1.0

    worker = LoneWorker(start=start, on_report=lambda worker, report: worker.stop("paused", save=True)).run(train)
    assert isinstance(worker.stopped, sweeper.Paused)
    assert [report.step for report in worker.reports] == [0]


def test_an_eviction_without_time_to_save_is_obeyed_in_the_middle_of_a_body() -> None:
    worker = LoneWorker()

    def train() -> None:
        run = sweeper.resume()
        for _ in run.steps(4):
            if run.step == 2:
                worker.stop("evicted", save=False, seconds_left=1.0)
            run.report(1.0)
            assert run.step < 2

    worker.run(train)
    assert isinstance(worker.stopped, sweeper.Evicted)


def test_a_waiting_report_serves_saves_and_returns_at_its_own_decision_only() -> None:
    """SAME: what was decided on another step, a finished upload or a wish for a save let nothing go on."""

    def answer(worker: LoneWorker, report: Reported) -> None:
        worker.send(Saved(seq=1, ok=True))
        worker.send(Decided(step=report.step + 7))
        worker.send(SaveNow(reason="test"))
        assert worker.session.stopped is None
        decide(worker, report)

    kept = LoneWorker(start=replace(WAITING, every_s=0.0), on_save=lambda worker, save: len(worker.saves) > 1)
    kept.on_report = answer
    kept.run(training())
    assert kept.value == LoneWorker().run(training()).value
    assert [report.step for report in kept.reports] == [0, 1, 2, 3]
    assert [save.facts.step for save in kept.saves][:2] == [1, 3], "the first save was in flight until the report"


def test_an_eviction_ends_the_wait_and_finds_the_next_save_point() -> None:
    """RESUME, SAME: nothing is lost, and the report that was not decided on is not made again."""
    seen: list[Any] = []
    worker = LoneWorker(start=WAITING, on_report=lambda worker, report: worker.stop("evicted", seconds_left=20.0))
    worker.run(training(seen))
    assert isinstance(worker.stopped, sweeper.Evicted)
    assert seen == [0]
    again = LoneWorker(start=replace(WAITING, attempt=2), restore=worker.saves[0], on_report=decide).run(training())
    assert again.value == LoneWorker().run(training()).value
    assert [report.step for report in again.reports] == [1, 2, 3]


def test_a_worker_that_dies_during_the_wait_ends_training() -> None:
    def die(worker: LoneWorker, report: Reported) -> None:
        worker._socket.close()

    worker = LoneWorker(start=WAITING, on_report=die).run(training())
    assert isinstance(worker.stopped, sweeper.Evicted)
    assert worker.stopped.reason == "the worker is gone"


def test_a_kill_during_the_wait_resumes_to_the_same_end() -> None:
    """SAME: the report is made again and its decision is there already."""

    def die(worker: LoneWorker, report: Reported) -> None:
        if report.step == 2:
            raise Killed
        decide(worker, report)

    first = LoneWorker(start=replace(WAITING, every_s=0.0), on_report=die).run(training())
    assert first.value is Killed
    again = LoneWorker(start=WAITING, restore=first.saves[-1], on_report=decide).run(training())
    assert again.value == LoneWorker().run(training()).value
    assert [report.step for report in again.reports] == [2, 3]


def test_outside_a_sweep_no_report_waits() -> None:
    run = sweeper.resume()
    for _ in run.epochs(2):
        run.report(0.5)
    assert run.epoch == 1
