"""What trials go through, as the mirror shows it (TRUTH: a projection, and always one of what is true)."""

from __future__ import annotations

import math

import optuna
import pytest
from optuna.trial import TrialState as OptunaState

from sweeper.ledger.commands import cancel_trials, retry_trials
from sweeper.ledger.connections import BoundedConnection
from sweeper.ledger.reads import reports_of
from sweeper.model.search import Constraint, Direction
from sweeper.model.space import Choices, FloatRange
from sweeper.model.states import AttemptOutcome
from tests.mirror.world import SearchWorld, entry, steps

pytestmark = pytest.mark.slow

PARAMS = {"lr": 0.1, "layers": 3, "act": "relu"}


def test_evicted_crashed_and_paused_trials_are_running_and_say_what_they_wait_for(world: SearchWorld) -> None:
    mirroring = world.mirroring()
    grant = world.start(**PARAMS)
    world.turn(mirroring, 6)
    world.release(grant, AttemptOutcome.EVICTED, reason="SIGTERM")
    world.turn(mirroring, 2)
    evicted = entry(world.study(), 0)
    assert evicted.state is OptunaState.RUNNING
    assert evicted.user_attrs["sweeper:state"] == "pending"
    assert evicted.user_attrs["sweeper:reason"] == "SIGTERM"
    assert evicted.user_attrs["sweeper:evictions"] == 1

    grant = world.lease()
    world.turn(mirroring, 2)
    again = entry(world.study(), 0)
    assert (again.user_attrs["sweeper:state"], again.user_attrs["sweeper:attempts"]) == ("running", 2)
    assert again.user_attrs["sweeper:reason"] == ""

    world.release(grant, AttemptOutcome.PAUSED)
    world.turn(mirroring, 2)
    paused = entry(world.study(), 0)
    assert (paused.state, paused.user_attrs["sweeper:state"]) == (OptunaState.RUNNING, "paused")

    other = world.start(lr=0.2, layers=1, act=None)
    world.release(other, AttemptOutcome.CRASHED, error="Traceback\nRuntimeError: out of memory")
    world.turn(mirroring, 2)
    crashed = entry(world.study(), 1)
    assert crashed.state is OptunaState.RUNNING
    assert crashed.user_attrs["sweeper:error"] == "RuntimeError: out of memory"
    assert crashed.user_attrs["sweeper:crashes"] == 1
    mirroring.close()


def test_failed_pruned_and_cancelled_trials_end_as_what_they_are(world: SearchWorld) -> None:
    world.fail(world.start(**PARAMS), "Traceback\nValueError: loss is nan")
    pruned = world.start(lr=0.2, layers=1, act="tanh")
    world.report(pruned, 0.9, 0.8)
    world.prune(pruned)
    world.start(lr=0.3, layers=1, act="tanh")
    world.propose(lr=0.4, layers=1, act="tanh")
    cancel_trials(world.db, world.sweep.sweep_id, [2, 3])
    study = world.show()
    assert [entry(study, n).state for n in range(3)] == [OptunaState.FAIL, OptunaState.PRUNED, OptunaState.FAIL]
    assert entry(study, 0).user_attrs["sweeper:error"] == "ValueError: loss is nan"
    assert entry(study, 1).values == [0.8]
    assert entry(study, 2).user_attrs["sweeper:state"] == "cancelled"
    assert len(study.get_trials()) == 3, "what never ran is not shown"
    assert world.lag == 0


def test_an_alias_has_no_entry_of_its_own(world: SearchWorld) -> None:
    world.complete(world.start(**PARAMS), 0.5)
    world.propose(**PARAMS)
    assert len(world.show().get_trials()) == 1


def test_reports_beyond_the_checkpoint_a_trial_went_on_from_are_replaced_or_nan(world: SearchWorld) -> None:
    mirroring = world.mirroring()
    grant = world.start(**PARAMS)
    world.report(grant, 0.9, 0.8, 0.7)
    world.turn(mirroring, 6)
    assert steps(entry(world.study(), 0)) == {0: 0.9, 1: 0.8, 2: 0.7}
    world.release(grant, AttemptOutcome.EVICTED)
    grant = world.lease()  # nothing was saved: from zero
    assert reports_of(world.db, grant.lease.trial_id) == []
    world.report(grant, 0.95)
    world.turn(mirroring, 2)
    assert steps(entry(world.study(), 0)) == {0: 0.95, 1: None, 2: None}
    world.report(grant, 0.85, first=1)
    world.complete(grant, 0.85)
    world.turn(mirroring, 2)
    assert steps(entry(world.study(), 0)) == {0: 0.95, 1: 0.85, 2: None}
    mirroring.close()


def test_a_new_coordinator_goes_on_where_the_last_one_was(world: SearchWorld) -> None:
    """RECONCILE: nothing of the mirror is kept in memory that matters."""
    grant = world.start(**PARAMS)
    world.report(grant, 0.9, 0.8)
    world.show()
    world.report(grant, 0.7, first=2)
    study = world.show()
    assert steps(entry(study, 0)) == {0: 0.9, 1: 0.8, 2: 0.7}
    world.complete(grant, 0.5)
    study = world.show()
    assert entry(study, 0).values == [0.5]
    assert len(study.get_trials()) == 1
    assert world.notes == []


def test_several_objectives_infinities_and_constraints_are_shown(world: SearchWorld) -> None:
    other = SearchWorld.build(
        world.db,
        world.url,
        name="two",
        directions=(Direction.MINIMIZE, Direction.MAXIMIZE),
        constraints=(Constraint(metric="ms", at_most=20.0),),
    )
    grant = other.start(**PARAMS)
    other.report(grant, 0.5, ms=30.0)
    other.complete(grant, [math.inf, -math.inf])
    other.complete(other.start(lr=0.2, layers=1, act=None), (1, 2.5))
    study = other.show()
    assert study.directions == [optuna.study.StudyDirection.MINIMIZE, optuna.study.StudyDirection.MAXIMIZE]
    assert entry(study, 0).values == [math.inf, -math.inf]
    assert entry(study, 0).system_attrs["constraints"] == [10.0]
    assert entry(study, 1).values == [1.0, 2.5]
    assert entry(study, 1).system_attrs["constraints"][0] > 0, "a metric that was never reported is infeasible"
    other.close()


def test_a_parameter_that_does_not_apply_is_absent(world: SearchWorld) -> None:
    """OP-09: not a random number."""
    extra = {"dropout": FloatRange(low=0.0, high=0.5)}
    world.complete(world.start(**PARAMS), 0.5)
    world.complete(world.start(lr=0.2, layers=1, act=None, dropout=0.25, extra=extra), 0.5)
    study = world.show()
    assert "dropout" not in entry(study, 0).params
    assert entry(study, 1).params["dropout"] == 0.25


def test_choices_that_a_function_changes_from_trial_to_trial_stop_nothing(world: SearchWorld) -> None:
    for number, choices in enumerate((("a", "b"), ("b", "c"))):
        extra = {"c": Choices(values=choices)}
        world.complete(world.start(lr=0.1 + number, layers=1, act=None, c=choices[1], extra=extra), 0.5)
    study = world.show()
    assert entry(study, 0).params["c"] == "b"
    assert "c" not in entry(study, 1).params
    assert entry(study, 1).user_attrs["sweeper:other_params"] == '{"c": "c"}'
    assert world.notes == []


def test_a_long_history_is_thinned_and_its_end_is_kept(world: SearchWorld) -> None:
    mirroring = world.mirroring()
    grant = world.start(**PARAMS)
    expected = list(range(300))
    while (following := expected[-1] + expected[-1] // 100) < 510:
        expected.append(following)
    world.report(grant, *(1 / (1 + at) for at in range(290)))
    world.turn(mirroring, 6)
    for first in (290, 400):
        world.report(grant, *(1 / (1 + at) for at in range(first, first + 110)), first=first)
        world.turn(mirroring, 8)
        so_far = [step for step in expected if step < first + 110]
        assert list(steps(entry(world.study(), 0))) == so_far
    world.report(grant, 0.25, first=510)
    world.complete(grant, 0.5)
    world.turn(mirroring, 4)
    shown = steps(entry(world.study(), 0))
    assert list(shown) == [*expected, 510]
    assert None not in shown.values()
    mirroring.close()
    world.rebuild()
    assert steps(entry(world.study(), 0)) == shown


@pytest.mark.parametrize("from_zero", [False, True])
def test_a_trial_that_is_retried_shows_right_in_the_end(world: SearchWorld, from_zero: bool) -> None:
    """A finished entry cannot be changed, so the study is written anew; each trial has one entry, whatever happened."""
    mirroring = world.mirroring()
    kept = world.start(lr=0.2, layers=1, act=None)
    world.complete(kept, 0.25)
    grant = world.start(**PARAMS)
    world.report(grant, 0.9, 0.8)
    if from_zero:
        world.complete(grant, 0.1)
    else:
        world.fail(grant)
    world.turn(mirroring, 6)
    before = world.study()
    assert entry(before, 1).state.is_finished()

    retry_trials(world.db, world.sweep.sweep_id, [1], from_zero=from_zero)
    grant = world.lease()
    world.turn(mirroring, 6)
    open_again = entry(world.study(), 1)
    assert open_again.state is OptunaState.RUNNING
    world.report(grant, 0.7)
    world.complete(grant, 0.6)
    world.turn(mirroring, 4)
    study = world.study()
    assert (entry(study, 1).values, entry(study, 0).values) == ([0.6], [0.25])
    assert len(study.get_trials()) == 2
    assert study.best_value == 0.25
    assert entry(study, 1).intermediate_values[0] == 0.7
    assert (world.lag, world.notes) == (0, [])
    mirroring.close()


def test_a_retry_that_ends_between_two_turns_is_noticed_too(world: SearchWorld) -> None:
    mirroring = world.mirroring()
    world.fail(world.start(**PARAMS))
    world.turn(mirroring, 6)
    retry_trials(world.db, world.sweep.sweep_id, [0], from_zero=False)
    world.complete(world.lease(), 0.5)
    world.turn(mirroring, 6)
    assert entry(world.study(), 0).values == [0.5]
    assert len(world.study().get_trials()) == 1
    mirroring.close()


def test_other_parameters_under_a_new_lineage_are_a_new_entry(world: SearchWorld) -> None:
    """An exploit copies a better trial and goes on with other parameters; an entry's parameters can never change."""
    mirroring = world.mirroring()
    grant = world.start(**PARAMS)
    world.report(grant, 0.9, 0.8)
    world.turn(mirroring, 6)
    world.release(grant, AttemptOutcome.PAUSED)
    heir = '{"p": {"lr": 0.2, "layers": 4, "act": "tanh"}}'
    with BoundedConnection.connect(world.url, autocommit=True) as session:
        session.execute(
            "INSERT INTO sweeper.configs (trial_id, lineage, config_text, overrides, params, proposal)"
            " SELECT trial_id, 1, config_text, overrides, params, %s FROM sweeper.configs",
            [heir],
        )
        session.execute("UPDATE sweeper.trials SET lineage = 1, state = 'pending', version = version + 1")
        session.execute("DELETE FROM sweeper.reports WHERE step > 0")
    grant = world.lease()
    world.turn(mirroring, 2)
    former, now = sorted(world.study().get_trials(), key=lambda one: one.number)
    assert (former.state, former.params, former.values) == (OptunaState.PRUNED, PARAMS, [0.8])
    assert former.user_attrs["sweeper:state"] == "superseded"
    assert (now.state, now.params) == (OptunaState.RUNNING, {"lr": 0.2, "layers": 4, "act": "tanh"})
    assert now.user_attrs["sweeper:lineage"] == 1
    world.complete(grant, 0.3)
    world.turn(mirroring, 2)
    assert [one.state for one in world.study().get_trials()] == [OptunaState.PRUNED, OptunaState.COMPLETE]
    world.rebuild()
    assert [one.state for one in world.study().get_trials()] == [OptunaState.COMPLETE, OptunaState.PRUNED]
    mirroring.close()


def test_steps_that_outgrow_32_bits_have_the_study_divide_them(world: SearchWorld) -> None:
    """OP-14: the training goes on, and trials of both kinds share a scale."""
    mirroring = world.mirroring()
    small = world.start(**PARAMS)
    world.report(small, 0.9, 0.8, stride=1_000_000_000)
    world.complete(small, 0.8)
    world.turn(mirroring, 6)
    assert steps(entry(world.study(), 0)) == {0: 0.9, 1_000_000_000: 0.8}
    large = world.start(lr=0.2, layers=1, act=None)
    world.turn(mirroring, 2)
    world.report(large, 0.7, 0.6, stride=3_000_000_000)
    world.turn(mirroring, 8)
    study = world.study()
    assert steps(entry(study, 0)) == {0: 0.9, 1_000_000: 0.8}
    assert steps(entry(study, 1)) == {0: 0.7, 3_000_000: 0.6}
    assert study.user_attrs["sweeper:steps_divided_by"] == 1000
    assert world.notes == []
    mirroring.close()


def test_the_last_turn_leaves_nothing_behind(world: SearchWorld) -> None:
    mirroring = world.mirroring()
    for number in range(30):
        world.complete(world.start(lr=0.1 + number / 100, layers=1, act=None), 0.5)
    turns = 0
    while not mirroring.finish(world.fence):
        turns += 1
        assert turns < 20
    assert world.lag == 0
    assert len(world.study().get_trials()) == 30
    assert mirroring.finish(None), "one that does not lead has nothing to do"
    mirroring.close()
    assert world.notes == []
