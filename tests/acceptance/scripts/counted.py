"""A small real training script that writes down every step it takes: the training counter of the acceptance tests.

One line a body of the primary loop: `<trial number> <attempt> <step>`, appended in one write, so lines never mix.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass

import hydra
import torch
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import sweeper


@dataclass
class Config:
    lr: float = 0.1
    epochs: int = 3
    pause_s: float = 0.1
    loaders: int = 0
    counter: str = "${oc.env:COUNTER}"


ConfigStore.instance().store(name="config", node=Config)


def count(path: str, line: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


@hydra.main(version_base=None, config_path=None, config_name="config")
def train(cfg: Config) -> float:
    number = HydraConfig.get().job.num
    inputs = torch.linspace(-1, 1, 80).reshape(40, 2)
    targets = torch.sin(inputs.sum(dim=1, keepdim=True) * math.pi)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=4, shuffle=True, num_workers=cfg.loaders)
    model = nn.Sequential(nn.Linear(2, 16), nn.Dropout(0.2), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.epochs * len(loader))
    run = sweeper.resume(model=model, optimizer=optimizer, scheduler=scheduler)
    for _ in run.epochs(cfg.epochs):
        for x, y in run.batches(loader):
            run.state["steps"] = run.state.get("steps", 0) + 1
            count(cfg.counter, f"{number} {run.attempt} {run.state['steps']}")
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            scheduler.step()
            run.state["total"] = run.state.get("total", 0.0) + loss.item()
            time.sleep(cfg.pause_s)
        run.report(loss.item())
    return run.state["total"]


if __name__ == "__main__":
    train()
