"""sweeper: a fault-tolerant hyperparameter sweep coordinator.

Training code needs `resume` only; everything public is listed in `__all__` and imported at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeper.errors import SweeperError, TrialFailed, UserError
    from sweeper.hydra.identity import config_hash
    from sweeper.plain.ends import Interrupted, SweepFailed
    from sweeper.plain.space import Choice, Float, Int
    from sweeper.plain.sweeping import sweep
    from sweeper.results.loading import load
    from sweeper.results.records import SweepResult, TrialResult
    from sweeper.trial.run import Run, resume
    from sweeper.trial.stops import Evicted, Paused, Pruned

__all__ = [
    "Choice",
    "Evicted",
    "Float",
    "Int",
    "Interrupted",
    "Paused",
    "Pruned",
    "Run",
    "SweepFailed",
    "SweepResult",
    "SweeperError",
    "TrialFailed",
    "TrialResult",
    "UserError",
    "config_hash",
    "load",
    "resume",
    "sweep",
]

_HOMES = {
    "Choice": "sweeper.plain.space",
    "Evicted": "sweeper.trial.stops",
    "Float": "sweeper.plain.space",
    "Int": "sweeper.plain.space",
    "Interrupted": "sweeper.plain.ends",
    "Paused": "sweeper.trial.stops",
    "Pruned": "sweeper.trial.stops",
    "Run": "sweeper.trial.run",
    "SweepFailed": "sweeper.plain.ends",
    "SweepResult": "sweeper.results.records",
    "SweeperError": "sweeper.errors",
    "TrialFailed": "sweeper.errors",
    "TrialResult": "sweeper.results.records",
    "UserError": "sweeper.errors",
    "config_hash": "sweeper.hydra.identity",
    "load": "sweeper.results.loading",
    "resume": "sweeper.trial.run",
    "sweep": "sweeper.plain.sweeping",
}


def __getattr__(name: str) -> Any:  # Any: whatever the named module holds
    if name not in _HOMES:
        raise AttributeError(f"module 'sweeper' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
