"""Enqueued points: tried as they are, completed where partial, refused where they do not fit (OP-13, CLEAR)."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sweeper.errors import UserError
from sweeper.model.search import SearchSpec
from sweeper.model.space import Choices, FloatRange, IntRange, Space
from sweeper.model.tagged import to_tagged
from sweeper.search.checking import checked_point
from sweeper.search.optimizer import Optimizer
from tests.search.sequences import Search, params_of, plain

SPACE: Space = {
    "x": FloatRange(low=0.0, high=1.0),
    "n": IntRange(low=1, high=9, step=2),
    "drop": FloatRange(low=0.0, high=0.5, step=0.1),
    "c": Choices(values=(1, 1.0, True, "1", None, {"$float": "nan"}, [1, 2])),
}


def searching(sampler: str = "tpe") -> Search:
    return Search(lambda: Optimizer(SearchSpec(space=SPACE, sampler={"_target_": sampler}), seed=1))


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ({"x": 1}, {"x": 1.0}),
        ({"x": 1.0}, {"x": 1.0}),
        ({"x": 0.1 + 1e-9}, {"x": 0.1 + 1e-9}),
        ({"n": 3.0}, {"n": 3}),
        ({"drop": 0.30000000000000004}, {"drop": 0.3}),
        ({"c": True}, {"c": True}),
        ({"c": 1.0}, {"c": 1.0}),
        ({"c": [1, 2]}, {"c": [1, 2]}),
        ({"c": None}, {"c": None}),
        ({"c": {"$float": "nan"}}, {"c": {"$float": "nan"}}),
        ({"c": math.nan}, {"c": {"$float": "nan"}}),
    ],
)
def test_a_value_is_brought_into_the_type_of_its_dimension(point: Any, expected: Any) -> None:
    found = checked_point(SPACE, point, open_space=False)
    assert found == expected
    assert [type(value) for value in found.values()] == [type(value) for value in expected.values()]


@pytest.mark.parametrize(
    ("point", "told"),
    [
        ({"x": 100}, r"100 of x is not a float from 0.0 to 1.0"),
        ({"x": "0.5"}, r'"0.5" of x'),
        ({"x": True}, r"true of x"),
        ({"x": {"$float": "nan"}}, r"of x"),
        ({"n": 4}, r"4 of n is not an integer from 1 to 9 in steps of 2"),
        ({"n": 3.5}, r"3.5 of n"),
        ({"drop": 0.25}, r"0.25 of drop"),
        ({"c": "2"}, r'"2" of c is not one of'),
        ({"y": 1}, r"'y', which is not searched"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_parameter_value_and_range(point: Any, told: str) -> None:
    search = searching()
    with pytest.raises(UserError, match=told):
        search.optimizer.suggest(0, fixed=point, key="k")
    assert search.optimizer.loaded
    assert search.optimizer.numbers == 0
    search.run(1, lambda params: 1.0)


@pytest.mark.parametrize("sampler", ["tpe", "random", "cmaes", "nsgaii", "qmc", "brute_force"])
def test_a_partial_point_is_completed_by_the_sampler(sampler: str) -> None:
    space = {**SPACE, "x": FloatRange(low=0.0, high=1.0, step=0.5)}
    search = Search(lambda: Optimizer(SearchSpec(space=space, sampler={"_target_": sampler}), seed=1))
    search.run(15, lambda params: params["n"])
    row = search.propose(15, fixed={"n": 9, "c": "1"})
    assert plain(row)["n"] == 9
    assert plain(row)["c"] == "1"
    assert row.proposal.params.keys() == space.keys()
    assert row.proposal.enqueued == "point-15"
    search.finish(15, 1.0)
    search.run(3, lambda params: params["n"])


def test_a_whole_point_is_tried_as_it_is_and_the_sampler_learns_from_it() -> None:
    search = searching()
    point = {"x": 0.25, "n": 3, "drop": 0.3, "c": to_tagged([1, 2])}
    search.propose(0, fixed=point)
    search.finish(0, -100.0)
    assert params_of(search.ledger) == [{"x": 0.25, "n": 3, "drop": 0.3, "c": [1, 2]}]
    search.run(40, lambda params: abs(params["x"] - 0.25))
    assert search.optimizer.loaded


def test_what_is_enqueued_does_not_show_in_rows_as_anything_but_its_key() -> None:
    row = searching().propose(0, fixed={"x": 0.5})
    assert row.proposal.attrs == {}
