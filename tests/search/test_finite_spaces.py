"""Spaces with an end: every config once, in product order where a sampler only repeats itself, and then no more."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from sweeper.errors import UserError
from sweeper.model.search import SearchSpec
from sweeper.model.space import Choices, FloatRange, IntRange, Space
from sweeper.model.tagged import to_tagged
from sweeper.search.define_by_run import TrialProxy
from sweeper.search.optimizer import Optimizer
from tests.search.sequences import FINITE, MIXED, Ledger, Search, distinct, params_of

GRID = {"_target_": "grid"}


def choices(*values: Any) -> Choices:
    return Choices(values=tuple(to_tagged(value) for value in values))


def searching(space: Space, **changes: Any) -> Search:
    return Search(lambda: Optimizer(SearchSpec(space=space, **changes), seed=1))


def run_out(search: Search, limit: int = 200) -> Ledger:
    """Propose until there is nothing new."""
    while not search.optimizer.used_up():
        search.run(1, lambda params: 1.0)
        assert len(search.ledger.proposals) <= limit
    return search.ledger


def test_a_grid_goes_through_the_product_with_the_first_dimension_slowest() -> None:
    """As Hydra's own sweeps do."""
    space = {"group": choices("file1", "file2"), "bar": choices(100, 200, 300)}
    ledger = run_out(searching(space, sampler=GRID))
    assert params_of(ledger) == [
        {"group": group, "bar": bar} for group in ("file1", "file2") for bar in (100, 200, 300)
    ]


def test_a_grid_takes_steps_integers_lists_and_mappings() -> None:
    space: Space = {
        "step": FloatRange(low=0.1, high=0.5, step=0.2),
        "count": IntRange(low=1, high=5, step=2),
        "layers": choices([1], [1, 2], {"a": None}),
    }
    ledger = run_out(searching(space, sampler=GRID))
    expected = itertools.product((0.1, 0.3, 0.5), (1, 3, 5), ([1], [1, 2], {"a": None}))
    assert [tuple(params.values()) for params in params_of(ledger)] == list(expected)


def test_a_grid_refuses_what_has_no_end_and_names_it() -> None:
    """CLEAR."""
    with pytest.raises(UserError, match=r"x, rate"):
        searching(MIXED, sampler=GRID)


def test_a_grid_with_cells_enqueued_by_hand_trains_each_cell_once() -> None:
    """OP-12: two of six cells enqueued, nothing beyond the six, and restarts change nothing."""
    search = searching({"a": choices(1, 2), "b": choices("x", "y", "z")}, sampler=GRID)
    for number, point in enumerate([{"a": 2, "b": "z"}, {"b": "y"}]):
        search.propose(number, fixed=point)
        search.finish(number, 1.0)
        search.optimizer = search.ledger.load(search.make())
    ledger = run_out(search)
    assert params_of(ledger)[:2] == [{"a": 2, "b": "z"}, {"a": 1, "b": "y"}]
    assert len(ledger.proposals) == 6 == distinct(ledger.proposals)


def test_a_partial_point_of_a_grid_fixes_only_what_it_names() -> None:
    """A choice that is null is not taken for one that is not given."""
    search = searching({"a": choices("x", None), "b": choices(1, 2)}, sampler=GRID)
    for number, point in enumerate([{"b": 2}, {"a": None}, {"b": 2}, {"b": 2}]):
        search.propose(number, fixed=point)  # type: ignore[arg-type]
    assert [tuple(params.values()) for params in params_of(search.ledger)] == [
        ("x", 2),
        (None, 1),
        (None, 2),
        ("x", 2),
    ]


def test_cells_of_a_grid_that_still_run_or_failed_are_not_proposed_again() -> None:
    search = searching({"a": choices(1, 2, 3)}, sampler=GRID)
    rows = [search.propose(number) for number in range(3)]
    assert [row.proposal.params["a"] for row in rows] == [1, 2, 3]
    assert search.optimizer.used_up()


@pytest.mark.parametrize("sampler", ["tpe", "random", "brute_force", "nsgaii", "qmc"])
def test_three_configs_and_ten_trials_end_with_three_trained(sampler: str) -> None:
    """After two repeats in a row the next new config is taken, so a sampler that insists costs two numbers each."""
    for seed in range(3):
        search = Search(
            lambda seed=seed: Optimizer(  # type: ignore[misc]
                SearchSpec(space={"c": choices("a", "b", "c")}, sampler={"_target_": sampler}), seed=seed
            )
        )
        ledger = run_out(search, limit=7)
        assert distinct(ledger.proposals) == 3


def test_an_enqueued_point_neither_counts_as_a_repeat_nor_ends_a_row_of_repeats() -> None:
    search = searching({"c": choices(*range(40))}, sampler={"_target_": "random"})
    search.propose(0)
    for number in range(1, 8):
        search.propose(number, fixed={"c": search.ledger.row(0).proposal.params["c"]})
    sampled = search.make()
    search.ledger.load(sampled)
    # the sampler itself is asked, not the enumeration, which would begin at 0
    assert search.optimizer.suggest(8).proposal.params == sampled.suggest(8).proposal.params
    assert not search.optimizer.used_up()


def test_a_space_of_one_config_is_used_up_by_it() -> None:
    for space in ({}, {"c": choices("only")}, {"x": FloatRange(low=1.0, high=1.0)}):
        search = searching(space)
        assert not search.optimizer.used_up()
        assert len(run_out(search).proposals) == 1


def test_a_big_space_is_not_walked_through_to_find_the_next_config() -> None:
    space: Space = {f"n{at}": IntRange(low=0, high=10**9) for at in range(3)}
    search = searching(space, sampler=GRID)
    assert params_of(run_a_few(search))[:3] == [{"n0": 0, "n1": 0, "n2": at} for at in range(3)]


def run_a_few(search: Search) -> Ledger:
    search.run(3, lambda params: 1.0)
    assert not search.optimizer.used_up()
    return search.ledger


def test_a_space_that_nobody_can_enumerate_counts_as_used_up_after_fifty_repeats() -> None:
    def one_of_two(trial: TrialProxy) -> None:
        trial.suggest_categorical("c", ["a", "b"])

    spec = SearchSpec(space={}, sampler={"_target_": "random"})
    search = Search(lambda: Optimizer(spec, seed=1, suggest_more=one_of_two))
    ledger = run_out(search)
    assert distinct(ledger.proposals) == 2
    assert 52 <= len(ledger.proposals) <= 60
    assert search.ledger.load(search.make()).used_up()


def test_what_no_longer_fits_the_space_counts_for_nothing() -> None:
    search = searching(FINITE)
    search.run(5)
    smaller = {**FINITE, "width": IntRange(low=100, high=101)}
    optimizer = search.ledger.load(Optimizer(SearchSpec(space=smaller, sampler=GRID), seed=1))
    assert optimizer.suggest(5).proposal.params == {"kind": "a", "width": 100, "drop": 0.0}
