"""The production driver: real sockets, threads and clocks. The only place in a worker or coordinator that waits."""

from __future__ import annotations

import selectors
from collections.abc import Sequence
from typing import Protocol, TypeVar

from sweeper.clock import Clock
from sweeper.model.waits import Notice, Program, Wait, Woken
from sweeper.worker.wakeup import WakePipe

T = TypeVar("T")

LONGEST_S = 60.0
"""No wait is longer, so that a clock that jumped, or a wake-up that was lost, costs a minute at most."""


class NoticeSource(Protocol):
    """Where notices come from."""

    def fileno(self) -> int:
        """A descriptor that turns readable when there may be a notice."""
        ...

    def poll(self, now_s: float) -> list[Notice]:
        """Notices since the last call; empties the descriptor if it can be emptied."""
        ...

    @property
    def spent(self) -> bool:
        """Whether it will never tell anything again, so that its descriptor must not be waited on."""
        ...


class SelectorDriver:
    """Runs one program at a time on the calling thread."""

    def __init__(self, clock: Clock, notices: Sequence[NoticeSource] = ()) -> None:
        self._clock = clock
        self._notices = tuple(notices)
        self._pipe = WakePipe()
        self._waiting: list[Notice] = []

    def wake(self) -> None:
        """Let the program look at its futures; called by the background's threads."""
        self._pipe.wake()

    def run(self, program: Program[T]) -> T:
        """Drive the program to its end and give its value; raises what it raises."""
        try:
            wait = next(program)
            while True:
                wait = program.send(self._sleep(wait))
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            program.close()

    def close(self) -> None:
        """Give the descriptors back."""
        self._pipe.close()

    def _sleep(self, wait: Wait) -> Woken:
        self._collect()
        if not (self._waiting and wait.notices) and not any(future.done() for future in wait.futures):
            self._select(wait)
            self._collect()
        notices: tuple[Notice, ...] = ()
        if wait.notices:
            notices, self._waiting = tuple(self._waiting), []
        return Woken(self._clock.monotonic_s(), notices)

    def _select(self, wait: Wait) -> None:
        timeout_s = min(wait.until_s - self._clock.monotonic_s(), LONGEST_S)
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe.fileno(), selectors.EVENT_READ)
            for source in self._notices:
                if not source.spent:
                    selector.register(source.fileno(), selectors.EVENT_READ)
            for child in wait.children:
                for descriptor in child.filenos():
                    selector.register(descriptor, selectors.EVENT_READ)
            selector.select(max(timeout_s, 0.0))

    def _collect(self) -> None:
        self._pipe.drain()
        now_s = self._clock.monotonic_s()
        for source in self._notices:
            if not source.spent:
                self._waiting.extend(source.poll(now_s))
