"""Where reports wait, nothing depends on how fast decisions travel, nor on who dies while one is awaited (SAME)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sweeper.ledger.commands import cancel_trials
from sweeper.model.states import AttemptOutcome, TrialState

from .bench import STEPS
from .searching import WAITING, WAITING_RUNGS, MakeBench, SearchBench, at, go_on, outcomes, step_of

pytestmark = pytest.mark.slow


def only_to(step: int, then: Callable[[int], str | None] = go_on) -> Callable[[int], str | None]:
    """A coordinator that is gone before it decides on that step."""
    return lambda seen: then(seen) if seen < step else None


def waits_at(bench: SearchBench, step: int) -> bool:
    return bool(bench.children) and bench.children[-1].waiting == step  # type: ignore[attr-defined]


def test_training_stands_still_until_the_search_has_decided_and_the_lease_is_kept(
    make_bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    """BLIND: not a hang, however long it takes; and it is said once, since a machine is paid for meanwhile."""
    bench = make_bench(WAITING)
    bench.set(hang_s=30.0)
    bench.lead(only_to(3))
    bench.worker()
    bench.run(30, until=lambda: waits_at(bench, 3))
    bench.run(150)
    assert (bench.trial().state, step_of(bench), bench.reports()) == (TrialState.RUNNING, 3, [1, 2, 3])
    assert caplog.text.count("trial 0 stands still: nobody has decided on its report of step 3") == 1
    bench.choose = go_on
    bench.run_to(TrialState.COMPLETED)
    assert (bench.trial().state, bench.trial().result) == (TrialState.COMPLETED, bench.value())
    assert outcomes(bench) == [AttemptOutcome.COMPLETED]


def test_a_decision_is_there_soon_after_it_was_made(make_bench: MakeBench) -> None:
    bench = make_bench(WAITING)
    bench.lead(only_to(3))
    bench.worker()
    bench.run(30, until=lambda: waits_at(bench, 3))
    bench.run(100)
    bench.decide(go_on)
    bench.run(0.3)
    assert not waits_at(bench, 3)


def test_a_pruned_trial_has_not_trained_a_step_beyond(make_bench: MakeBench) -> None:
    bench = make_bench(WAITING)
    bench.lead(at(4, "prune"))
    bench.worker()
    bench.run(60)
    assert (bench.trial().state, bench.trial().result) == (TrialState.PRUNED, float(bench.value(steps=4)))
    assert (bench.children[0].step, bench.reports()) == (4, [1, 2, 3, 4])


def test_a_paused_trial_leaves_at_the_save_point_of_that_report(make_bench: MakeBench) -> None:
    bench = make_bench(WAITING_RUNGS)
    bench.lead(at(4, "pause"))
    bench.worker()
    bench.run(60)
    trial = bench.trial()
    assert trial.head is not None
    assert (trial.state, trial.head.step) == (TrialState.PAUSED, 4)
    assert bench.promote(step=4)
    bench.run(100)
    assert (bench.trial().state, bench.trial().result) == (TrialState.COMPLETED, bench.value())
    assert outcomes(bench) == [AttemptOutcome.PAUSED, AttemptOutcome.COMPLETED]


def test_an_eviction_ends_the_wait_and_the_search_may_decide_later(make_bench: MakeBench) -> None:
    """RESUME: the state after the report is saved; the next attempt does not make that report again."""
    bench = make_bench(WAITING)
    bench.lead(only_to(4))
    process = bench.worker("first")
    bench.run(60, until=lambda: waits_at(bench, 4))
    bench.evict(process)
    bench.run(60)
    assert process.result.status == 75
    head = bench.trial().head
    assert head is not None
    assert head.step == 4
    bench.choose = go_on
    bench.worker("second")
    bench.run_to(TrialState.COMPLETED)
    assert (bench.trial().state, bench.trial().result) == (TrialState.COMPLETED, bench.value())
    assert bench.reports() == list(range(1, STEPS + 1))


@pytest.mark.parametrize("step", [3, STEPS])
@pytest.mark.parametrize("how", ["evicted", "killed"])
@pytest.mark.parametrize("when", ["pending", "running"])
def test_whoever_dies_meanwhile_a_pruned_trial_ends_at_the_same_report(
    make_bench: MakeBench, how: str, when: str, step: int
) -> None:
    """SAME: decided while nobody held the trial, or while the next one trained again; also on the very last report."""
    bench = make_bench(WAITING)
    bench.lead(only_to(step))
    process = bench.worker("first")
    bench.run(90, until=lambda: waits_at(bench, step))
    bench.evict(process) if how == "evicted" else bench.kill(process)
    if when == "running":
        bench.worker("second")
        bench.run(300, until=lambda: len(bench.children) == 2)
    else:
        bench.run(20)
    bench.choose = at(step, "prune")
    if when == "pending":
        bench.run(1)
        bench.worker("second")
    bench.run_to(TrialState.PRUNED)
    trial = bench.trial()
    assert (trial.state, trial.result, trial.step) == (TrialState.PRUNED, float(bench.value(steps=step)), step)
    assert bench.reports() == list(range(1, step + 1))
    assert trial.crashes == 0


@pytest.mark.parametrize("how", ["evicted", "killed"])
@pytest.mark.parametrize(("step", "ends"), [(5, TrialState.PAUSED), (STEPS, TrialState.COMPLETED)])
def test_whoever_dies_meanwhile_a_pause_ends_as_it_would_have(
    make_bench: MakeBench, how: str, step: int, ends: TrialState
) -> None:
    """SAME: paused at the report with a state of that step, or complete, since no save point was left."""
    bench = make_bench(WAITING_RUNGS)
    bench.lead(only_to(step))
    process = bench.worker("first")
    bench.run(90, until=lambda: waits_at(bench, step))
    bench.evict(process) if how == "evicted" else bench.kill(process)
    bench.run(20)
    bench.choose = at(step, "pause")
    bench.run(1)
    bench.worker("second")
    bench.run_to(TrialState.PAUSED, TrialState.COMPLETED)
    trial = bench.trial()
    assert trial.state is ends
    if ends is TrialState.PAUSED:
        assert trial.head is not None
        assert trial.head.step == step
    else:
        assert trial.result == bench.value()


def test_a_result_waits_for_the_decision_on_the_last_report_and_in_a_drain_gives_way(make_bench: MakeBench) -> None:
    """SAME: an undisturbed run would have been told before it could return."""
    bench = make_bench(WAITING)
    bench.lead(only_to(STEPS))
    process = bench.worker("first")
    bench.run(90, until=lambda: waits_at(bench, STEPS))
    bench.evict(process)
    bench.run(60)
    first = bench.attempts()[0]
    assert first.outcome is AttemptOutcome.EVICTED
    assert first.reason == "signal: SIGTERM; the search had not decided on the last report"
    assert bench.trial().state is TrialState.PENDING
    bench.choose = go_on
    bench.worker("second")
    bench.run_to(TrialState.COMPLETED)
    assert (bench.trial().state, bench.trial().result) == (TrialState.COMPLETED, bench.value())


def test_a_decision_that_comes_in_time_lets_a_returned_function_complete_in_the_drain(make_bench: MakeBench) -> None:
    bench = make_bench(WAITING)
    bench.lead(only_to(STEPS), every_s=0.2)
    process = bench.worker("first")
    bench.run(90, until=lambda: waits_at(bench, STEPS))
    bench.evict(process)
    bench.run(1)
    bench.choose = go_on
    bench.run(10)
    assert process.result.status == 75
    assert (bench.trial().state, bench.trial().result) == (TrialState.COMPLETED, bench.value())


def test_a_report_of_an_earlier_attempt_is_decided_on_before_the_result_counts(make_bench: MakeBench) -> None:
    """SAME: the next attempt begins after that report and makes none itself."""
    bench = make_bench(WAITING)
    bench.reports_at = lambda step: step == 6
    process = bench.worker("first")
    bench.run(60, until=lambda: waits_at(bench, 6))
    bench.evict(process)
    bench.run(60)
    bench.worker("second")
    bench.run(90, until=lambda: len(bench.children) == 2 and not bench.children[1].lives)
    bench.run(20)
    assert (step_of(bench), bench.trial().state) == (STEPS, TrialState.RUNNING)
    bench.decide(at(6, "prune"))
    bench.run(30)
    assert (bench.trial().state, bench.trial().result) == (TrialState.PRUNED, float(bench.value(steps=6)))


def test_an_outage_of_the_ledger_during_the_wait_is_waited_out(make_bench: MakeBench) -> None:
    """BLIND."""
    bench = make_bench(WAITING)
    bench.lead(only_to(3))
    bench.worker()
    bench.run(30, until=lambda: waits_at(bench, 3))
    bench.weather.database_away_until_s = bench.world.now_s + 90
    bench.choose = go_on
    bench.run(60)
    assert waits_at(bench, 3)
    bench.run_to(TrialState.COMPLETED)
    assert (bench.trial().state, bench.trial().result) == (TrialState.COMPLETED, bench.value())
    assert outcomes(bench) == [AttemptOutcome.COMPLETED]


def test_a_trial_cancelled_during_the_wait_is_left_alone(make_bench: MakeBench) -> None:
    """FENCE."""
    bench = make_bench(WAITING)
    bench.lead(only_to(3))
    bench.worker()
    bench.run(30, until=lambda: waits_at(bench, 3))
    cancel_trials(bench.database, bench.sweep.sweep_id, [0])
    bench.run(60)
    assert not bench.children[0].lives
    assert bench.trial().state is TrialState.CANCELLED


def test_a_trial_without_any_report_completes_without_a_decision(make_bench: MakeBench) -> None:
    bench = make_bench(WAITING)
    bench.reports_at = lambda step: False
    bench.worker()
    bench.run_to(TrialState.COMPLETED)
    assert (bench.trial().state, bench.trial().result) == (TrialState.COMPLETED, bench.value())
