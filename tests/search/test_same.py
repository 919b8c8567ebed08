"""SAME: an optimizer that is thrown away and made again from rows goes on as one that never was."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from sweeper.model.search import Direction, SearchSpec
from sweeper.model.space import Space
from sweeper.model.trial import Json
from sweeper.search.optimizer import Optimizer
from tests.search.sequences import FINITE, MIXED, NUMBERS, Objective, Search, bowl, falling, two_bowls

TWO = (Direction.MINIMIZE, Direction.MAXIMIZE)


@dataclass(frozen=True)
class Case:
    """A sampler and what it searches."""

    name: str
    sampler: dict[str, Json]
    space: Space = field(default_factory=lambda: MIXED)
    objective: Objective = bowl
    directions: tuple[Direction, ...] = (Direction.MINIMIZE,)
    trials: int = 60

    def spec(self, **changes: Any) -> SearchSpec:
        return SearchSpec(space=self.space, sampler=self.sampler, directions=self.directions, **changes)


CASES = (
    Case("tpe", {"_target_": "tpe"}),
    Case("tpe_multivariate", {"_target_": "tpe", "multivariate": True}),
    Case("tpe_independent", {"_target_": "tpe", "multivariate": False, "constant_liar": False}),
    Case("tpe_group", {"_target_": "tpe", "group": True}),
    Case("tpe_two_objectives", {"_target_": "tpe"}, objective=two_bowls, directions=TWO),
    Case("random", {"_target_": "random"}),
    Case("qmc", {"_target_": "qmc"}),
    Case("qmc_halton", {"_target_": "qmc", "qmc_type": "halton", "scramble": True}),
    Case("cmaes", {"_target_": "cmaes"}, NUMBERS),
    Case("cmaes_with_choices", {"_target_": "cmaes", "independent_sampler": {"_target_": "tpe"}}),
    Case("cmaes_separable", {"_target_": "cmaes", "use_separable_cma": True}, NUMBERS),
    Case("cmaes_margin", {"_target_": "cmaes", "with_margin": True}, NUMBERS),
    Case("cmaes_learning_rate", {"_target_": "cmaes", "lr_adapt": True}, NUMBERS),
    Case("nsgaii", {"_target_": "nsgaii", "population_size": 8}, objective=two_bowls, directions=TWO),
    Case("nsgaiii", {"_target_": "nsgaiii", "population_size": 8}, objective=two_bowls, directions=TWO),
    Case("brute_force", {"_target_": "brute_force"}, FINITE),
    Case("grid", {"_target_": "grid"}, FINITE),
    Case("gp", {"_target_": "gp", "n_startup_trials": 5}, trials=10),
)
PRUNERS: tuple[tuple[str, dict[str, Json]], ...] = (
    ("median", {"_target_": "median", "n_startup_trials": 3}),
    ("percentile", {"_target_": "percentile", "percentile": 50.0}),
    ("hyperband", {"_target_": "hyperband", "max_resource": 9}),
    ("hyperband_auto", {"_target_": "hyperband"}),
    ("successive_halving", {"_target_": "successive_halving"}),
    ("patient", {"_target_": "patient", "patience": 1, "wrapped_pruner": {"_target_": "successive_halving"}}),
    ("wilcoxon", {"_target_": "wilcoxon"}),
    ("threshold", {"_target_": "threshold", "upper": 5.0}),
)


def same(make: Callable[[], Optimizer], run: Callable[[Search], list[str]], *, seeds: range) -> None:
    """Compare an undisturbed run with disturbed ones: proposals with their attributes, decisions, the study's state."""
    undisturbed = Search(make)
    expected = run(undisturbed)
    for seed in seeds:
        disturbed = Search(make, disturbed=random.Random(seed))
        assert run(disturbed) == expected
        assert disturbed.restarts > 0
        assert disturbed.ledger.study_attrs == undisturbed.ledger.study_attrs
        assert disturbed.ledger.decisions == undisturbed.ledger.decisions


@pytest.mark.parametrize("case", [case for case in CASES if case.name != "gp"], ids=lambda case: case.name)
def test_a_short_search_goes_on_after_restarts_as_if_there_were_none(case: Case) -> None:
    same(lambda: Optimizer(case.spec(), seed=4), lambda search: search.run(20, case.objective), seeds=range(1, 2))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_long_search_goes_on_after_restarts_as_if_there_were_none(case: Case) -> None:
    run = Search.run
    same(
        lambda: Optimizer(case.spec(), seed=3),
        lambda search: run(search, case.trials, case.objective),
        seeds=range(1, 3),
    )


@pytest.mark.parametrize(("name", "pruner"), PRUNERS, ids=[name for name, _ in PRUNERS])
def test_a_short_search_prunes_after_restarts_as_if_there_were_none(name: str, pruner: dict[str, Json]) -> None:
    spec = SearchSpec(space=MIXED, pruner=pruner)
    same(lambda: Optimizer(spec, seed=4), lambda search: search.run_with_reports(9, falling, 5), seeds=range(1, 2))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "pruner"), PRUNERS, ids=[name for name, _ in PRUNERS])
def test_a_long_search_prunes_after_restarts_as_if_there_were_none(name: str, pruner: dict[str, Json]) -> None:
    spec = SearchSpec(space=MIXED, pruner=pruner)
    same(lambda: Optimizer(spec, seed=3), lambda search: search.run_with_reports(40, falling, 9), seeds=range(1, 3))


def test_another_seed_proposes_something_else() -> None:
    spec = SearchSpec(space=MIXED)
    assert Search(lambda: Optimizer(spec, seed=1)).run(3) != Search(lambda: Optimizer(spec, seed=2)).run(3)


def test_what_is_proposed_for_a_seed_never_changes() -> None:
    """Restarting a sweep with a newer version of ours must not change what it goes on with."""
    search = Search(lambda: Optimizer(SearchSpec(space=MIXED, sampler={"_target_": "random"}), seed=0))
    assert search.run(1) == ['{"p": {"x": 4.540667518532587, "rate": 0.05856163750066298, "width": 64, "kind": "b"}}']


def test_refused_numbers_count_in_the_sequence_of_proposals() -> None:
    def run(search: Search) -> list[str]:
        for number in range(16):
            row = search.propose(number, refused=number % 5 == 2)
            if row.first_number == number:
                search.finish(number, bowl(dict(row.proposal.params)))
        return search.ledger.proposals

    same(lambda: Optimizer(SearchSpec(space=MIXED), seed=1), run, seeds=range(1, 3))
