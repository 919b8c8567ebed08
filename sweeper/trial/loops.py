"""The loops that a script iterates: epochs, and batches or steps within them.

A `for` statement tells a loop that a body has ended by asking for the next item, so that is where the safe point is.
The first batch or step loop of an epoch is its *primary* one: it has a position and save points. All others are *side*
loops, which always yield everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import Any

from sweeper.errors import UserError
from sweeper.trial.sources import Source
from sweeper.trial.training import Training


class _Phase(Enum):
    NEW = auto()
    OPEN = auto()
    DONE = auto()


class Epochs(Iterator[int]):
    """Yields the epoch indices that remain. The end of each body is a safe point, and a save point except the last."""

    def __init__(self, training: Training, count: int, *, save_within: bool) -> None:
        self._training = training
        self._count = count
        self._save_within = save_within
        self._phase = _Phase.NEW
        self._next = 0
        self._in_body = False

    def __len__(self) -> int:
        start = self._next if self._phase is not _Phase.NEW else self._training.first_epoch_if_next()
        return max(0, self._count - start)

    def __iter__(self) -> Epochs:
        return self

    def __next__(self) -> int:
        training = self._training
        training.raise_if_stopped()
        if self._phase is _Phase.NEW:
            self._next = training.epochs_open(self, self._count, save_within=self._save_within)
            self._phase = _Phase.OPEN
        if self._in_body:
            self._in_body = False
            training.epoch_ends(last=self._next >= self._count)
        if self._phase is _Phase.DONE or self._next >= self._count:
            if self._phase is _Phase.OPEN:
                self._phase = _Phase.DONE
                training.epochs_close(self)
            raise StopIteration
        epoch = self._next
        training.epoch_begins(epoch)
        self._next += 1
        self._in_body = True
        return epoch


class Loop(Iterator[Any]):
    """Yields the batches or steps that remain of one loop; has a length where the loader has one."""

    def __init__(self, training: Training, source: Source, *, always_side: bool) -> None:
        self._training = training
        self._phase = _Phase.NEW
        self._entered = False
        self.source = source
        self.always_side = always_side
        self.primary = False
        self.in_body = False
        self.closed = False
        """Whether it was exhausted."""
        self.handed_out = 0
        self.serial = -1
        """Of a side loop: the primary body in which it was opened."""

    def __len__(self) -> int:
        length = self.source.length()
        if length is None:
            raise TypeError(f"the length of this {self.source.kind} loop is unknown")
        done = self.handed_out if self._phase is not _Phase.NEW else self._training.handed_out_if_next(self)
        return max(0, length - done)

    def __iter__(self) -> Loop:
        self._enter()
        return self

    def __next__(self) -> Any:
        training = self._training
        training.raise_if_stopped()
        if self._phase is not _Phase.OPEN:
            self._open()
        if self.in_body:
            self.in_body = False
            training.body_ends(self)
        elif not self.primary and self.serial != training.serial:
            raise UserError(
                f"a run.{self.source.kind}(...) loop is continued in another batch of the main loop than it began in",
                remedy="loops that run side by side cannot be resumed yet; iterate the second loader itself",
            )
        try:
            item = self.source.next()
        except StopIteration:
            self._phase = _Phase.DONE
            training.loop_closes(self)
            raise
        self.handed_out += 1
        if self.primary:
            self.in_body = True
            training.body_begins(self)
        return item

    def _enter(self) -> None:
        if not self._entered:
            self._entered = True
            self.primary = self._training.takes_as_primary(self)
            self.serial = self._training.serial

    def _open(self) -> None:
        if self._phase is _Phase.DONE:
            raise StopIteration
        self._enter()
        self.handed_out = self._training.loop_opens(self)
        self._phase = _Phase.OPEN
