"""Nodes of samplers and pruners as configs of the Optuna plugin write them, checked before anything runs (CLEAR)."""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import optuna
import pytest

from sweeper.errors import UserError
from sweeper.model.search import Constraint, Direction, SearchSpec
from sweeper.model.short_names import PRUNERS, SAMPLERS
from sweeper.model.space import FloatRange, Space
from sweeper.model.trial import Json
from sweeper.search.checking import check_search
from sweeper.search.optimizer import Optimizer
from tests.search.sequences import FINITE, MIXED, NUMBERS, Search, bowl

CUSTOM = "tests.search.custom_samplers"


def notices(sampler: dict[str, Json], space: Space = FINITE, **changes: Any) -> tuple[str, ...]:
    return check_search(SearchSpec(space=space, sampler=sampler, **changes))


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_short_name_and_the_full_one_are_the_same_sampler(name: str) -> None:
    for node in ({"_target_": name}, {"_target_": SAMPLERS[name]}):
        assert notices(node) == ()
    spec = SearchSpec(space=FINITE, sampler={"_target_": name})
    full = SearchSpec(space=FINITE, sampler={"_target_": SAMPLERS[name], "seed": 77})
    assert Search(lambda: Optimizer(spec, seed=1)).run(4) == Search(lambda: Optimizer(full, seed=1)).run(4)


@pytest.mark.parametrize("name", [name for name in PRUNERS if name not in ("percentile", "threshold", "patient")])
def test_a_short_name_of_a_pruner_is_enough(name: str) -> None:
    check_search(SearchSpec(space=MIXED, pruner={"_target_": name}))
    check_search(SearchSpec(space=MIXED, pruner={"_target_": PRUNERS[name]}))


PLUGIN_NODES: tuple[dict[str, Json], ...] = (
    {
        "_target_": "optuna.samplers.TPESampler",
        "seed": 123,
        "consider_prior": True,
        "prior_weight": 1.0,
        "consider_magic_clip": True,
        "consider_endpoints": False,
        "n_startup_trials": 10,
        "n_ei_candidates": 24,
        "multivariate": False,
        "warn_independent_sampling": True,
    },
    {
        "_target_": "optuna.samplers.CmaEsSampler",
        "seed": None,
        "x0": None,
        "sigma0": None,
        "independent_sampler": None,
        "warn_independent_sampling": True,
        "consider_pruned_trials": False,
        "restart_strategy": None,
        "inc_popsize": 2,
        "use_separable_cma": False,
        "source_trials": None,
    },
    {
        "_target_": "optuna.samplers.MOTPESampler",
        "seed": None,
        "consider_prior": True,
        "prior_weight": 1.0,
        "consider_magic_clip": True,
        "consider_endpoints": False,
        "n_startup_trials": 10,
        "n_ehvi_candidates": 24,
    },
)
"""As the plugin's own groups write them out."""


@pytest.mark.parametrize("node", PLUGIN_NODES, ids=["tpe", "cmaes", "motpe"])
def test_a_node_of_the_optuna_plugin_works_and_what_optuna_dropped_is_told_once(node: dict[str, Json]) -> None:
    told = notices(node, NUMBERS)
    left_out = [line for line in told if "does without them" in line]
    assert len(left_out) == 1
    assert ("inc_popsize" if "inc_popsize" in node else "consider_prior") in left_out[0]
    Search(lambda: Optimizer(SearchSpec(space=NUMBERS, sampler=node), seed=1)).run(3)


def test_an_argument_that_still_works_is_not_left_out() -> None:
    space = {"x": FloatRange(low=0.0, high=1.0)}

    def run(**changes: Json) -> list[str]:
        spec = SearchSpec(space=space, sampler={"_target_": "tpe", "n_startup_trials": 3, **changes})
        return Search(lambda: Optimizer(spec, seed=1)).run(12, lambda params: params["x"])

    assert run(prior_weight=5.0) != run()
    assert run(prior_weight=1.0) == run() == run(consider_prior=False)


@pytest.mark.parametrize(
    ("sampler", "told"),
    [
        ({"_target_": "tpe", "n_start": 3}, r"sampler\.n_start: .*TPESampler has no argument 'n_start'"),
        ({"_target_": "optuna.samplers.Nothing"}, r"there is no optuna\.samplers\.Nothing"),
        ({"_target_": "nothing"}, r"there is no nothing"),
        ({"_target_": "no_such_package.Sampler"}, r"there is no no_such_package\.Sampler"),
        ({}, r"there is no None"),
        ({"_target_": "optuna.pruners.NopPruner"}, r"is no sampler"),
        ({"_target_": "nsgaii", "population_size": 1}, r"population_size"),
        ({"_target_": "cmaes", "independent_sampler": {"_target_": "tpe", "bad": 1}}, r"independent_sampler\.bad"),
        ({"_target_": "tpe", "constraints_func": {"_target_": "builtins.len"}}, r"constraints_func cannot be used"),
        ({"_target_": "optuna.samplers.PartialFixedSampler", "fixed_params": {"x": 1}}, r"is fixed"),
        ({"_target_": "brute_force"}, r"cannot go through x, rate"),
    ],
)
def test_a_sampler_that_cannot_be_is_refused_by_name(sampler: dict[str, Json], told: str) -> None:
    with pytest.raises(UserError, match=told):
        notices(sampler, MIXED)


@pytest.mark.parametrize(
    ("pruner", "told"),
    [
        ({"_target_": "median", "startup": 3}, r"pruner\.startup: .*MedianPruner has no argument 'startup'"),
        ({"_target_": "percentile"}, r"percentile"),
        ({"_target_": "percentile", "percentile": 400.0}, r"Percentile must be between 0 and 100"),
        ({"_target_": "hyperband", "min_resource": 5, "max_resource": 3}, r"max_resource 3 is below min_resource 5"),
        ({"_target_": "tpe"}, r"there is no tpe"),
        ({"_target_": "optuna.samplers.RandomSampler"}, r"is no pruner"),
    ],
)
def test_a_pruner_that_cannot_be_is_refused_by_name(pruner: dict[str, Json], told: str) -> None:
    with pytest.raises(UserError, match=told):
        check_search(SearchSpec(space=MIXED, pruner=pruner))


def test_several_objectives_are_refused_where_only_one_can_be() -> None:
    two = (Direction.MINIMIZE, Direction.MINIMIZE)
    with pytest.raises(UserError, match=r"2 directions"):
        check_search(SearchSpec(space=MIXED, directions=two, pruner={"_target_": "median"}))
    with pytest.raises(UserError, match=r"cmaes takes one objective"):
        notices({"_target_": "cmaes"}, directions=two)


def test_a_space_that_cannot_be_sampled_is_refused_by_the_dimension() -> None:
    with pytest.raises(UserError, match=r"the dimension x cannot be searched"):
        notices({"_target_": "tpe"}, {"x": FloatRange(low=2.0, high=1.0)})
    with pytest.raises(UserError, match=r"no finite range"):
        notices({"_target_": "tpe"}, {"x": FloatRange(low=0.0, high=float("inf"))})
    with pytest.raises(UserError, match=r"513 characters"):
        notices({"_target_": "tpe"}, {"x" * 513: FloatRange(low=0.0, high=1.0)})


def test_grid_with_a_function_is_refused_and_a_given_space_is_told() -> None:
    with pytest.raises(UserError, match=r"custom_search_space"):
        notices({"_target_": "grid"}, custom_space="pkg.f")
    assert "search_space" in notices({"_target_": "optuna.samplers.GridSampler", "search_space": {"x": [1]}})[0]


@pytest.mark.parametrize(
    ("node", "package", "extra"),
    [
        ({"_target_": "cmaes"}, "cmaes", "cmaes"),
        ({"_target_": "gp"}, "torch", "gp"),
        ({"_target_": "qmc"}, "scipy", "gp"),
    ],
)
def test_a_missing_package_is_told_with_the_extra_that_brings_it(
    node: dict[str, Json], package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeper.search.known.find_spec", lambda name: None if name == package else sys)
    with pytest.raises(UserError) as caught:
        notices(node, NUMBERS)
    assert package in caught.value.message
    assert f'pip install "sweeper[{extra}]"' in caught.value.remedy


def test_constraints_that_a_sampler_does_not_heed_are_told() -> None:
    constraints = (Constraint(metric="m", at_most=1.0),)
    for name in ("random", "qmc", "grid", "brute_force", "cmaes"):
        assert "does not heed" in notices({"_target_": name}, constraints=constraints)[0]
    for name in ("tpe", "nsgaii", "nsgaiii", "gp"):
        assert notices({"_target_": name}, constraints=constraints) == ()


def test_nested_samplers_are_seeded_each_for_itself() -> None:
    """Two numbers get different values from the nested sampler; a restart gives the same ones."""
    node: dict[str, Json] = {"_target_": "cmaes", "independent_sampler": {"_target_": "random"}}
    spec = SearchSpec(space=MIXED, sampler=node)
    search = Search(lambda: Optimizer(spec, seed=1))
    search.run(30)
    kinds = [json.loads(text)["p"]["kind"] for text in search.ledger.proposals]
    assert len(set(kinds)) == 3


def test_the_sequence_of_qmc_is_one_for_the_sweep_and_its_first_numbers_differ() -> None:
    """With a seed by number it would be 14 times less even; with one seed for all, what it leaves to another sampler
    would repeat."""
    space = {"x": FloatRange(low=0.0, high=1.0), "y": FloatRange(low=0.0, high=1.0)}
    spec = SearchSpec(space=space, sampler={"_target_": "qmc", "scramble": True})
    search = Search(lambda: Optimizer(spec, seed=1))
    rows = [search.propose(number) for number in range(4)]  # nothing is finished: all are left to the other sampler
    assert len({row.proposal.params["x"] for row in rows}) == 4
    for row in rows:
        search.finish(row.number, 1.0)
    search.run(64, bowl)
    cells = {(int(p["x"] * 8), int(p["y"] * 8)) for p in (json.loads(t)["p"] for t in search.ledger.proposals[4:])}
    assert len(cells) > 60


def test_nodes_inside_arguments_are_made_too() -> None:
    crossover: dict[str, Json] = {"_target_": "optuna.samplers.nsgaii.SBXCrossover", "eta": 3.0}
    node: dict[str, Json] = {"_target_": "nsgaii", "population_size": 4, "crossover": crossover}
    search = Search(lambda: Optimizer(SearchSpec(space=NUMBERS, sampler=node), seed=1), disturbed=random.Random(1))
    search.run(12)
    weights: dict[str, Json] = {"_target_": "optuna.samplers._tpe.sampler.default_weights", "_partial_": True}
    assert notices({"_target_": "tpe", "weights": weights}) == ()


def test_a_sampler_from_elsewhere_keeps_its_own_attributes_across_restarts() -> None:
    node: dict[str, Json] = {"_target_": f"{CUSTOM}.Remembering", "scale": 2.0}
    assert notices(node) == ()
    spec = SearchSpec(space=MIXED, sampler=node)
    undisturbed = Search(lambda: Optimizer(spec, seed=1))
    disturbed = Search(lambda: Optimizer(spec, seed=1), disturbed=random.Random(1))
    assert disturbed.run(15) == undisturbed.run(15)
    assert disturbed.restarts
    assert json.loads(disturbed.ledger.study_attrs) == {"remembering:count": 60}
    assert json.loads(disturbed.ledger.proposals[0])["a"] == {
        "remembering:at": {"count": 4, "of": {"$tuple": [1, 2.5]}}
    }


def test_a_sampler_that_takes_no_seed_is_told_to_repeat_nothing() -> None:
    (told,) = notices({"_target_": f"{CUSTOM}.Forgetful"})
    assert "Forgetful takes no `seed`" in told
    assert "restarted" in told


def test_a_sampler_that_writes_what_nothing_keeps_is_refused() -> None:
    optimizer = Optimizer(SearchSpec(space=MIXED, sampler={"_target_": f"{CUSTOM}.Tagging"}), seed=1)
    optimizer.load([], {})
    with pytest.raises(UserError, match="user attribute 'seen'"):
        optimizer.suggest(0)


def test_the_node_of_the_command_counts_and_not_the_one_of_the_spec() -> None:
    """SAFE: a spec that was read from the ledger names code that is never imported."""
    spec = SearchSpec(
        space=MIXED, sampler={"_target_": "no_such_package.Sampler"}, pruner={"_target_": "no_such_package.Pruner"}
    )
    Optimizer(spec, seed=1, sampler={"_target_": "tpe"}, pruner={"_target_": "median"})
    check_search(spec, sampler={"_target_": "tpe"}, pruner={"_target_": "median"})


def test_optuna_itself_is_as_it_was() -> None:
    """Our way of keeping the state of CMA-ES is ours alone."""
    sampler = optuna.samplers.CmaEsSampler(seed=1)
    assert type(sampler)._restore_optimizer.__module__ == "optuna.samplers._cmaes"


@pytest.mark.parametrize("define_by_run", [False, True])
def test_a_sampler_that_raises_is_named_and_its_traceback_is_in_the_log(
    define_by_run: bool, caplog: pytest.LogCaptureFixture
) -> None:
    spec = SearchSpec(
        space={} if define_by_run else {"x": FloatRange(low=0.0, high=1.0)},
        sampler={"_target_": f"{CUSTOM}.Failing"},
        custom_space="a.function" if define_by_run else None,
    )
    search = Search(
        lambda: Optimizer(
            spec, seed=1, suggest_more=(lambda trial: trial.suggest_float("x", 0, 1)) if define_by_run else None
        )
    )
    search.run(1)
    with pytest.raises(UserError, match=r"the sampler raised KeyError: 'gone'\n.*goes on from there"):
        search.optimizer.suggest(1)
    assert not search.optimizer.loaded
    assert "in sample_independent" in caplog.text


def test_a_pruner_that_raises_is_named(caplog: pytest.LogCaptureFixture) -> None:
    spec = SearchSpec(space=MIXED, pruner={"_target_": f"{CUSTOM}.FailingPruner"})
    search = Search(lambda: Optimizer(spec, seed=1))
    with pytest.raises(UserError, match=r"the pruner raised ZeroDivisionError: by nothing\n"):
        search.run_with_reports(1, lambda number, step: 1.0, 3)
    assert "at all" in caplog.text
