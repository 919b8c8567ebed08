"""Programs: generators that yield only waits. Everything else they do is a plain call in line.

A worker or a coordinator is a `Program`. It yields a `Wait`, which says what may wake it, and is sent back a `Woken`,
which says what did. Two drivers run programs: `sweeper.worker.driver` on real sockets, threads and clocks, and the
simulator's on one heap of virtual time. A program never yields with a ledger statement half done.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from sweeper.model.messages import ToChild, ToWorker

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitStatus:
    """How a child process ended: its exit code, or the signal that killed it."""

    code: int | None
    signal: int | None = None


class Waitable(Protocol):
    """Something with descriptors that a driver can wait on."""

    def filenos(self) -> tuple[int, ...]:
        """Descriptors that turn readable when there may be news; empty in the simulator."""
        ...


class Child(Protocol):
    """A running child as its worker sees it. All calls return at once."""

    @property
    def pid(self) -> int:
        """For logs only; liveness is never judged by pid."""
        ...

    @property
    def step(self) -> int:
        """Training step at the last safe point, from the control page."""
        ...

    @property
    def safe_points(self) -> int:
        """Safe points passed so far."""
        ...

    @property
    def stateful(self) -> bool:
        """Whether the child can save."""
        ...

    @property
    def exited(self) -> ExitStatus | None:
        """None while the process lives (or while messages that it sent are still unread)."""
        ...

    @property
    def look_again_s(self) -> float:
        """When to look at it though it has said nothing, on the monotonic clock; infinity once user code began."""
        ...

    def filenos(self) -> tuple[int, ...]:
        """Descriptors that turn readable when there may be a message or an exit; empty in the simulator."""
        ...

    def receive(self) -> list[ToWorker]:
        """Messages that have arrived since the last call, in order."""
        ...

    def send(self, message: ToChild) -> None:
        """Put a message on the child's socket; a child that is gone is not an error here."""
        ...

    def staged(self) -> memoryview:
        """The staging file's bytes; valid after the child's death until `close`."""
        ...

    def output_tail(self) -> str:
        """The last lines the child printed."""
        ...

    def kill(self) -> None:
        """End the child's whole process group with SIGKILL."""
        ...

    def close(self) -> None:
        """Release the memory shared with a child that has exited."""
        ...


class Future(Protocol[T_co]):
    """The result of work handed to `Background.submit`."""

    def done(self) -> bool:
        """Whether `result` will answer at once."""
        ...

    def result(self) -> T_co:
        """The value, or the error that the work raised. Only call when done."""
        ...


class Background(Protocol):
    """Where slow store calls run, so that a program goes on serving its child and its lease meanwhile."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Start the work on another thread (or at a later virtual time)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A warning that this process will be taken. `deadline_s` is on the monotonic clock; None when unknown."""

    source: str
    reason: str
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Sleep until the earliest of: `until_s` on the monotonic clock, a child event, a finished future, a notice."""

    until_s: float
    children: tuple[Waitable, ...] = ()
    futures: tuple[Future[Any], ...] = ()
    notices: bool = True


@dataclass(frozen=True, slots=True)
class Woken:
    """What is known at wake-up. Programs look at children and futures themselves; notices come here, once each."""

    now_s: float
    notices: tuple[Notice, ...] = field(default=())


Program = Generator[Wait, Woken, T]


class Driver(Protocol):
    """Runs one program to its end."""

    def run(self, program: Program[T]) -> T:
        """Drive it; raise what it raises."""
        ...
