"""What `run.batches` costs per step when there is nothing to do: prints microseconds, with and without a session.

Run: python benchmarks/step_overhead.py
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

import sweeper
from sweeper.clock import SystemClock
from sweeper.model.control import PAGE_BYTES, ControlPage
from sweeper.model.messages import Start
from sweeper.trial import rng
from sweeper.trial.session import Session, install, uninstall

STEPS = 100_000
START = Start(
    number=0, config_hash="ab" * 32, overrides=[], sweep_dir="/tmp", output_subdir="0", attempt=1, fence=1, seed=0,
    threads=1, gpu=None, every_s=1e9, restore=None, first_seq=1,
)  # fmt: skip


def microseconds(count: int, run: Callable[[], Any]) -> float:
    """Best of five, per item."""
    best = float("inf")
    for _ in range(5):
        begun = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - begun)
    return best / count * 1e6


def drain(items: Iterable[Any]) -> None:
    for _ in items:
        pass


def in_session(train: Callable[[], float]) -> float:
    mine, theirs = socket.socketpair()
    with tempfile.TemporaryFile() as control, tempfile.TemporaryFile() as staging, mine, theirs:
        os.ftruncate(control.fileno(), PAGE_BYTES)
        page = ControlPage(control.fileno())
        install(
            Session(
                START, channel=theirs, control=page, staging_fd=staging.fileno(), restore_fd=None, clock=SystemClock()
            )
        )
        try:
            return train()
        finally:
            uninstall()


def steps() -> float:
    """A step loop and its safe points, nothing else; one epoch after another."""
    run = sweeper.resume(model=torch.nn.Linear(2, 2))
    epochs = run.epochs(5)
    best = float("inf")
    for _ in epochs:
        begun = time.perf_counter()
        drain(run.steps(STEPS))
        best = min(best, time.perf_counter() - begun)
    return best / STEPS * 1e6


def batches() -> float:
    """A loader through its view, compared with the loader itself."""
    loader = torch.utils.data.DataLoader(range(STEPS // 5), batch_size=8, shuffle=True)  # type: ignore[arg-type]
    bare = microseconds(len(loader), lambda: drain(loader))
    run = sweeper.resume()
    best = float("inf")
    for _ in run.epochs(5):
        begun = time.perf_counter()
        drain(run.batches(loader))
        best = min(best, time.perf_counter() - begun)
    return best / len(loader) * 1e6 - bare


def main() -> None:
    torch.set_num_threads(1)
    bare = microseconds(STEPS, lambda: drain(iter(range(STEPS))))
    print(f"a bare loop                          {bare:8.2f} µs per step")
    print(f"run.steps outside a sweep            {steps():8.2f} µs per step")
    print(f"run.steps in a trial, nothing to do  {in_session(steps):8.2f} µs per step")
    print(f"run.batches beside the bare loader   {in_session(batches):8.2f} µs more per batch")
    rng.take()
    print(
        f"a random-state snapshot              {microseconds(1000, lambda: [rng.take() for _ in range(1000)]):8.2f} µs"
    )


if __name__ == "__main__":
    main()
