"""Virtual time: one heap of events, one clock of the world, and processes that see it through clocks of their own.

One thread runs everything, so a seed gives one history. What it can therefore never find (a guard that only reads, a
stopped client, a late commit) is the business of the two-session tests.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from sweeper.model.waits import Notice, Program, Wait, Woken

T = TypeVar("T")

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
MAX_NESTING = 2


class Crash(BaseException):
    """The process that runs now dies at this very instruction; no `except Exception` of its own can know."""


@dataclass(order=True)
class _Event:
    at_s: float
    order: int
    action: Callable[[], None] = field(compare=False)
    owner: Process | None = field(compare=False, default=None)


class World:
    """Time, events, randomness and the record of what happened."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_s = 0.0
        self.database_offset_s = 86_400.0 * (seed % 5000)
        self.trace: list[str] = []
        self.processes: list[Process] = []
        self.after_step: Callable[[], None] = lambda: None
        self.running: list[Process] = []
        self._heap: list[_Event] = []
        self._order = itertools.count()
        self._streams: dict[str, random.Random] = {}

    def random(self, stream: str) -> random.Random:
        """A stream of its own per purpose, so that a change in one does not shift all others."""
        if stream not in self._streams:
            self._streams[stream] = random.Random(f"{self.seed}/{stream}")
        return self._streams[stream]

    def database_now(self) -> datetime:
        """The database's clock, which nobody else shares."""
        return EPOCH + timedelta(seconds=round(self.database_offset_s + self.now_s, 6))

    def note(self, text: str) -> None:
        """Add a line to the history."""
        self.trace.append(f"{self.now_s:.3f} {text}")

    def digest(self) -> str:
        """The history in one hash; equal for equal seeds."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    def after(self, delay_s: float, action: Callable[[], None], owner: Process | None = None) -> None:
        """Do something later; an owner that is dead by then does nothing, one that is paused does it afterwards."""
        heapq.heappush(self._heap, _Event(self.now_s + max(delay_s, 0.0), next(self._order), action, owner))

    def run(self, until_s: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Let time pass, event by event; nested calls serve a pause in the middle of a statement."""
        while self._heap and self._heap[0].at_s <= until_s and not stop():
            event = heapq.heappop(self._heap)
            self.now_s = max(self.now_s, event.at_s)
            owner = event.owner
            if owner is not None and not owner.alive:
                continue
            if owner is not None and owner.busy:
                event.at_s = max(owner.paused_until_s, self.now_s + 0.001)
                event.order = next(self._order)
                heapq.heappush(self._heap, event)
                continue
            event.action()
            self.after_step()
        self.now_s = max(self.now_s, until_s) if not stop() else self.now_s

    def pause_inside(self, process: Process, duration_s: float) -> None:
        """The running process sleeps here, in the middle of whatever it does, while the rest of the world goes on."""
        if len(self.running) > MAX_NESTING:
            return
        process.paused_until_s = self.now_s + duration_s
        for sleeper in self.running:  # those below on the stack cannot run either
            sleeper.paused_until_s = max(sleeper.paused_until_s, self.now_s + duration_s)
            sleeper.excuse(self.now_s, self.now_s + duration_s)
        self.note(f"{process.name} sleeps {duration_s:.1f}")
        self.run(process.paused_until_s)
        process.check_alive()


class Clock:
    """A process's own clocks: another start, a slightly wrong rate, a wrong idea of the date."""

    def __init__(self, world: World, random_: random.Random) -> None:
        self._world = world
        self.offset_s = random_.uniform(0, 1e5)
        self.rate = random_.uniform(0.99, 1.01)
        self._wall_error_s = random_.uniform(-3600, 3600)

    def monotonic_s(self) -> float:
        return self.offset_s + self._world.now_s * self.rate

    def wall(self) -> datetime:
        return self._world.database_now() + timedelta(seconds=self._wall_error_s)

    def world_s(self, monotonic_s: float) -> float:
        """When in the world this clock will show that."""
        return (monotonic_s - self.offset_s) / self.rate


class Process:
    """One simulated process: a program, driven as the production driver drives it."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.clock = Clock(world, world.random(f"clock/{name}"))
        self.alive = True
        self.paused_until_s = 0.0
        self.excuses: list[tuple[float, float]] = []
        self.result: Any = None
        self.on_end: Callable[[], None] = lambda: None
        self.children: list[Any] = []
        self._program: Program[Any] | None = None
        self._wait: Wait | None = None
        self._serial = 0
        self._notices: list[Notice] = []
        self._depth = 0
        world.processes.append(self)

    @property
    def busy(self) -> bool:
        """Whether it cannot take an event now: asleep, or in the middle of a step further down the stack."""
        return self._depth > 0 or self.world.now_s < self.paused_until_s

    def start(self, program: Program[Any]) -> None:
        """Run the program from now on."""
        self._program = program
        self.world.after(0.0, lambda: self._step(None), self)

    def poke(self) -> None:
        """A child, a future or a notice has news; wakes the program if it waits."""
        serial = self._serial
        self.world.after(0.0, lambda: self._wake(serial), self)

    def notify(self, notice: Notice) -> None:
        """Give the process a notice."""
        self._notices.append(notice)
        self.poke()

    def perform(self, action: Callable[[], T]) -> T | None:
        """Do something as this process, which may crash in the middle of it."""
        self._depth += 1
        self.world.running.append(self)
        try:
            value = action()
            self.check_alive()
            return value
        except Crash:
            self.die("crash")
            return None
        finally:
            self.world.running.pop()
            self._depth -= 1

    def check_alive(self) -> None:
        """Raises `Crash` if it was killed while it slept."""
        if not self.alive:
            raise Crash

    def sleep(self, duration_s: float) -> None:
        """Stop the process (SIGSTOP) for a while."""
        self.paused_until_s = self.world.now_s + duration_s
        self.excuse(self.world.now_s, self.paused_until_s)
        self.world.note(f"{self.name} is stopped for {duration_s:.1f}")

    def excuse(self, from_s: float, to_s: float) -> None:
        """Remember a time in which it could not renew its lease."""
        self.excuses.append((from_s, to_s))

    def die(self, why: str) -> None:
        """SIGKILL, or a normal end."""
        if not self.alive:
            return
        self.alive = False
        self.world.note(f"{self.name} ends: {why}")
        for child in self.children:
            child.orphaned()
        if self._program is not None and self._depth == 0:
            self._program.close()
        self.on_end()

    def _wake(self, serial: int) -> None:
        if serial == self._serial and self._wait is not None:
            notices: tuple[Notice, ...] = ()
            if self._wait.notices:
                notices, self._notices = tuple(self._notices), []
            self._step(Woken(self.clock.monotonic_s(), notices))

    def _step(self, woken: Woken | None) -> None:
        self._serial += 1
        self._wait = None
        self.perform(lambda: self._advance(woken))

    def _advance(self, woken: Woken | None) -> None:
        assert self._program is not None
        try:
            self._wait = next(self._program) if woken is None else self._program.send(woken)  # type: ignore[arg-type]
        except StopIteration as end:
            self.result = end.value
            self.die(f"done {getattr(end.value, 'status', '') or getattr(end.value, 'kind', '')}")
            return
        if not self.alive:
            return
        serial, wait = self._serial, self._wait
        delay_s = self.clock.world_s(wait.until_s) - self.world.now_s
        # A little later, or rounding between the two clocks wakes it for ever a moment too early.
        self.world.after(max(delay_s, 0.0) + 1e-6, lambda: self._wake(serial), self)
        ready = any(future.done() for future in wait.futures) or (wait.notices and bool(self._notices))
        if ready or any(child.has_news for child in wait.children):  # type: ignore[attr-defined]
            self.poke()


class SimFuture:
    """The result of background work, known at some later time."""

    def __init__(self) -> None:
        self._done = False
        self._value: Any = None
        self._error: Exception | None = None

    def done(self) -> bool:
        return self._done

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value

    def settle(self, work: Callable[[], Any]) -> None:
        try:
            self._value = work()
        except Exception as error:
            self._error = error
        self._done = True


class SimBackground:
    """Runs work at a later virtual time, as the process that submitted it."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def submit(self, work: Callable[[], Any]) -> Any:
        future, process, world = SimFuture(), self._process, self._process.world

        def do() -> None:
            process.perform(lambda: future.settle(work))
            process.poke()

        latency = world.random("latency")
        delay_s = latency.uniform(0.01, 0.5) if latency.random() < 0.8 else latency.uniform(0.5, 8.0)
        world.after(delay_s, do, process)
        return future
