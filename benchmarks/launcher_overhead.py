"""What a trivial trial costs: a grid of `return 1.0` through Hydra's basic launcher, joblib, and ours.

    python benchmarks/launcher_overhead.py [--trials 40] [--runs 5] [--workers 2] [--json]

Each run is a whole command, in rotation, so that the machine's other work falls on all alike. The cost of a trial is
the slope between a short and a long grid (start-up of interpreter, server and workers is the same in both), and each
figure is the median over the runs. Ours runs every trial in an isolated child process and keeps a durable result; the
others keep none. The database is the embedded one, with its normal, durable settings.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCRIPT = """
import hydra
from dataclasses import dataclass
from hydra.core.config_store import ConfigStore

@dataclass
class Config:
    x: int = 0
    lr: float = 0.1
    width: int = 32

ConfigStore.instance().store(name="config", node=Config)

@hydra.main(version_base="1.3", config_path=None, config_name="config")
def main(cfg):
    return 1.0

if __name__ == "__main__":
    main()
"""
FEW = 4


def run(folder: Path, launcher: list[str], trials: int, offset: int) -> float:
    """Run one grid of configs that were never run before; give its seconds."""
    command = [sys.executable, str(folder / "app.py"), "-m", *launcher, f"x=range({offset},{offset + trials})"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SWEEPER_")}
    environment |= {"SWEEPER_HOME": str(folder / "home")}
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    took = time.perf_counter() - began
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
    return took


def measure(folder: Path, launchers: dict[str, list[str]], trials: int, runs: int) -> dict[str, list[float]]:
    """Give each launcher's milliseconds a trial, one figure a run."""
    figures: dict[str, list[float]] = {name: [] for name in launchers}
    offset = 0
    for _ in range(runs):
        for name, launcher in launchers.items():
            few = run(folder, launcher, FEW, offset)
            many = run(folder, launcher, FEW + trials, offset + FEW)
            offset += 2 * FEW + trials
            figures[name].append(1000 * (many - few) / trials)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    launchers = {
        "basic": ["hydra/launcher=basic"],
        "joblib": ["hydra/launcher=joblib", f"hydra.launcher.n_jobs={options.workers}"],
        "sweeper": ["hydra/launcher=sweeper", f"hydra.launcher.workers={options.workers}"],
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "app.py").write_text(SCRIPT)
        try:
            for launcher in launchers.values():
                run(folder, launcher, 1, 1_000_000)  # the embedded server's first start, file caches
            figures = measure(folder, launchers, options.trials, options.runs)
        finally:
            tool = [sys.executable, "-m", "sweeper.cli.app", "db", "stop"]
            environment = {**os.environ, "SWEEPER_HOME": str(folder / "home")}
            subprocess.run(tool, env=environment, capture_output=True, check=False)
    medians = {launcher: statistics.median(values) for launcher, values in figures.items()}
    report = {
        "trials": options.trials,
        "runs": options.runs,
        "workers": options.workers,
        "ms_per_trial": {name: [round(value, 1) for value in values] for name, values in figures.items()},
        "median_ms": {name: round(value, 1) for name, value in medians.items()},
        "ratio_to_basic": {name: round(value / medians["basic"], 2) for name, value in medians.items()},
    }
    if options.json:
        print(json.dumps(report))
        return
    print(f"{options.trials} trials, {options.runs} runs, {options.workers} workers (basic uses one process)")
    for name, median in medians.items():
        spread = f"{min(figures[name]):.1f} to {max(figures[name]):.1f}"
        print(f"{name:8} {median:7.1f} ms a trial ({spread}), {median / medians['basic']:.2f} x basic")


if __name__ == "__main__":
    main()
