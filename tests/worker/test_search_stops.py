"""How a search's decisions reach a trial and end its attempts: a real ledger, virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweeper.checkpoint.outcomes import read_outcome
from sweeper.model.messages import Invalid, Start, Stop
from sweeper.model.search import SearchSpec
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.waits import ExitStatus
from tests.simulation.child import SimChild
from tests.simulation.world import Process

from .bench import STEPS
from .searching import PRUNED, RUNGS, WAITING_RUNGS, MakeBench, ReportingChild, at, go_on, outcomes, step_of

pytestmark = pytest.mark.slow


# -- pruned -----------------------------------------------------------------------------------------------------------


def test_a_pruned_trials_history_ends_at_the_report_that_decided_it_in_row_and_object(make_bench: MakeBench) -> None:
    """SAME, ONCE: what it trained while the decision travelled does not count."""
    bench = make_bench(PRUNED)
    bench.worker()
    bench.run(60, until=lambda: step_of(bench) >= 5)
    bench.run(1)
    bench.decide(at(3, "prune"))
    bench.run(60)
    trial = bench.trial()
    assert (trial.state, trial.result, trial.step) == (TrialState.PRUNED, float(bench.value(steps=3)), 3)
    assert bench.children[0].step > 3
    assert bench.reports() == [1, 2, 3]
    assert trial.outcome_key is not None
    outcome = read_outcome(bench.store, trial.outcome_key)
    assert (outcome.state, outcome.value, outcome.step) == (TrialState.PRUNED, trial.result, 3)
    assert [report.step for report in outcome.read_reports()] == [1, 2, 3]
    assert outcomes(bench) == [AttemptOutcome.PRUNED]
    assert bench.checkpoints()[-1].step < bench.children[0].step, "nothing is saved for it"


def test_a_prune_that_is_in_the_ledger_before_the_result_wins(make_bench: MakeBench) -> None:
    """SAME: the history ended there, though the function has returned since, and no report or heartbeat told."""
    bench = make_bench(PRUNED)
    bench.reports_at = lambda step: step <= 6
    bench.worker()
    bench.run(60, until=lambda: step_of(bench) >= STEPS - 1)
    bench.run(0.6)
    bench.decide(at(6, "prune"))
    assert bench.trial().state is TrialState.RUNNING
    bench.run(60)
    assert bench.children[0]._told() is None
    assert (bench.trial().state, bench.trial().result) == (TrialState.PRUNED, float(bench.value(steps=6)))


def test_a_result_that_is_there_before_the_prune_stands(make_bench: MakeBench) -> None:
    bench = make_bench(PRUNED)
    bench.worker()
    bench.run(60)
    assert bench.decide(at(6, "prune")) == [], "nobody decides on a finished trial"
    assert (bench.trial().state, bench.trial().result) == (TrialState.COMPLETED, bench.value())
    assert bench.reports() == list(range(1, STEPS + 1))


def test_a_crash_beyond_the_report_that_pruned_the_trial_is_nobodys_crash(make_bench: MakeBench) -> None:
    """FAIR, SAME."""
    bench = make_bench(PRUNED)
    bench.crash_at = 8
    bench.worker()
    bench.run(60, until=lambda: 5 in bench.reports())
    bench.reports_at = lambda step: False
    bench.decide(at(5, "prune"))
    bench.run(120)
    trial = bench.trial()
    assert (trial.state, trial.result, trial.crashes) == (TrialState.PRUNED, float(bench.value(steps=5)), 0)
    assert outcomes(bench) == [AttemptOutcome.PRUNED]


# -- paused and promoted ----------------------------------------------------------------------------------------------


def test_a_paused_trial_saves_is_released_and_goes_on_from_there_when_promoted(make_bench: MakeBench) -> None:
    """RESUME: bit for bit the undisturbed run's end."""
    bench = make_bench(RUNGS)
    bench.worker()
    bench.run(60, until=lambda: step_of(bench) >= 4)
    bench.run(0.6)
    bench.decide(at(4, "pause"))
    bench.run(60)
    trial, child = bench.trial(), bench.children[0]
    assert (trial.state, trial.lease_id) == (TrialState.PAUSED, None)
    assert outcomes(bench) == [AttemptOutcome.PAUSED]
    assert trial.head is not None
    assert trial.head.step == child.step < STEPS
    assert bench.promote(step=4)
    bench.run_to(TrialState.COMPLETED)
    assert bench.starts[1].restore is not None
    assert bench.starts[1].restore["step"] == child.step
    assert (bench.trial().state, bench.trial().result) == (TrialState.COMPLETED, bench.value())
    assert outcomes(bench) == [AttemptOutcome.PAUSED, AttemptOutcome.COMPLETED]


@pytest.mark.parametrize("search", [RUNGS, WAITING_RUNGS], ids=["in passing", "waiting"])
def test_a_child_that_cannot_save_is_paused_at_its_next_report_and_begins_again_when_promoted(
    make_bench: MakeBench, search: SearchSpec
) -> None:
    """The rung's report is made again, and what was decided on it then no longer holds the trial."""

    class Stateless(ReportingChild):
        def _begin(self) -> None:
            super()._begin()
            self.stateful = False
            self._save_due_s = float("inf")

    def make(process: Process, start: Start, restore_fd: int | None) -> SimChild:
        return Stateless(process, start, restore_fd, steps=STEPS, padding=0, crash=None)

    bench = make_bench(RUNGS)
    bench.make_child = make
    bench.worker()
    bench.run(60, until=lambda: step_of(bench) >= 4)
    bench.run(0.6)
    bench.decide(at(4, "pause"))
    bench.run(60)
    assert bench.trial().state is TrialState.PAUSED
    assert bench.promote(step=4)
    bench.run_to(TrialState.COMPLETED)
    assert bench.starts[1].restore is None
    assert (bench.trial().state, bench.trial().result) == (TrialState.COMPLETED, bench.value())


def test_a_pause_that_meets_the_end_of_the_function_leaves_it_complete(make_bench: MakeBench) -> None:
    bench = make_bench(RUNGS)
    bench.worker()
    bench.run(60, until=lambda: step_of(bench) >= STEPS)
    bench.decide(at(STEPS - 1, "pause"))
    bench.run(60)
    assert (bench.trial().state, bench.trial().result) == (TrialState.COMPLETED, bench.value())


# -- stopped while nobody held the trial ------------------------------------------------------------------------------


def test_a_prune_decided_while_nobody_held_the_trial_ends_the_next_attempt_before_a_child(
    make_bench: MakeBench,
) -> None:
    bench = make_bench(PRUNED)
    process = bench.worker("first")
    bench.run(60, until=lambda: step_of(bench) >= 6)
    bench.evict(process)
    bench.run(60)
    bench.decide(at(4, "prune"))
    bench.worker("second")
    bench.run(60)
    assert len(bench.starts) == 1
    assert (bench.trial().state, bench.trial().result) == (TrialState.PRUNED, float(bench.value(steps=4)))
    assert outcomes(bench) == [AttemptOutcome.EVICTED, AttemptOutcome.PRUNED]
    assert bench.reports() == [1, 2, 3, 4]


@pytest.mark.parametrize("search", [RUNGS, WAITING_RUNGS], ids=["in passing", "waiting"])
def test_a_pause_decided_while_nobody_held_the_trial_releases_it_before_a_child(
    make_bench: MakeBench, search: SearchSpec
) -> None:
    """The state at the report, or a later one, is saved already."""
    bench = make_bench(search)
    bench.lead(lambda step: "go_on" if step < 6 else None)
    process = bench.worker("first")
    bench.run(60, until=lambda: step_of(bench) >= 6)
    bench.run(0.2)
    bench.evict(process)
    bench.run(60)
    bench.choose = at(6, "pause")
    bench.run(1)
    bench.worker("second")
    bench.run(60)
    assert len(bench.starts) == 1
    assert bench.trial().state is TrialState.PAUSED
    assert outcomes(bench) == [AttemptOutcome.EVICTED, AttemptOutcome.PAUSED]
    bench.choose = go_on
    assert bench.promote(step=6)
    bench.run_to(TrialState.COMPLETED)
    assert bench.trial().result == bench.value()


def test_a_pause_whose_state_was_lost_is_taken_at_once_where_timing_decides_anyway(make_bench: MakeBench) -> None:
    """What was lost is trained again only if the trial is promoted."""
    bench = make_bench(RUNGS)
    process = bench.worker("first")
    bench.run(60, until=lambda: step_of(bench) >= 6)
    bench.run(0.6)
    bench.kill(process)
    bench.decide(at(6, "pause"))
    bench.worker("second")
    bench.run_to(TrialState.PAUSED)
    assert len(bench.starts) == 1
    assert bench.trial().state is TrialState.PAUSED
    assert bench.promote(step=6)
    bench.run_to(TrialState.COMPLETED)
    assert bench.trial().result == bench.value()


def test_a_report_that_was_lost_with_its_training_is_made_again_before_the_prune_counts(make_bench: MakeBench) -> None:
    """SAME: decided on a report that the next grant had just deleted; the result is that report's value anyway."""
    bench = make_bench(PRUNED)
    bench.set(checkpoint=replace(bench.settings.checkpoint, every_s=1000.0))
    process = bench.worker("first")
    bench.run(60, until=lambda: step_of(bench) >= 6)
    bench.run(0.6)
    bench.kill(process)
    late = bench.undecided()
    bench.worker("second")
    bench.run(200, until=lambda: len(bench.children) == 2 and step_of(bench) >= 2)
    bench.decide(at(5, "prune"), late)
    bench.run(60)
    trial = bench.trial()
    assert (trial.state, trial.result) == (TrialState.PRUNED, float(bench.value(steps=5)))
    assert bench.reports() == [1, 2, 3, 4, 5]
    assert outcomes(bench) == [AttemptOutcome.LOST, AttemptOutcome.PRUNED]


# -- evicted meanwhile ------------------------------------------------------------------------------------------------


def test_a_notice_hurries_a_pause_and_does_not_lose_it(make_bench: MakeBench) -> None:
    bench = make_bench(RUNGS)
    process = bench.worker("first")
    bench.run(60, until=lambda: step_of(bench) >= 5)
    bench.run(0.6)
    bench.decide(at(4, "pause"))
    bench.evict(process)
    bench.run(60)
    bench.worker("second")
    bench.run(60)
    assert process.result.status == 75
    assert bench.trial().state is TrialState.PAUSED
    assert len(bench.starts) == 1


def test_a_pause_without_its_checkpoint_because_of_a_notice_is_taken_by_the_next_holder(make_bench: MakeBench) -> None:
    """SAME: whoever inherits from the paused trial finds the checkpoint that there would be without the notice."""
    bench = make_bench(WAITING_RUNGS)
    bench.set(checkpoint=replace(bench.settings.checkpoint, every_s=1000.0))
    bench.lead(lambda step: "go_on" if step < 6 else None, every_s=0.1)
    process = bench.worker("first")
    bench.run(60, until=lambda: step_of(bench) >= 6)
    bench.run(0.2)
    bench.weather.store_away_until_s = bench.world.now_s + 60
    bench.decide(at(6, "pause"))
    bench.evict(process)
    bench.run(90)
    assert outcomes(bench) == [AttemptOutcome.EVICTED]
    bench.choose = at(6, "pause")
    bench.worker("second")
    bench.run_to(TrialState.PAUSED)
    head = bench.trial().head
    assert head is not None
    assert head.step == 6
    assert outcomes(bench) == [AttemptOutcome.EVICTED, AttemptOutcome.PAUSED]


def test_a_notice_while_a_pruned_child_is_leaving_asks_it_for_no_save(make_bench: MakeBench) -> None:
    bench = make_bench(PRUNED)
    process = bench.worker("first")
    bench.run(60, until=lambda: step_of(bench) >= 4)
    bench.run(0.6)
    bench.decide(at(4, "prune"))
    bench.run(15, until=lambda: bench.children[0]._told() is not None)
    bench.evict(process)
    bench.run(60)
    assert bench.trial().state is TrialState.PRUNED
    assert [stop.kind for stop in bench.children[0]._inbox if isinstance(stop, Stop)] in ([], ["pruned"])


# -- faults -----------------------------------------------------------------------------------------------------------


def test_what_is_wrong_with_an_objective_is_in_the_trials_row(make_bench: MakeBench) -> None:
    class Hopeless(ReportingChild):
        def _train(self) -> None:
            self._tell(Invalid(detail="the function returned NaN: return the objective", step=0, fault="nan"))
            self._later(0.1, lambda: self._exit(ExitStatus(code=1)))

    def make(process: Process, start: Start, restore_fd: int | None) -> SimChild:
        return Hopeless(process, start, restore_fd, steps=STEPS, padding=0, crash=None)

    bench = make_bench(PRUNED)
    bench.make_child = make
    bench.worker()
    bench.run(60)
    assert bench.starts[0].objectives == 1
    assert (bench.trial().state, bench.fault()) == (TrialState.FAILED, "nan")
    assert outcomes(bench) == [AttemptOutcome.INVALID]
