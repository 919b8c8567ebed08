"""A small objective with everything a search sees: two numbers, a choice, reports at each step, and a training counter.

It needs no library that is slow to import, so that a command can be killed and given again many times in a test.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig

import sweeper


@dataclass
class Config:
    x: float = 0.0
    y: float = 0.0
    kind: str = "plain"
    steps: int = 4
    pause_s: float = 0.02
    two: bool = False
    counter: str = "${oc.env:COUNTER}"


ConfigStore.instance().store(name="config", node=Config)


def count(path: str, line: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


@hydra.main(version_base=None, config_path=None, config_name="config")
def train(cfg: Config) -> Any:
    number = HydraConfig.get().job.num
    height = (cfg.x - 0.3) ** 2 + (cfg.y + 0.2) ** 2 + (0.0 if cfg.kind == "plain" else 0.1)
    run = sweeper.resume()
    for step in run.steps(cfg.steps):
        count(cfg.counter, f"{number} {run.attempt} {step + 1}")
        run.state["sum"] = run.state.get("sum", 0.0) + height
        run.report(height + math.exp(-step), step=step, height=height)
        time.sleep(cfg.pause_s)
    value = run.state["sum"] / cfg.steps
    return (value, abs(cfg.x)) if cfg.two else value


if __name__ == "__main__":
    train()
