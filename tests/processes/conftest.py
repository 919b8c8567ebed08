from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sweeper.clock import SystemClock
from sweeper.model.messages import LAST_MESSAGES, Start, ToWorker
from sweeper.model.waits import Child, ExitStatus
from sweeper.trial.child_starter import ChildStarter
from sweeper.trial.warm_parent import WarmParent

from .script import ROLES, make_start

PATIENCE_S = 30.0
PF_EXITING = 0x4
"""Flag of a process in `/proc/PID/stat` (see proc(5)): it is being taken down."""


def wait_until(condition: Callable[[], bool], limit_s: float = PATIENCE_S, what: str = "condition") -> float:
    """Wait for something that other processes do; gives the seconds it took."""
    begun = time.monotonic()  # noqa: TID251
    while not condition():
        if time.monotonic() - begun > limit_s:  # noqa: TID251
            raise AssertionError(f"{what} not within {limit_s} s")
        time.sleep(0.005)  # noqa: TID251
    return time.monotonic() - begun  # noqa: TID251


def alive(pid: int) -> bool:
    """Whether the process still runs code of its own.

    A zombie does not, nor one that the kernel is taking down: its files, and the locks on them, go a moment before
    it becomes a zombie.
    """
    try:
        state, *others = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    flags = int(others[5])
    return state not in "ZX" and not flags & PF_EXITING


@dataclass
class Ended:
    """Everything a child said, and how it ended."""

    messages: list[ToWorker]
    status: ExitStatus
    tail: str

    @property
    def last(self) -> ToWorker:
        assert isinstance(self.messages[-1], LAST_MESSAGES)
        return self.messages[-1]


def run_to_end(child: Child, limit_s: float = PATIENCE_S) -> Ended:
    messages: list[ToWorker] = []
    deadline = time.monotonic() + limit_s  # noqa: TID251
    try:
        while True:
            messages += child.receive()
            status = child.exited
            if status is not None:
                return Ended(messages=messages, status=status, tail=child.output_tail())
            assert time.monotonic() < deadline, f"still running: {messages} {child.output_tail()}"  # noqa: TID251
            select.select(child.filenos(), [], [], 0.2)
    finally:
        child.close()


@dataclass
class Lab:
    """A worker's means, in the test's own process."""

    warm: WarmParent
    starter: ChildStarter
    folder: Path
    children: list[Child] = field(default_factory=list)

    def start(self, *overrides: str, restore_fd: int | None = None, **facts: object) -> Child:
        child = self.starter.start(self.message(*overrides, **facts), restore_fd)
        self.children.append(child)
        return child

    def message(self, *overrides: str, **facts: object) -> Start:
        return make_start(self.folder, *overrides, **facts)  # type: ignore[arg-type]

    def run(self, *overrides: str, **facts: object) -> Ended:
        return run_to_end(self.start(*overrides, **facts))


@pytest.fixture(scope="module")
def module_warm() -> Iterator[WarmParent]:
    warm = WarmParent.fork(ROLES)
    yield warm
    warm.close()


@pytest.fixture
def lab(module_warm: WarmParent, tmp_path: Path) -> Lab:
    """A warm parent shared by the module's tests, with nothing to fall back on: forking is what is tested."""
    return Lab(module_warm, ChildStarter(module_warm, fallback=None, clock=SystemClock()), tmp_path)


@pytest.fixture
def kill_later() -> Iterator[list[int]]:
    """Process numbers, of processes that the test started, to be killed at its end."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
