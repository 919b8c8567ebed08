"""Short names of Optuna's samplers and pruners, as the groups of Hydra's Optuna plugin are called: names only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SAMPLERS: Final[Mapping[str, str]] = {
    "tpe": "optuna.samplers.TPESampler",
    "random": "optuna.samplers.RandomSampler",
    "cmaes": "optuna.samplers.CmaEsSampler",
    "nsgaii": "optuna.samplers.NSGAIISampler",
    "nsgaiii": "optuna.samplers.NSGAIIISampler",
    "gp": "optuna.samplers.GPSampler",
    "qmc": "optuna.samplers.QMCSampler",
    "grid": "optuna.samplers.GridSampler",
    "brute_force": "optuna.samplers.BruteForceSampler",
}
PRUNERS: Final[Mapping[str, str]] = {
    "median": "optuna.pruners.MedianPruner",
    "percentile": "optuna.pruners.PercentilePruner",
    "successive_halving": "optuna.pruners.SuccessiveHalvingPruner",
    "hyperband": "optuna.pruners.HyperbandPruner",
    "threshold": "optuna.pruners.ThresholdPruner",
    "patient": "optuna.pruners.PatientPruner",
    "wilcoxon": "optuna.pruners.WilcoxonPruner",
    "nop": "optuna.pruners.NopPruner",
}
