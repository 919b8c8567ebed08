"""Training functions that run in real child processes; started as a program, it is such a child."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

from sweeper.model.messages import Start
from sweeper.trial.child import child_role
from sweeper.trial.fresh import run_role_from_environment
from sweeper.trial.spawning import CHILD_ROLE, Role


def exact(workers: int = 0, epochs: int = 3, pause_s: float = 0.0, pause_from: int = 0, lr: float = 0.01) -> float:
    """Everything that matters is registered or in `run.state`; each step of epoch `pause_from` and later pauses."""
    import threading

    import numpy as np
    import torch

    import sweeper

    class Noisy(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> Any:
            noise = random.random() + float(np.random.rand()) + torch.rand(()).item()
            return torch.full((4,), float(index)) + noise

    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 10 * lr, total_steps=30)
    loader = torch.utils.data.DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=workers)
    run = sweeper.resume(model=model, optimizer=optimizer, scheduler=scheduler)
    for epoch in run.epochs(epochs):
        for batch in run.batches(loader):
            optimizer.zero_grad()
            loss = model(batch).square().mean() + torch.rand(()) * np.random.rand() * random.random()
            loss.backward()
            optimizer.step()
            scheduler.step()
            run.mean("loss", loss)
            threading.Event().wait(pause_s if epoch >= pause_from else 0.0)
        run.report(run.mean("loss"))
        run.state["best"] = min(run.state.get("best", 9.0), run.mean("loss"))
    return run.state["best"] + next(model.parameters()).sum().item()


def local_variable() -> float:
    """`total` is lost in the middle of an epoch."""
    import sweeper

    run = sweeper.resume()
    for _ in run.epochs(2):
        total = 0.0
        for step in run.steps(6):
            total += step + 1
        run.report(total)
    return total


def unregistered_model() -> float:
    import torch

    import sweeper

    model = torch.nn.Linear(2, 1)
    run = sweeper.resume()
    for _ in run.epochs(2):
        for _ in run.steps(6):
            with torch.no_grad():
                model.weight += torch.rand(1, 2)
    return model.weight.sum().item()


def hash_order() -> str:
    """Two undisturbed runs differ: the order of a set of texts depends on the hash seed."""
    import sweeper

    run = sweeper.resume()
    for _ in run.epochs(2):
        for _ in run.steps(4):
            run.state["order"] = list({f"name {number}" for number in range(20)})
    return str(run.state["order"])


def without_sweeper() -> float:
    return 1.0


class Task:
    """Overrides name the function and its arguments."""

    def prepare(self, start: Start) -> Callable[[], object]:
        name, *arguments = start.overrides
        function: Callable[..., object] = globals()[name]
        given = dict(argument.split("=") for argument in arguments)
        return lambda: function(**{key: float(value) if "." in value else int(value) for key, value in given.items()})


ROLES: dict[str, Role] = {CHILD_ROLE: child_role(Task())}

if __name__ == "__main__":
    run_role_from_environment(ROLES)
    sys.exit("only as a child")
