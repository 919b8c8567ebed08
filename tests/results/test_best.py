"""The best trials are those that Optuna would name."""

import math

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.errors import UserError
from sweeper.model.best import best_numbers, keeps_constraints
from sweeper.model.search import Constraint, Direction
from sweeper.model.states import TrialState
from tests.results.making import sweep, trial

BOTH = (Direction.MINIMIZE, Direction.MAXIMIZE)
values = st.sampled_from([-math.inf, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0, math.inf])


def optunas_best(rows: list[list[float]], directions: list[Direction]) -> list[int]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(directions=[direction.value for direction in directions])
    for row in rows:
        study.add_trial(optuna.trial.create_trial(values=row))
    return [found.number for found in study.best_trials]


@given(
    directions=st.lists(st.sampled_from(Direction), min_size=1, max_size=3),
    rows=st.lists(st.tuples(values, values, values), max_size=12),
)
def test_the_front_is_optunas(directions: list[Direction], rows: list[tuple[float, ...]]) -> None:
    cut = [list(row[: len(directions)]) for row in rows]
    found = best_numbers(dict(enumerate(cut)), directions)
    assert list(found) == sorted(optunas_best(cut, directions))


def test_of_equal_values_the_first_trial_is_the_best_and_only_completed_ones_count() -> None:
    result = sweep(
        trial(0, 0.1, state=TrialState.PRUNED), trial(1, 0.5), trial(2, 0.2), trial(3, 0.2), trial(4, math.inf)
    )
    assert result.best == result.trials[2]
    assert [one.number for one in result.best_trials] == [2, 3]
    assert [one.number for one in result.completed] == [1, 2, 3, 4]


def test_minus_infinity_wins_when_minimising() -> None:
    """OP-07."""
    result = sweep(trial(0, 0.1), trial(1, -math.inf))
    assert result.best == result.trials[1]


def test_without_a_completed_trial_there_is_no_best() -> None:
    result = sweep(trial(0, state=TrialState.FAILED))
    assert result.best is None
    assert result.best_trials == ()


def test_a_trial_that_breaks_a_constraint_is_never_the_best() -> None:
    result = sweep(trial(0, 0.1, feasible=False), trial(1, 0.5))
    assert result.best == result.trials[1]


def test_several_directions_have_a_front_and_no_best() -> None:
    result = sweep(trial(0, 1.0, 1.0), trial(1, 2.0, 2.0), trial(2, 2.0, 1.0), directions=BOTH)
    assert [one.number for one in result.best_trials] == [0, 1]
    with pytest.raises(UserError, match="2 directions"):
        _ = result.best


def test_a_plain_grid_says_that_nothing_tells_what_is_better() -> None:
    with pytest.raises(UserError, match="plain grid"):
        _ = sweep(trial(0, 1.0), directions=()).best


@pytest.mark.parametrize(
    ("metrics", "kept"),
    [
        ({"ms": 20.0, "acc": 0.9}, True),
        ({"ms": 20.5, "acc": 0.9}, False),
        ({"ms": 1.0, "acc": 0.8}, False),
        ({"ms": 1.0, "acc": math.nan}, False),
        ({"acc": 0.9}, False),
        ({"ms": -math.inf, "acc": math.inf}, True),
    ],
)
def test_constraints_are_kept_by_metrics_that_are_there(metrics: dict[str, float], kept: bool) -> None:
    constraints = (Constraint(metric="ms", at_most=20), Constraint(metric="acc", at_least=0.9))
    assert keeps_constraints(constraints, metrics) is kept
