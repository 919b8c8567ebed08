"""Define by run: a function adds parameters after the plain space, and says which ones do not apply (OP-09)."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from sweeper.errors import UserError
from sweeper.model.search import SearchSpec
from sweeper.model.space import Choices, FloatRange, IntRange, Space
from sweeper.search.define_by_run import SuggestMore, TrialProxy
from sweeper.search.optimizer import Optimizer
from tests.search.sequences import Search, params_of

DROPOUT: Space = {"use_dropout": Choices(values=(True, False)), "dropout": FloatRange(low=0.0, high=0.5)}


def drop_unused(trial: TrialProxy) -> None:
    if not trial.params["use_dropout"]:
        trial.drop("dropout")


def conditional(trial: TrialProxy) -> None:
    """A space that differs from trial to trial."""
    layers = trial.suggest_int("layers", 1, 3)
    for layer in range(layers):
        trial.suggest_int(f"units{layer}", 4, 64, log=True)
    if trial.suggest_categorical("optimizer", ["sgd", "adam"]) == "sgd":
        trial.suggest_float("momentum", 0.0, 0.9, step=0.1)
    trial.suggest_categorical("shape", [[1, 2], {"a": 1}, None, 1, 1.0])


def searching(space: Space, function: SuggestMore, **changes: Any) -> Search:
    spec = SearchSpec(space=space, **changes)
    return Search(lambda: Optimizer(spec, seed=1, suggest_more=function))


def depth(params: Any) -> float:
    return float(params["layers"]) + sum(value for name, value in params.items() if name.startswith("units")) / 64


def test_a_parameter_that_does_not_apply_is_absent_and_such_trials_are_one_config() -> None:
    """OP-09."""
    search = searching(DROPOUT, drop_unused)
    search.run(25, lambda params: params.get("dropout", 0.2))
    with_it = [params for params in params_of(search.ledger) if params["use_dropout"]]
    without = [params for params in params_of(search.ledger) if not params["use_dropout"]]
    assert all(0.0 <= params["dropout"] <= 0.5 for params in with_it)
    assert without
    assert all(params == {"use_dropout": False} for params in without)
    assert len({search.ledger.firsts[at] for at, p in enumerate(params_of(search.ledger)) if p in without}) == 1
    entries = search.optimizer._known.entries
    assert [set(entry.params) for entry in entries] == [set(params) for params in params_of(search.ledger)]


@pytest.mark.parametrize("sampler", ["tpe", "random", "nsgaii", "brute_force", "cmaes", "qmc"])
def test_a_space_that_a_function_defines_goes_on_after_restarts_as_if_there_were_none(sampler: str) -> None:
    """SAME; the function's own dimensions are in the rows."""
    node: dict[str, Any] = {"_target_": sampler, **({"population_size": 6} if sampler == "nsgaii" else {})}
    space: Space = {"x": FloatRange(low=0.0, high=1.0, step=0.25)}
    spec = SearchSpec(space=space, sampler=node)
    undisturbed = Search(lambda: Optimizer(spec, seed=1, suggest_more=conditional))
    disturbed = Search(lambda: Optimizer(spec, seed=1, suggest_more=conditional), disturbed=random.Random(3))
    assert disturbed.run(16, depth) == undisturbed.run(16, depth)
    assert disturbed.restarts > 0
    for params in params_of(undisturbed.ledger):
        assert sum(name.startswith("units") for name in params) == params["layers"]
        assert ("momentum" in params) == (params["optimizer"] == "sgd")


def test_dimensions_of_the_function_are_recorded_and_only_theirs() -> None:
    search = searching({"x": FloatRange(low=0.0, high=1.0)}, conditional)
    row = search.propose(0)
    assert row.proposal.extra["layers"] == IntRange(low=1, high=3)
    assert row.proposal.extra["shape"] == Choices(values=([1, 2], {"a": 1}, None, 1, 1.0))
    assert "x" not in row.proposal.extra
    assert set(row.proposal.params) == {"x", *row.proposal.extra}


def test_a_parameter_of_the_plain_space_that_is_suggested_again_keeps_its_value() -> None:
    seen: list[float] = []

    def again(trial: TrialProxy) -> None:
        seen.append(trial.suggest_float("x", 0.0, 1.0))
        assert trial.params["x"] == seen[-1]
        assert trial.suggest_int("n", 1, 9) == trial.suggest_int("n", 1, 9)
        trial.drop("n")
        assert "n" not in trial.params

    search = searching({"x": FloatRange(low=0.0, high=1.0)}, again)
    row = search.propose(0)
    assert row.proposal.params == {"x": seen[0]}
    assert row.proposal.extra == {}


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda trial: trial.drop("y"), "no parameter 'y' to drop"),
        (lambda trial: trial.suggest_float("y", 2.0, 1.0), "the dimension y cannot be searched"),
        (lambda trial: trial.suggest_float("y", 0.0, 1.0, log=True), "the dimension y cannot be searched"),
        (lambda trial: trial.suggest_int("y", 1, 9, step=0), "the dimension y cannot be searched"),
        (lambda trial: trial.suggest_categorical("y", []), "the dimension y cannot be searched"),
        (lambda trial: trial.suggest_categorical("y", [object()]), "a choice of y cannot be put into a config"),
        (lambda trial: trial.suggest_float("y" * 600, 0.0, 1.0), "600 characters"),
        (lambda trial: (trial.suggest_int("y", 1, 2), trial.suggest_int("y", 1, 3)), "y was suggested as"),
    ],
)
def test_a_function_that_asks_for_what_cannot_be_is_told_so(function: Any, told: str) -> None:
    """CLEAR; the study is dropped, since the sampler may have written into it."""
    search = searching({"x": FloatRange(low=0.0, high=1.0)}, function)
    with pytest.raises(UserError, match=told):
        search.optimizer.suggest(0)
    assert not search.optimizer.loaded


def test_an_enqueued_point_may_name_parameters_of_the_function() -> None:
    search = searching({"x": FloatRange(low=0.0, high=1.0)}, conditional)
    row = search.propose(0, fixed={"x": 1, "layers": 2, "units1": 8.0, "optimizer": "adam", "momentum": 0.5})
    params = json.loads(search.ledger.proposals[0])["p"]
    assert (params["x"], params["layers"], params["units1"], params["optimizer"]) == (1.0, 2, 8, "adam")
    assert "momentum" not in params
    assert set(row.proposal.params) == {"x", "layers", "units0", "units1", "optimizer", "shape"}
    with pytest.raises(UserError, match="99 of layers is not an integer from 1 to 3"):
        search.optimizer.suggest(1, fixed={"layers": 99})
