"""What a loop draws its items from, without a `DataLoader`: numbers, or any iterable that can be started again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sweeper.errors import StateMismatch, UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a resumed loop has to get to."""

    progress: Mapping[str, Any]
    """What `Source.progress` gave there."""
    arrived: Callable[[], None]
    """Puts everything back; to be called once, when the next item is the first resumed one and nothing but reading it
    is left to do."""


class Source(ABC):
    """Items of one loop. Used in this order: `put_back` (resuming), `begin`, then `next` until it is exhausted."""

    kind = "batches"
    """What the user called: `batches` or `steps`."""
    inexact: tuple[str, ...] = ()
    """Why a resume of this loop cannot be promised to be bit-exact; usually nothing."""
    carries_state = False
    """Whether something under the loader (a generator, a sampler) goes on from loop to loop."""
    generators: Mapping[str, Any] = {}
    """Random generators to be captured and put back with this loop."""

    @abstractmethod
    def length(self) -> int | None:
        """Items in a full loop; None if unknown."""

    @abstractmethod
    def begin(self, *, skip: int, place: Place | None) -> None:
        """Start, and pass over `skip` items; a resumed loop compares with its `place` and says when it has arrived.

        Raises:
            StateMismatch: the items cannot be the same ones.
        """

    @abstractmethod
    def next(self) -> Any:
        """Give the next item; raises StopIteration at the end."""

    def has_more(self, handed_out: int) -> bool:
        """Whether another item follows the `handed_out` ones."""
        length = self.length()
        return length is None or handed_out < length

    def start_state(self) -> dict[str, Any]:
        """What else has to be put back at the loop's start."""
        return {}

    def put_back(self, state: Mapping[str, Any]) -> None:
        """Put back what `start_state` gave."""
        return

    def progress(self) -> dict[str, Any]:
        """What `begin` will compare with."""
        return {}

    def obstacle(self, handed_out: int) -> str | None:
        """Why the position in this loop cannot be saved; None when it can."""
        return None

    def last_item(self) -> bytes:
        """Bytes that tell the item handed out last from others, where known."""
        return b""


class StepSource(Source):
    """Step indices, for loops without a loader."""

    kind = "steps"

    def __init__(self, count: int) -> None:
        self._count = count
        self._next = 0

    def length(self) -> int | None:
        """The number of steps."""
        return self._count

    def begin(self, *, skip: int, place: Place | None) -> None:
        """Start at step `skip`."""
        if skip and skip >= self._count:
            raise StateMismatch(f"run.steps({self._count}): {skip} steps were done before")
        self._next = skip
        if place is not None:
            place.arrived()

    def next(self) -> int:
        """The next index."""
        if self._next >= self._count:
            raise StopIteration
        self._next += 1
        return self._next - 1


class IterableSource(Source):
    """Any iterable that starts again at each `iter`: a resumed loop reads and drops what was handed out."""

    def __init__(self, iterable: Any) -> None:
        if isinstance(iterable, Iterator):
            raise UserError(
                f"run.batches(...) was given a {type(iterable).__qualname__}, which can be read only once",
                remedy="give it the loader itself, so that a resumed run can start it again",
            )
        self._iterable = iterable
        self._items: Iterator[Any] = iter(())
        self._ahead: list[Any] = []

    def length(self) -> int | None:
        """The iterable's own, if it has one."""
        return length_of(self._iterable)

    def begin(self, *, skip: int, place: Place | None) -> None:
        """Start the iterable again; read and drop."""
        self._items = iter(self._iterable)
        for done in range(skip):
            try:
                next(self._items)
            except StopIteration:
                raise StateMismatch(f"the loader has only {done} batches; {skip} were handed out before") from None
        if place is not None:
            if place.progress["ahead"]:
                self.has_more(skip)
            place.arrived()

    def next(self) -> Any:
        """The next item."""
        return self._ahead.pop() if self._ahead else next(self._items)

    def has_more(self, handed_out: int) -> bool:
        """By its length, else by reading one item ahead."""
        if self.length() is not None or self._ahead:
            return super().has_more(handed_out)
        try:
            self._ahead.append(next(self._items))
        except StopIteration:
            return False
        return True

    def progress(self) -> dict[str, Any]:
        """Whether an item has been read ahead."""
        return {"ahead": bool(self._ahead)}


class PlainSource(Source):
    """The loader as it is: outside a sweep, helpers only loop."""

    def __init__(self, iterable: Any, kind: str) -> None:
        self.kind = kind
        self._iterable = iterable
        self._items: Iterator[Any] = iter(())

    def length(self) -> int | None:
        """The loader's own, if it has one."""
        return length_of(self._iterable)

    def begin(self, *, skip: int, place: Place | None) -> None:
        """Iterate it."""
        self._items = iter(self._iterable)

    def next(self) -> Any:
        """Its next item."""
        return next(self._items)


def length_of(sized: Any) -> int | None:
    """Give `len`, or None for what has none (a dataset may refuse to count itself)."""
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None
