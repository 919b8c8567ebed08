"""The local engine: keeps some worker processes of this machine going, and lets them leave in good order."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sweeper.model.waits import ExitStatus, Waitable

log = logging.getLogger("sweeper.engines")

FIRST_DELAY_S = 0.1
MOST_DELAY_S = 10.0
LONG_LIFE_S = 60.0
"""A worker that lived this long worked: its death has nothing to do with those before it."""
MAX_DEATHS = 12
"""Deaths of workers in one place, in a row and without any progress of the sweep, after which the engine gives up."""


class WorkerHandle(Protocol):
    """A worker process that was started here."""

    @property
    def pid(self) -> int:
        """For logs and people; nothing is decided by it."""
        ...

    def filenos(self) -> tuple[int, ...]:
        """Descriptors that turn readable when it may have exited."""
        ...

    def exit_status(self) -> ExitStatus | None:
        """None while it lives."""
        ...

    def drain(self) -> None:
        """Tell it to take no new trial, save, and leave."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...

    def close(self) -> None:
        """Let go of what belongs to it in this process."""
        ...


class StartedProcess(Protocol):
    """What a spawner gives (`sweeper.trial.spawning.Spawned`)."""

    @property
    def pid(self) -> int:
        """For logs."""
        ...

    def fileno(self) -> int:
        """Readable when `exit_status` may have news; -1 when there is nothing to wait on."""
        ...

    def exit_status(self) -> ExitStatus | None:
        """None while it lives."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class PipedWorker:
    """A worker process and the pipe that tells it to leave; implements `WorkerHandle`.

    Told by the pipe and not by a signal: a process number may by then belong to somebody else.
    """

    def __init__(self, process: StartedProcess, pipe: int) -> None:
        """Take over the process and the write end of its pipe."""
        self._process = process
        self._pipe: int | None = pipe

    @property
    def pid(self) -> int:
        """For logs and people."""
        return self._process.pid

    def filenos(self) -> tuple[int, ...]:
        """See `WorkerHandle`."""
        descriptor = self._process.fileno()
        return () if descriptor < 0 else (descriptor,)

    def exit_status(self) -> ExitStatus | None:
        """See `WorkerHandle`."""
        return self._process.exit_status()

    def drain(self) -> None:
        """See `WorkerHandle`."""
        if self._pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._pipe, b"L")

    def kill(self) -> None:
        """See `WorkerHandle`."""
        self._process.kill()

    def close(self) -> None:
        """See `WorkerHandle`. A worker that still lives takes the closed pipe as a notice."""
        self._process.close()
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None


@dataclass(slots=True)
class _Place:
    """One of the N places; its index decides which GPU its workers use."""

    index: int
    handle: WorkerHandle | None = None
    draining: bool = False
    deaths: int = 0
    not_before_s: float = float("-inf")
    started_s: float = float("-inf")


class LocalWorkers:
    """Up to `places` workers, each started again with backoff when it dies unexpectedly."""

    def __init__(self, start: Callable[[int], WorkerHandle], *, places: int) -> None:
        self._start = start
        self._places = [_Place(index) for index in range(places)]
        self._failed: str | None = None

    @property
    def failed(self) -> str | None:
        """Why the engine gave up starting workers, if it did."""
        return self._failed

    @property
    def alive(self) -> int:
        """Workers that have not exited, draining ones included."""
        return sum(place.handle is not None for place in self._places)

    @property
    def waitables(self) -> tuple[Waitable, ...]:
        """What to wait on for news of a worker's exit."""
        return tuple(place.handle for place in self._places if place.handle is not None)

    def wake_at_s(self, now_s: float) -> float:
        """When a worker may be started again; infinity when none is waiting for that."""
        times = [p.not_before_s for p in self._places if p.handle is None and p.not_before_s > now_s]
        return min(times, default=float("inf"))

    def keep(self, count: int, now_s: float) -> None:
        """Have at least `count` workers going: start what is missing.

        Surplus ones are left alone until the end. From here an idle worker looks like a busy one, and a stopped one
        like both; draining the wrong one would interrupt the only trial that is getting anywhere.
        """
        self.reap(now_s)
        missing = count - sum(place.handle is not None and not place.draining for place in self._places)
        for place in self._places:
            if missing <= 0 or self._failed is not None:
                break
            if place.handle is None and now_s >= place.not_before_s:
                place.handle, place.draining, place.started_s = self._start(place.index), False, now_s
                log.info("worker started place=%d pid=%d", place.index, place.handle.pid)
                missing -= 1

    def progressed(self) -> None:
        """The sweep moved on, so earlier deaths are no sign that workers cannot work here."""
        for place in self._places:
            place.deaths = 0

    def drain(self) -> None:
        """Tell all of them to leave; those that were told before hurry."""
        for place in self._places:
            if place.handle is not None:
                self._drain(place)

    def kill(self) -> None:
        """End those that are left."""
        for place in self._places:
            if place.handle is not None:
                log.warning("worker is killed place=%d pid=%d", place.index, place.handle.pid)
                place.handle.kill()

    def reap(self, now_s: float) -> None:
        """Take note of those that have exited."""
        for place in self._places:
            if place.handle is None or (status := place.handle.exit_status()) is None:
                continue
            handle, place.handle = place.handle, None
            handle.close()
            if place.draining:
                place.draining = False
            else:
                self._died(place, handle.pid, status, now_s)

    def close(self) -> None:
        """Let go of all handles; workers that still live notice that we are gone, and drain."""
        for place in self._places:
            if place.handle is not None:
                place.handle.close()
                place.handle = None

    @staticmethod
    def _drain(place: _Place) -> None:
        assert place.handle is not None, "only a place with a worker"
        place.draining = True
        place.handle.drain()

    def _died(self, place: _Place, pid: int, status: ExitStatus, now_s: float) -> None:
        place.deaths = 1 if now_s - place.started_s >= LONG_LIFE_S else place.deaths + 1
        delay_s = min(FIRST_DELAY_S * 2.0 ** (place.deaths - 1), MOST_DELAY_S)
        place.not_before_s = now_s + delay_s
        how = f"signal {status.signal}" if status.signal is not None else f"status {status.code}"
        log.warning("worker died place=%d pid=%d %s, next in %.1f s", place.index, pid, how, delay_s)
        if place.deaths >= MAX_DEATHS:
            self._failed = f"local workers keep dying without getting anywhere; the last one ended with {how}"
