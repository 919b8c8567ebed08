"""One search of five parameters in the words of both sides, and a history of it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from sweeper.model.search import SearchSpec
from sweeper.model.space import Choices, FloatRange, IntRange
from sweeper.model.trial import Json

KINDS = ("adam", "sgd", "lion")
REPORTS = 5
"""Intermediate values of each trial."""
SAMPLERS: Mapping[str, Mapping[str, Json]] = {
    "random": {"_target_": "optuna.samplers.RandomSampler"},
    "tpe": {"_target_": "optuna.samplers.TPESampler"},
}
SPEC = SearchSpec(
    space={
        "rate": FloatRange(low=1e-5, high=1.0, log=True),
        "momentum": FloatRange(low=0.0, high=1.0),
        "drop": FloatRange(low=0.0, high=0.5),
        "width": IntRange(low=1, high=512),
        "kind": Choices(values=KINDS),
    },
    n_trials=1_000_000_000,
    deterministic=False,
)
DISTRIBUTIONS: dict[str, BaseDistribution] = {
    "rate": FloatDistribution(1e-5, 1.0, log=True),
    "momentum": FloatDistribution(0.0, 1.0),
    "drop": FloatDistribution(0.0, 0.5),
    "width": IntDistribution(1, 512),
    "kind": CategoricalDistribution(KINDS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A trial that has been."""

    params: Mapping[str, Any]  # Any: floats, ints and texts
    value: float
    reports: tuple[float, ...]


def past(count: int) -> Iterator[Past]:
    """Give the same trials at each call."""
    source = random.Random(0)
    for _ in range(count):
        params = {
            "rate": 10 ** source.uniform(-5, 0),
            "momentum": source.random(),
            "drop": source.random() / 2,
            "width": source.randint(1, 512),
            "kind": source.choice(KINDS),
        }
        value = objective(params) + source.random() / 10
        yield Past(params=params, value=value, reports=tuple(value + 1 / step for step in range(1, REPORTS + 1)))


def objective(params: Mapping[str, Any]) -> float:  # Any: as above
    """A bowl in two of the parameters."""
    return float((params["momentum"] - 0.3) ** 2 + abs(params["drop"] - 0.1))
