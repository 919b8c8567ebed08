"""Samplers and pruners as a user may have them."""

from __future__ import annotations

import math
import random
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, CmaEsSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial


class OwnCmaEs(CmaEsSampler):
    """A subclass of a sampler that keeps a pickle."""


class Remembering(BaseSampler):
    """Keeps attributes of its own, and lets them decide."""

    def __init__(self, seed: int | None = None, scale: float = 1.0) -> None:
        self._random = RandomSampler(seed=seed)
        self._scale = scale

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return {}

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: Any) -> dict[str, Any]:
        return {}

    def sample_independent(self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: Any) -> Any:
        attrs = study._storage.get_study_system_attrs(study._study_id)
        count = attrs.get("remembering:count", 0) + 1
        study._storage.set_study_system_attr(study._study_id, "remembering:count", count)
        study._storage.set_trial_system_attr(trial._trial_id, "remembering:at", {"count": count, "of": (1, 2.5)})
        drawn = [
            self._random.sample_independent(study, trial, param_name, param_distribution) for _ in range(count % 3 + 1)
        ]
        return drawn[-1]


class Forgetful(Remembering):
    """Takes no seed."""

    def __init__(self) -> None:
        super().__init__(seed=random.randint(0, 9))


class Tagging(BaseSampler):
    """Writes a user attribute, which nothing keeps."""

    def __init__(self, seed: int) -> None:
        self._random = RandomSampler(seed=seed)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return {}

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: Any) -> dict[str, Any]:
        study.set_user_attr("seen", 1)
        return {}

    def sample_independent(self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: Any) -> Any:
        return self._random.sample_independent(study, trial, param_name, param_distribution)


class CountingPruner(optuna.pruners.BasePruner):
    """Prunes at the third report, which it knows from what it wrote."""

    def __init__(self, limit: int = 3) -> None:
        self._limit = limit

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        asked = int(trial.system_attrs.get("counting:asked", 0)) + 1
        study._storage.set_trial_system_attr(trial._trial_id, "counting:asked", asked)
        return asked >= self._limit or any(math.isnan(value) for value in trial.intermediate_values.values())


class Failing(RandomSampler):
    """Has a bug that shows with the second trial."""

    def sample_independent(self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: Any) -> Any:
        if trial.number == 1:
            raise KeyError("gone")
        return super().sample_independent(study, trial, param_name, param_distribution)


class FailingPruner(optuna.pruners.BasePruner):
    """Has a bug that shows at once."""

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        raise ZeroDivisionError("by nothing\nat all")
