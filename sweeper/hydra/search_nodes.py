"""The groups `hydra/sweeper/{sampler,pruner,scheduler}`: what a config may name, under the Optuna plugin's names.

Plain data: Hydra's plugin scanner imports it in every program that uses Hydra. Each node has the keys of Optuna's own
class, and those that the plugin had, so that configs written for it are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

Node = Mapping[str, object]

_POPULATION: Final = {
    "population_size": 50,
    "mutation": None,
    "mutation_prob": None,
    "crossover": None,
    "crossover_prob": 0.9,
    "swapping_prob": 0.5,
    "constraints_func": None,
}
_PATIENCE: Final = {"n_startup_trials": 5, "n_warmup_steps": 0, "interval_steps": 1, "n_min_trials": 1}

SAMPLERS: Final[Mapping[str, Node]] = {
    "tpe": {
        "_target_": "optuna.samplers.TPESampler",
        "seed": None,
        "consider_prior": None,
        "prior_weight": None,
        "consider_magic_clip": None,
        "consider_endpoints": None,
        "n_startup_trials": 10,
        "n_ei_candidates": 24,
        "multivariate": None,
        "group": False,
        "constant_liar": True,
        "constraints_func": None,
        "warn_independent_sampling": None,
    },
    "random": {"_target_": "optuna.samplers.RandomSampler", "seed": None},
    "cmaes": {
        "_target_": "optuna.samplers.CmaEsSampler",
        "seed": None,
        "x0": None,
        "sigma0": None,
        "n_startup_trials": 1,
        "independent_sampler": None,
        "warn_independent_sampling": True,
        "consider_pruned_trials": False,
        "restart_strategy": None,
        "popsize": None,
        "inc_popsize": None,
        "use_separable_cma": False,
        "with_margin": False,
        "lr_adapt": False,
        "source_trials": None,
    },
    "nsgaii": {"_target_": "optuna.samplers.NSGAIISampler", "seed": None, **_POPULATION},
    "nsgaiii": {
        "_target_": "optuna.samplers.NSGAIIISampler",
        "seed": None,
        **_POPULATION,
        "reference_points": None,
        "dividing_parameter": 3,
    },
    "gp": {
        "_target_": "optuna.samplers.GPSampler",
        "seed": None,
        "independent_sampler": None,
        "n_startup_trials": 10,
        "deterministic_objective": False,
        "constraints_func": None,
        "warn_independent_sampling": True,
    },
    "qmc": {
        "_target_": "optuna.samplers.QMCSampler",
        "seed": None,
        "qmc_type": "sobol",
        "scramble": False,
        "independent_sampler": None,
        "warn_asynchronous_seeding": True,
        "warn_independent_sampling": True,
    },
    "grid": {"_target_": "optuna.samplers.GridSampler", "seed": None},
    "brute_force": {"_target_": "optuna.samplers.BruteForceSampler", "seed": None, "avoid_premature_stop": False},
}

PRUNERS: Final[Mapping[str, Node]] = {
    "none": {},
    "nop": {"_target_": "optuna.pruners.NopPruner"},
    "median": {"_target_": "optuna.pruners.MedianPruner", **_PATIENCE},
    "percentile": {"_target_": "optuna.pruners.PercentilePruner", "percentile": 25.0, **_PATIENCE},
    "successive_halving": {
        "_target_": "optuna.pruners.SuccessiveHalvingPruner",
        "min_resource": "auto",
        "reduction_factor": 4,
        "min_early_stopping_rate": 0,
        "bootstrap_count": 0,
    },
    "hyperband": {
        "_target_": "optuna.pruners.HyperbandPruner",
        "min_resource": 1,
        "max_resource": "auto",
        "reduction_factor": 3,
        "bootstrap_count": 0,
    },
    "threshold": {
        "_target_": "optuna.pruners.ThresholdPruner",
        "lower": None,
        "upper": None,
        "n_warmup_steps": 0,
        "interval_steps": 1,
    },
    "patient": {
        "_target_": "optuna.pruners.PatientPruner",
        "wrapped_pruner": None,
        "patience": "???",
        "min_delta": 0.0,
    },
    "wilcoxon": {"_target_": "optuna.pruners.WilcoxonPruner", "p_threshold": 0.1, "n_startup_steps": 2},
}

SCHEDULERS: Final[Mapping[str, Node]] = {
    "none": {},
    "asha": {"kind": "asha", "mode": "promote", "min_resource": 1, "max_resource": None, "reduction_factor": 3},
    "hyperband": {"kind": "hyperband", "min_resource": 1, "max_resource": None, "reduction_factor": 3},
    "pbt": {
        "kind": "pbt",
        "interval": None,
        "max_resource": None,
        "quantile": 0.25,
        "resample_probability": 0.25,
        "perturb_factors": [0.8, 1.2],
        "mutate": None,
    },
}

GROUPS: Final[Mapping[str, Mapping[str, Node]]] = {
    "sampler": SAMPLERS,
    "pruner": PRUNERS,
    "scheduler": SCHEDULERS,
}
