"""Safe points, save points, stops that latch, and what a swallowed stop or a kill may not do."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import sweeper
from sweeper.errors import StateMismatch, UserError
from tests.trial.lone_worker import START, Killed, LoneWorker, Save, refused

EAGER = replace(START, every_s=0.0)


def counting(epochs: int = 3, steps: int = 4, **options: Any) -> Callable[[], Any]:
    def train() -> float:
        run = sweeper.resume()
        for _ in run.epochs(epochs, **options):
            for _ in run.steps(steps):
                run.state["sum"] = run.state.get("sum", 0) * 2 + run.step
        return run.state["sum"]

    return train


def test_save_points_are_all_body_ends_but_the_last_of_the_loader_and_all_epoch_ends_but_the_last() -> None:
    saving = LoneWorker(start=EAGER).run(counting(epochs=2, steps=3))
    places = [(save.facts.step, save.facts.epoch, save.batch) for save in saving.saves]
    assert places == [(1, 0, 1), (2, 0, 2), (3, 1, None), (4, 1, 1), (5, 1, 2)]


def test_a_resumed_run_executes_at_least_one_body_so_a_kill_before_the_commit_cannot_fake_a_result() -> None:
    """RESUME. A save after the last body, then a kill: the loop would be empty and `total` its initial value."""

    def train() -> float:
        run = sweeper.resume()
        total = -1.0
        for _ in run.epochs(2):
            for step in run.steps(3):
                total = step + 1.0
        return total

    saving = LoneWorker(start=EAGER).run(train)
    for save in saving.saves:
        assert LoneWorker(restore=save).run(train).value == 3.0


def test_epochs_may_be_kept_whole() -> None:
    saving = LoneWorker(start=EAGER).run(counting(save_within=False))
    assert [save.batch for save in saving.saves] == [None, None]


@pytest.mark.parametrize("kind", ["evicted", "pruned", "paused", "cancelled"])
def test_a_stop_is_raised_at_the_next_safe_point_after_the_save_it_asks_for(kind: str) -> None:
    worker = LoneWorker()

    def train() -> None:
        run = sweeper.resume()
        for _ in run.epochs(3):
            for step in run.steps(4):
                if run.step == 6:
                    assert step == 1
                    worker.stop(kind, save=kind in ("evicted", "paused"), seconds_left=9.0)
                    assert run.seconds_left is None
                assert run.step < 7, "it left"

    worker.run(train)
    assert worker.stopped is not None
    assert worker.stopped.kind == kind
    assert worker.stopped.code == (75 if kind in ("evicted", "paused") else 0)
    assert [save.facts.step for save in worker.saves] == ([6] if kind in ("evicted", "paused") else [])
    assert worker.session.seconds_left == 9.0


def test_a_stop_that_wants_a_save_waits_for_the_end_of_the_epoch_after_the_last_batch() -> None:
    worker = LoneWorker()

    def train() -> None:
        run = sweeper.resume()
        for _ in run.epochs(3):
            for step in run.steps(4):
                if step == 3:
                    worker.stop()
            run.state["evaluated"] = run.epoch

    worker.run(train)
    assert [(save.facts.step, save.facts.epoch, save.batch) for save in worker.saves] == [(4, 1, None)]


def test_a_stop_in_the_last_body_of_all_lets_the_function_end() -> None:
    worker = LoneWorker()

    def train() -> str:
        run = sweeper.resume()
        for _ in run.epochs(2):
            for _ in run.steps(4):
                if run.step == 8:
                    worker.stop()
        return "done"

    worker.run(train)
    assert worker.value == "done"
    assert worker.stopped is None


@pytest.mark.parametrize("catch", ["except Exception", "bare except"])
def test_a_swallowed_stop_latches_and_stays_the_outcome(catch: str) -> None:
    """A bare `except:` swallowed it and the function returned a normal-looking result."""
    worker = LoneWorker()

    def train() -> float:
        run = sweeper.resume()
        try:
            for _ in run.epochs(3):
                for _ in run.steps(4):
                    worker.stop()
        except Exception:
            return 1.0
        except:  # noqa: E722
            for call in (run.poll, run.checkpoint, lambda: run.report(1.0), lambda: next(iter(run.epochs(1))),
                         lambda: run.batches([1]), lambda: run.mean("x", 1.0)):  # fmt: skip
                with pytest.raises(sweeper.Evicted):
                    call()
            if catch == "except Exception":
                raise
            return 2.0
        return 3.0

    worker.run(train)
    assert isinstance(worker.stopped, sweeper.Evicted)
    assert worker.value == (2.0 if catch == "bare except" else None)


def test_an_exception_in_a_body_saves_nothing() -> None:
    worker = LoneWorker(start=EAGER)

    def train() -> None:
        run = sweeper.resume()
        for _ in run.steps(4):
            if run.step == 2:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        worker.run(train)
    assert [save.facts.step for save in worker.saves] == [1]


def test_a_batch_left_by_break_counts_as_handed_out_and_is_no_save_point() -> None:
    def train() -> None:
        run = sweeper.resume()
        for _ in run.epochs(2):
            for step in run.steps(4):
                if step == 1:
                    break

    saving = LoneWorker(start=EAGER).run(train)
    assert [(save.facts.step, save.batch) for save in saving.saves] == [(1, 1), (2, None), (3, 1)]


def test_the_cadence_is_kept_by_the_clock_with_the_save_at_the_next_save_point() -> None:
    worker = LoneWorker(start=replace(START, every_s=10.0))

    def train() -> None:
        run = sweeper.resume()
        for _ in run.steps(12):
            worker.clock.now_s += 4.0

    worker.run(train)
    assert [save.facts.step for save in worker.saves] == [3, 6, 9]


def test_one_save_is_in_flight_and_a_newer_wish_waits_as_a_flag() -> None:
    worker = LoneWorker(on_save=lambda worker, save: len(worker.saves) > 1)

    def train() -> None:
        run = sweeper.resume()
        for _ in run.steps(8):
            run.checkpoint()
            if run.step == 5:
                from sweeper.model.messages import Saved

                worker.send(Saved(seq=1, ok=True))

    worker.run(train)
    assert [save.facts.step for save in worker.saves] == [1, 5, 6, 7]
    assert [save.facts.seq for save in worker.saves] == [1, 2, 3, 4]


def test_a_refused_save_backs_off_and_training_goes_on() -> None:
    worker = LoneWorker(start=replace(START, every_s=100.0))

    def train() -> str:
        run = sweeper.resume()
        for _ in run.steps(6):
            run.state["what"] = object() if run.step < 3 else 1
            worker.clock.now_s += 60.0
        return "done"

    worker.run(train)
    assert worker.value == "done"
    assert "progress.state.what: a builtins.object has no exact form" in worker.failures[0].detail
    assert [save.facts.step for save in worker.saves] == [3, 5]


def test_a_save_that_is_asked_for_comes_at_the_next_save_point_not_inside_the_body() -> None:
    def train() -> None:
        run = sweeper.resume()
        for step in run.steps(4):
            if step == 1:
                run.checkpoint()
                run.state["after"] = True

    worker = LoneWorker().run(train)
    (save,) = worker.saves
    seen: dict[str, Any] = {}

    def look() -> None:
        seen.update(sweeper.resume().state)
        raise Killed

    LoneWorker(restore=save).run(look)
    assert seen == {"after": True}


def test_poll_stops_without_a_save_and_report_does_where_no_safe_point_is_coming() -> None:
    for act in (lambda run: run.poll(), lambda run: run.report(1.0)):
        worker = LoneWorker()

        def train(act: Callable[[Any], None] = act, worker: LoneWorker = worker) -> None:
            run = sweeper.resume()
            worker.stop("pruned", save=False)
            act(run)

        worker.run(train)
        assert isinstance(worker.stopped, sweeper.Pruned)
        assert worker.saves == []


def test_a_worker_that_is_gone_ends_training() -> None:
    worker = LoneWorker()

    def train() -> None:
        run = sweeper.resume()
        worker._socket.close()
        worker.control.raise_inbox()
        for _ in run.steps(3):
            assert run.step == 1

    worker.run(train)
    assert isinstance(worker.stopped, sweeper.Evicted)


def test_a_kill_between_the_save_and_its_commit_resumes_from_the_one_before() -> None:
    """RESUME, FALLBACK: the second save was sealed but never committed."""

    def die(worker: LoneWorker, save: Save) -> bool:
        if len(worker.saves) == 2:
            raise Killed
        return True

    first = LoneWorker(start=EAGER, on_save=die).run(counting())
    assert first.value is Killed
    again = LoneWorker(restore=first.saves[0]).run(counting())
    assert again.value == LoneWorker().run(counting()).value


def test_loops_that_cannot_be_resumed_are_refused_with_the_remedy() -> None:
    """CLEAR."""

    def nested() -> None:
        run = sweeper.resume()
        for _ in run.epochs(2):
            for _ in run.epochs(2):
                pass

    def twice() -> None:
        run = sweeper.resume()
        for _ in run.batches([1, 2]):
            pass
        for _ in run.batches([1, 2]):
            pass

    def side_by_side() -> None:
        run = sweeper.resume()
        for _ in run.epochs(2):
            for _ in zip(run.batches([1, 2]), run.batches([3, 4]), strict=True):
                pass

    def interleaved() -> None:
        run = sweeper.resume()
        other: Any = None
        for _ in run.epochs(2):
            for _ in run.batches([1, 2, 3]):
                other = other or iter(run.eval([4, 5, 6]))
                next(other)

    def once_only() -> None:
        sweeper.resume().batches(iter([1, 2]))

    refused(nested, UserError, "inside the body of another run.epochs")
    refused(twice, UserError, "use run.eval")
    refused(side_by_side, UserError, "companion loops cannot be resumed yet")
    refused(interleaved, UserError, "cannot be resumed yet")
    refused(once_only, UserError, "give it the loader itself")
    refused(lambda: sweeper.resume().files, UserError, "not available yet")
    refused(lambda: sweeper.resume().checkpoint(files="x"), UserError, "not available yet")
    refused(lambda: (sweeper.resume(), sweeper.resume()), UserError, "called twice")


def test_several_ranks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    refused(sweeper.resume, UserError, "one of 2 ranks")


def test_a_second_loop_of_epochs_begins_after_the_first() -> None:
    def train() -> list[Any]:
        run = sweeper.resume()
        for name, count in (("warm", 2), ("fine", 3)):
            for epoch in run.epochs(count):
                for _ in run.steps(2):
                    run.state["seen"] = [*run.state.get("seen", []), (name, epoch, run.step)]
        return run.state["seen"]

    straight = LoneWorker().run(train)
    saving = LoneWorker(start=EAGER).run(train)
    for save in saving.saves:
        assert LoneWorker(restore=save).run(train).value == straight.value


def test_a_checkpoint_of_another_shape_of_loops_is_refused() -> None:
    saving = LoneWorker(start=EAGER).run(counting())
    middle = saving.saves[5]

    def shorter() -> None:
        for _ in sweeper.resume().epochs(1):
            pass

    def without() -> None:
        for _ in sweeper.resume().epochs(3):
            pass

    for train, text in ((shorter, "ends before"), (without, "had no such loop")):
        with pytest.raises(StateMismatch, match=text):
            LoneWorker(restore=middle).run(train)


def test_an_epoch_without_batches_or_steps_is_a_step_of_its_own() -> None:
    """Else nobody sees how far it is, and no report could be told to lie beyond a checkpoint."""

    def train() -> list[int]:
        run = sweeper.resume()
        for _ in run.epochs(3):
            run.report(1.0)
            run.state["steps"] = [*run.state.get("steps", []), run.step]
        return run.state["steps"]

    straight = LoneWorker(start=replace(START, every_s=0.0)).run(train)
    assert straight.value == [0, 1, 2]
    assert [(report.step, report.at_step) for report in straight.reports] == [(1, 1), (2, 2), (3, 3)]
    assert [(save.facts.step, save.facts.epoch) for save in straight.saves] == [(1, 1), (2, 2)]
    again = LoneWorker(start=replace(START, attempt=2), restore=straight.saves[0]).run(train)
    assert (again.value, [report.at_step for report in again.reports]) == ([0, 1, 2], [2, 3])


def test_reports_default_to_epochs_outside_batches_and_to_steps_inside() -> None:
    def outside() -> None:
        run = sweeper.resume()
        for _ in run.epochs(2):
            for _ in run.steps(3):
                pass
            run.report(run.step * 1.0, loss=0.5)

    def inside() -> None:
        run = sweeper.resume()
        for _ in run.epochs(2):
            for _ in run.steps(2):
                run.report(1.0)
            run.report(2.0)

    assert [(r.step, r.at_step, r.value) for r in LoneWorker().run(outside).reports] == [(1, 3, 3.0), (2, 6, 6.0)]
    assert [(r.step, r.value) for r in LoneWorker().run(inside).reports] == [
        (1, 1.0), (2, 1.0), (2, 2.0), (3, 1.0), (4, 1.0), (4, 2.0)]  # fmt: skip
    refused(lambda: sweeper.resume().report("0.5"), UserError, "is not a number")


@pytest.mark.parametrize("step", ["abc", 1.5, -1, 2**70, math.nan, None])
def test_a_report_wants_whole_numbers_for_its_step_and_a_number_for_its_value(step: Any) -> None:
    def train() -> None:
        run = sweeper.resume()
        for _ in run.steps(1):
            run.report(1.0, step=step) if step is not None else run.report(10**400)

    refused(train, UserError, "run.report")


def test_numbers_of_other_libraries_are_numbers() -> None:
    import numpy as np
    import torch

    def train() -> float:
        run = sweeper.resume()
        for _ in run.steps(1):
            run.report(torch.tensor(1.5, requires_grad=True), step=np.int64(3), nan=np.float32("nan"), yes=True)
            run.mean("a", np.float16(2), weight=torch.tensor(3))
        return run.mean("a")

    worker = LoneWorker().run(train)
    assert type(worker.value) is float
    assert [(report.step, report.value, repr(report.metrics)) for report in worker.reports] == [
        (3, 1.5, "{'nan': nan, 'yes': 1.0}")
    ]


def test_a_function_that_never_comes_back_to_its_place_has_no_result() -> None:
    """Edited between two attempts: what it would return is the value of another run."""

    def train(*, loops: bool = True, resume: bool = True) -> int:
        run = sweeper.resume() if resume else None
        for _ in run.epochs(2) if run is not None and loops else ():
            for _ in run.steps(3) if run is not None else ():
                pass
        return 1

    save = LoneWorker(start=EAGER).run(train).saves[0]
    with pytest.raises(StateMismatch, match=r"without coming back to a run.steps\(...\) in epoch 0"):
        LoneWorker(restore=save).run(lambda: train(loops=False))
    with pytest.raises(StateMismatch, match=r"did not call sweeper.resume"):
        LoneWorker(restore=save).run(lambda: train(resume=False))


def test_best_value_and_patience_survive_an_eviction() -> None:
    """CK-07: scores 0.5, 0.1, 0.4, eviction, 0.3, 0.2 with patience 3."""
    scores = [0.5, 0.1, 0.4, 0.3, 0.2, 0.15, 0.12]

    def train() -> tuple[float, int]:
        run = sweeper.resume()
        state = run.state
        for epoch in run.epochs(len(scores)):
            if scores[epoch] < state.get("best", float("inf")):
                state.update(best=scores[epoch], at=epoch, waited=0)
            else:
                state["waited"] += 1
            run.report(scores[epoch])
            if epoch == 2:
                run.checkpoint()
            if state["waited"] == 3:
                break
        return state["best"], state["at"], epoch

    straight = LoneWorker().run(train)
    assert straight.value == (0.1, 1, 4)
    (save,) = straight.saves
    assert LoneWorker(restore=save).run(train).value == (0.1, 1, 4)


def test_code_above_the_loop_runs_again_and_its_effects_are_undone() -> None:
    """`lr *= 0.9` at the top of an epoch broke every resume in its middle."""
    import torch

    def train() -> list[float]:
        parameter = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(parameter.parameters(), lr=1.0, momentum=0.9)
        run = sweeper.resume(model=parameter, optimizer=optimizer)
        torch.rand(3)
        for _ in run.epochs(3):
            optimizer.param_groups[0]["lr"] *= 0.9
            torch.nn.init.normal_(parameter.weight)
            run.state["tops"] = run.state.get("tops", 0) + 1
            offset = torch.rand(())
            for _ in run.steps(3):
                optimizer.zero_grad()
                parameter(torch.rand(4, 2)).sum().backward()
                optimizer.step()
                run.report((parameter.weight.sum() + offset).item(), lr=optimizer.param_groups[0]["lr"])
        return [*parameter.weight.flatten().tolist(), run.state["tops"]]

    from tests.trial.lone_worker import assert_resumes_exactly

    assert_resumes_exactly(lambda: train)


def test_accumulated_gradients_are_waited_for_at_most_eight_times_and_never_half_saved() -> None:
    import torch

    def train(window: int) -> Callable[[], float]:
        def run_it() -> float:
            model = torch.nn.Linear(2, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            run = sweeper.resume(model=model, optimizer=optimizer)
            for step in run.steps(30):
                model(torch.rand(4, 2)).sum().backward()
                if step % window == window - 1:
                    optimizer.step()
                    optimizer.zero_grad()
            return model.weight.sum().item()

        return run_it

    straight = LoneWorker().run(train(4))
    saving = LoneWorker(start=EAGER).run(train(4))
    assert [save.facts.step for save in saving.saves] == [4, 8, 12, 16, 20, 24, 28]
    assert {LoneWorker(restore=save).run(train(4)).value for save in saving.saves} == {straight.value}
    straight = LoneWorker().run(train(15))
    saving = LoneWorker(start=EAGER).run(train(15))
    assert [save.facts.step for save in saving.saves] == [9, 15, 24], "eight save points are let pass, no more"
    assert {LoneWorker(restore=save).run(train(15)).value for save in saving.saves} == {straight.value}


def test_outside_a_sweep_helpers_only_loop() -> None:
    import random

    random.seed(3)
    expected = random.Random(3).random()
    run = sweeper.resume()
    seen = [(epoch, item, run.step, run.batch) for epoch in run.epochs(2) for item in run.batches([5, 6])]
    assert seen == [(0, 5, 1, 0), (0, 6, 2, 1), (1, 5, 3, 0), (1, 6, 4, 1)]
    assert list(run.eval([7])) == [7]
    assert len(run.batches([1, 2, 3])) == 3
    assert [run.mean("x", value) for value in (1.0, 3.0)] == [1.0, 2.0]
    run.report(0.5)
    run.checkpoint()
    run.poll()
    assert (run.attempt, run.resumed, run.seconds_left) == (1, False, None)
    assert random.random() == expected


def test_the_run_says_what_attempt_it_is() -> None:
    saving = LoneWorker(start=EAGER).run(counting())
    facts: list[Any] = []

    def train() -> None:
        run = sweeper.resume()
        facts.append((run.attempt, run.resumed, run.step))
        raise Killed

    LoneWorker(start=replace(START, attempt=2), restore=saving.saves[1]).run(train)
    assert facts == [(2, True, 2)]
