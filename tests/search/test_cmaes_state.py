"""CMA-ES keeps what it learned as JSON, and all of it."""

from __future__ import annotations

import json
from typing import Any

import cmaes
import numpy as np
import pytest

from sweeper.model.search import SearchSpec
from sweeper.model.space import FloatRange
from sweeper.search.cmaes import restore, state_as_json
from sweeper.search.optimizer import Optimizer
from tests.search.sequences import Search

UNIT = np.tile(np.array([0.0, 1.0]), (10, 1))
STEPS = np.array([0.1, 0.0] * 5)
NOT_KEPT = {"_rng", "_funhist_values", "_D", "_B", "m_z_lim_low", "m_z_lim_up"}
"""Seeded before each use, never read, made anew at the next use."""


def new(kind: str, **changes: Any) -> Any:
    middle = np.full(10, 0.5)
    if kind == "CMAwM":
        return cmaes.CMAwM(middle, 0.2, UNIT, STEPS, seed=1)
    return getattr(cmaes, kind)(middle, 0.2, bounds=UNIT, seed=1, **changes)


def taught(optimizer: Any, generations: int = 4) -> Any:
    for _ in range(generations):
        asked = [optimizer.ask() for _ in range(optimizer.population_size)]
        pairs = [found if isinstance(found, tuple) else (found, found) for found in asked]
        optimizer.tell([(raw, float(np.sum((used - 0.3) ** 2))) for used, raw in pairs])
    return optimizer


def attributes(optimizer: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in optimizer.__dict__.items():
        if name == "_cma":
            found |= {f"inner{key}": item for key, item in attributes(value).items()}
        elif name not in NOT_KEPT:
            found[name] = value
    return found


@pytest.mark.parametrize(("kind", "changes"), [("CMA", {}), ("CMA", {"lr_adapt": True}), ("SepCMA", {}), ("CMAwM", {})])
def test_a_new_optimizer_that_is_filled_from_json_equals_the_one_that_learned(
    kind: str, changes: dict[str, Any]
) -> None:
    """Attribute by attribute: a newer `cmaes` that learns something else fails here."""
    learned = taught(new(kind, **changes))
    text = json.dumps(state_as_json(learned))
    filled = new(kind, **changes)

    assert restore(filled, json.loads(text))

    expected, found = attributes(learned), attributes(filled)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    learned._rng.seed(7)
    filled._rng.seed(7)
    np.testing.assert_array_equal(np.hstack(filled.ask()), np.hstack(learned.ask()))


def test_a_state_of_ten_dimensions_is_a_few_kilobytes() -> None:
    assert len(json.dumps(state_as_json(taught(new("CMA"))))) < 4_000


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kind", "SepCMA"),
        ("kind", "RandomState"),
        ("_g", "3"),
        ("_g", 1.0),
        ("_sigma", {"$float": "nan"}),
        ("_mean", {"shape": [9], "f8": "AAAAAAAA"}),
        ("_mean", {"shape": [10], "f8": "no base 64"}),
        ("_mean", {"shape": [10], "f8": "AAAA"}),
        ("_mean", [0.5] * 10),
        ("ask", 1),
    ],
)
def test_a_state_that_is_not_wholly_right_fills_nothing(key: str, value: Any) -> None:
    stored = state_as_json(taught(new("CMA")))
    stored[key] = value
    untouched = new("CMA")
    before = attributes(new("CMA"))

    assert not restore(untouched, stored)

    for name, kept in attributes(untouched).items():
        np.testing.assert_array_equal(kept, before[name])


def test_it_learns_across_restarts() -> None:
    """The state is really used: far closer to the optimum than without it."""
    space = {f"x{at}": FloatRange(low=-5.0, high=5.0) for at in range(5)}
    search = Search(lambda: Optimizer(SearchSpec(space=space, sampler={"_target_": "cmaes"}), seed=2))
    for _ in range(10):
        search.run(12, lambda params: sum((value - 1.0) ** 2 for value in params.values()))
        search.optimizer = search.ledger.load(search.make())
    values = [json.loads(text) for text in search.ledger.results.values()]
    assert min(values) < 0.2
    assert sum(values[-20:]) < sum(values[:20]) / 20
