"""How long a child takes to come to user code, and to train: forked off a warm parent, and in a fresh interpreter.

    python benchmarks/spawn.py [rounds]

torch is loaded. Measured from the request until the child's `Started` has arrived, and until it has made an optimizer,
taken one step and ended; prints medians in milliseconds and their ratios.
"""

from __future__ import annotations

import select
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from sweeper.clock import SystemClock
from sweeper.model.messages import Start, Started
from sweeper.trial.child import child_role
from sweeper.trial.child_starter import CHILD_ROLE, ChildStarter
from sweeper.trial.fresh import FreshParent, run_role_from_environment, this_command
from sweeper.trial.spawning import Spawner
from sweeper.trial.warm_parent import WarmParent


class Task:
    def prepare(self, start: Start) -> Callable[[], object]:
        return one_step


def one_step() -> float:
    """Train as little as possible."""
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = model(torch.ones(3)).sum()
    loss.backward()
    optimizer.step()
    return loss.item()


ROLES = {CHILD_ROLE: child_role(Task())}


def started_and_ended_ms(spawner: Spawner, folder: Path, number: int) -> tuple[float, float]:
    start = Start(
        number=number, config_hash="ab" * 32, overrides=[], sweep_dir=str(folder), output_subdir=str(number), attempt=1,
        fence=1, seed=0, threads=1, gpu=None, every_s=300.0, restore=None, first_seq=1,
    )  # fmt: skip
    begun = time.perf_counter()
    child = ChildStarter(spawner, fallback=None, clock=SystemClock()).start(start)
    while not any(isinstance(message, Started) for message in child.receive()):
        select.select(child.filenos(), [], [])
    started_s = time.perf_counter() - begun
    while child.exited is None:
        child.receive()
        select.select(child.filenos(), [], [], 0.05)
    ended_s = time.perf_counter() - begun
    child.close()
    return started_s * 1000, ended_s * 1000


def medians(spawner: Spawner, folder: Path, rounds: int) -> list[float]:
    """Give both, after one that does not count: the first fork imports what the others then have."""
    started_and_ended_ms(spawner, folder, 0)
    measured = [started_and_ended_ms(spawner, folder, number) for number in range(1, rounds + 1)]
    return [statistics.median(column) for column in zip(*measured, strict=True)]


def main(rounds: int) -> None:
    warm = WarmParent.fork(ROLES)
    begun = time.perf_counter()
    reason = warm.fork_safety()
    canary_ms = (time.perf_counter() - begun) * 1000
    fresh = FreshParent(this_command([]), ROLES)
    with tempfile.TemporaryDirectory() as name:
        forked = medians(warm, Path(name), rounds)
        anew = medians(fresh, Path(name), max(3, rounds // 5))
    warm.close()
    print(f"canary            {canary_ms:8.1f} ms  ({reason or 'safe'})")
    for what, mine, other in zip(("started", "one step"), forked, anew, strict=True):
        print(f"{what:<8}  forked child {mine:8.1f} ms, fresh interpreter {other:8.1f} ms, ratio {other / mine:6.1f}")


if __name__ == "__main__":
    run_role_from_environment(ROLES)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
