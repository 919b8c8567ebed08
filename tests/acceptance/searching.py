"""A search run by its real command, killed and given again: what it proposed, and what came of it (SAME)."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

from tests.acceptance.multirun import SCRIPTS, Bench

SPACE = ["x=interval(-1,1)", "y=interval(-1,1)", "kind=plain,wavy"]
NUMBERS_ONLY = ["x=interval(-1,1)", "y=interval(-1,1)"]
PATIENT = ["hydra.launcher.retry.max_crashes=1000", "hydra.launcher.retry.max_no_progress=1000"]


def unhurried(workers: int) -> str:
    """Make steps long enough that a command is killed in the middle of its search, and not after it."""
    return f"pause_s={0.1 * workers:g}"


SAMPLERS: dict[str, list[str]] = {
    "tpe": ["hydra/sweeper/sampler=tpe", *SPACE],
    "tpe-median": ["hydra/sweeper/sampler=tpe", "hydra/sweeper/pruner=median", *SPACE],
    "random": ["hydra/sweeper/sampler=random", *SPACE],
    "qmc": ["hydra/sweeper/sampler=qmc", *NUMBERS_ONLY],
    "gp": ["hydra/sweeper/sampler=gp", *NUMBERS_ONLY],
    "cmaes": ["hydra/sweeper/sampler=cmaes", *NUMBERS_ONLY],
    "nsgaii": ["hydra/sweeper/sampler=nsgaii", "hydra.sweeper.direction=[minimize,minimize]", "two=true", *SPACE],
}
"""By name, the arguments of the searches that must not depend on restarts."""


def search_bench(root: Path, home: Path) -> Bench:
    """Give a place where the searched script is run."""
    return Bench(root=root, home=home, script=SCRIPTS / "searched.py")


def arguments(name: str, *more: str, n_trials: int, workers: int = 1) -> list[str]:
    """Give a search's command-line arguments."""
    return [
        "hydra/sweeper=sweeper",
        f"hydra.launcher.name='{name}'",
        f"hydra.launcher.workers={workers}",
        "hydra.launcher.checkpoint.every_s=0.05",
        f"hydra.sweeper.n_trials={n_trials}",
        *(["hydra.sweeper.deterministic=true"] if workers > 1 else []),
        *PATIENT,
        *more,
    ]


def story(bench: Bench, name: str) -> list[tuple[Any, ...]]:
    """Give the sequence of a search: number, hash, state, parameters and values of every trial, by number."""
    keys = ("number", "config_hash", "state", "params", "values", "step")
    return [tuple(trial[key] for key in keys) for trial in bench.trials(name)]


def run_with_kills(bench: Bench, command: list[str], *, kills: int, seed: int, most_s: float = 3.0) -> int:
    """Give the command again until it succeeds, killing all of it at random moments; give how many kills struck."""
    rng = random.Random(seed)
    struck = 0
    for _ in range(kills + 1):
        multirun = bench.start(*command)
        try:
            if struck < kills and multirun.wait_for("child"):
                # uneven on purpose: mostly soon after the start, sometimes after many trials
                time.sleep(rng.uniform(0.0, 1.0) ** 2 * most_s)
                if multirun.process.poll() is None:
                    multirun.kill_everything()
                    struck += 1
                    continue
            status = multirun.process.wait(300)
            assert status == 0, bench.printed()[-4000:]
            return struck
        finally:
            multirun.kill_everything()
    raise AssertionError(f"not finished after {kills} kills:\n{bench.printed()[-4000:]}")
