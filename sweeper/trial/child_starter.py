"""Starting a child: shared memory, a socket, an output file, and a fresh interpreter where forking does not work."""

from __future__ import annotations

import logging
import os
from typing import Final

from sweeper.clock import Clock
from sweeper.model.messages import Refused, Start, Started, ToChild, ToWorker
from sweeper.model.waits import Child, ExitStatus
from sweeper.trial.child_process import ChildProcess, launch_child
from sweeper.trial.spawning import CHILD_ROLE, ForkUnsafe, Spawner, SpawnFailed

__all__ = ["CHILD_ROLE", "ChildStarter", "StartingChild"]

FORKED_START_S: Final = 30.0
"""Seconds a forked child may take to say `Started`; composing its config takes about 0.1."""
FRESH_START_S: Final = 300.0
"""The same for a fresh interpreter, which imports the user's script first."""
NEVER_STARTED: Final = ExitStatus(code=1)
_log = logging.getLogger(__name__)


class ChildStarter:
    """What a worker starts its trials with. Use it in the thread that made the spawner."""

    def __init__(
        self,
        spawner: Spawner,
        *,
        fallback: Spawner | None,
        clock: Clock,
        lock_fd: int | None = None,
        forked_start_s: float = FORKED_START_S,
        fresh_start_s: float = FRESH_START_S,
    ) -> None:
        """Remember how to start children.

        Args:
            spawner: The warm parent (or a fresh one, with no fallback).
            fallback: Starts fresh interpreters, for good from the first time that forking fails.
            clock: Measures the two limits.
            lock_fd: The worker's life lock, which each child holds too.
            forked_start_s: Limit until `Started` with `spawner`, if there is a fallback.
            fresh_start_s: Limit until `Started` otherwise.
        """
        self._spawner = spawner
        self._fallback = fallback
        self._clock = clock
        self._lock_fd = lock_fd
        self._forked_start_s = forked_start_s
        self._fresh_start_s = fresh_start_s

    def start(self, start: Start, restore_fd: int | None = None) -> Child:
        """Start a child on `start`; `restore_fd` is copied to it and stays the caller's.

        Never raises for a process that cannot be started: such a child says `Refused("start", …)` and has exited.
        """
        restore = None if restore_fd is None else os.dup(restore_fd)
        return StartingChild(self, start, restore, self._clock)

    def launch(self, start: Start, restore_fd: int | None) -> tuple[ChildProcess, bool]:
        """Start one process; gives it, and whether a fresh interpreter may still be tried instead of it.

        Raises:
            SpawnFailed: neither way works.
            OSError: no memory, or the output folder cannot be written.
        """
        if self._fallback is not None:
            try:
                return launch_child(self._spawner, start, restore_fd=restore_fd, lock_fd=self._lock_fd), True
            except (ForkUnsafe, SpawnFailed) as error:
                self.forking_failed(str(error))
        return launch_child(self._spawner, start, restore_fd=restore_fd, lock_fd=self._lock_fd), False

    def start_limit_s(self, *, forked: bool) -> float:
        """Seconds until `Started` at most."""
        return self._forked_start_s if forked else self._fresh_start_s

    def forking_failed(self, reason: str) -> None:
        """Use fresh interpreters from now on, and say so once."""
        if self._fallback is None:
            return
        _log.warning("trials start in fresh interpreters, about a second each: %s", reason)
        self._spawner, self._fallback = self._fallback, None


class StartingChild:
    """A child that is started again, in a fresh interpreter, if the forked one does not get to user code in time.

    The limits are looked at in `receive` and `exited`; `look_again_s` says when.
    """

    def __init__(self, starter: ChildStarter, start: Start, restore_fd: int | None, clock: Clock) -> None:
        self._starter = starter
        self._start = start
        self._restore_fd = restore_fd
        self._clock = clock
        self._began = False
        self._killed = False
        self._forked = False
        self._sent: list[ToChild] = []
        self._held: list[ToWorker] = []
        self._process: ChildProcess | None = None
        self._deadline_s = 0.0
        self._launch()

    @property
    def pid(self) -> int:
        """For logs; 0 when nothing could be started."""
        return self._process.pid if self._process else 0

    @property
    def step(self) -> int:
        """Training step at the last safe point."""
        return self._process.step if self._process else 0

    @property
    def safe_points(self) -> int:
        """Safe points passed so far."""
        return self._process.safe_points if self._process else 0

    @property
    def stateful(self) -> bool:
        """Whether the child can save."""
        return self._process is not None and self._process.stateful

    @property
    def exited(self) -> ExitStatus | None:
        """See `Child.exited`."""
        self._look_after_start()
        if self._held:
            return None
        return NEVER_STARTED if self._process is None else self._process.exited

    @property
    def look_again_s(self) -> float:
        """See `Child.look_again_s`."""
        over = self._began or self._killed or self._process is None
        return float("inf") if over else self._deadline_s

    def filenos(self) -> tuple[int, ...]:
        """See `Child.filenos`; they change when the child is started again."""
        return () if self._process is None else self._process.filenos()

    def receive(self) -> list[ToWorker]:
        """See `Child.receive`."""
        self._look_after_start()
        if self._process is not None:
            self._held += self._process.receive()
        messages, self._held = self._held, []
        return messages

    def send(self, message: ToChild) -> None:
        """See `Child.send`; what was sent before user code began is repeated to a second process."""
        if not self._began:
            self._sent.append(message)
        if self._process is not None:
            self._process.send(message)

    def staged(self) -> memoryview:
        """See `Child.staged`."""
        return memoryview(b"") if self._process is None else self._process.staged()

    def output_tail(self) -> str:
        """See `Child.output_tail`."""
        return "" if self._process is None else self._process.output_tail()

    def kill(self) -> None:
        """See `Child.kill`."""
        self._killed = True
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """See `Child.close`."""
        self._killed = True
        self._drop_restore()
        if self._process is not None:
            self._process.close()
            self._process = None

    def _launch(self) -> None:
        try:
            self._process, self._forked = self._starter.launch(self._start, self._restore_fd)
        except (SpawnFailed, ForkUnsafe, OSError) as error:
            self._refuse(f"cannot start a process for the trial: {error}")
            return
        self._deadline_s = self._clock.monotonic_s() + self._starter.start_limit_s(forked=self._forked)
        for message in self._sent:
            self._process.send(message)

    def _look_after_start(self) -> None:
        """Until user code begins: see whether it has, and act when it is too late or the process has ended."""
        if self._began or self._killed or self._process is None:
            return
        exited = self._process.exited
        self._held += self._process.receive()
        if any(isinstance(message, Started | Refused) for message in self._held):
            self._begin()
        elif exited is not None:
            self._start_again(f"it ended ({_words(exited)}) before it came to the task function")
        elif self._clock.monotonic_s() >= self._deadline_s:
            limit_s = self._starter.start_limit_s(forked=self._forked)
            self._start_again(f"it did not come to the task function within {limit_s:g} s")

    def _start_again(self, reason: str) -> None:
        if self._process is None:
            return
        if self._forked:
            self._starter.forking_failed(f"a forked child was started in vain: {reason}")
            self._process.close()
            self._process = None
            self._launch()
        else:
            self._process.kill()
            self._refuse(f"the trial's process was started in vain: {reason}; it printed:\n{self.output_tail()}")

    def _refuse(self, detail: str) -> None:
        self._held.append(Refused(reason="start", detail=detail))
        self._begin()

    def _begin(self) -> None:
        self._began = True
        self._sent.clear()
        self._drop_restore()

    def _drop_restore(self) -> None:
        if self._restore_fd is not None:
            os.close(self._restore_fd)
            self._restore_fd = None


def _words(status: ExitStatus) -> str:
    if status.signal is not None:
        return f"killed by signal {status.signal}"
    return "nobody saw how" if status.code is None else f"status {status.code}"
