"""How long a child takes to come to user code: forked off a warm parent, and in a fresh interpreter, torch loaded.

    python benchmarks/spawn.py [rounds]

Measured from the request until the child's `Started` has arrived; prints medians in milliseconds and their ratio.
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
        return lambda: torch.ones(3).sum().item()


ROLES = {CHILD_ROLE: child_role(Task())}


def started_ms(spawner: Spawner, folder: Path, number: int) -> float:
    start = Start(
        number=number, config_hash="ab" * 32, overrides=[], sweep_dir=str(folder), output_subdir=str(number), attempt=1,
        fence=1, seed=0, threads=1, gpu=None, every_s=300.0, restore=None, first_seq=1,
    )  # fmt: skip
    begun = time.perf_counter()
    child = ChildStarter(spawner, fallback=None, clock=SystemClock()).start(start)
    while not any(isinstance(message, Started) for message in child.receive()):
        select.select(child.filenos(), [], [])
    taken = time.perf_counter() - begun
    while child.exited is None:
        child.receive()
        select.select(child.filenos(), [], [], 0.05)
    child.close()
    return taken * 1000


def main(rounds: int) -> None:
    warm = WarmParent.fork(ROLES)
    begun = time.perf_counter()
    reason = warm.fork_safety()
    canary_ms = (time.perf_counter() - begun) * 1000
    fresh = FreshParent(this_command([]), ROLES)
    with tempfile.TemporaryDirectory() as name:
        forked = statistics.median(started_ms(warm, Path(name), number) for number in range(rounds))
        anew = statistics.median(started_ms(fresh, Path(name), number) for number in range(max(3, rounds // 5)))
    warm.close()
    print(f"canary            {canary_ms:8.1f} ms  ({reason or 'safe'})")
    print(f"forked child      {forked:8.1f} ms")
    print(f"fresh interpreter {anew:8.1f} ms")
    print(f"ratio             {anew / forked:8.1f}")


if __name__ == "__main__":
    run_role_from_environment(ROLES)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
