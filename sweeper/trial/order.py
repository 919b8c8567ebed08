"""The order of batches: one index sampler that is started once, counts what it gives, and can skip ahead.

An `Order` stands in a loader's view where the user's (batch) sampler was. It draws index batches without reading any
data, so skipping is cheap, and keeps a running digest of the batches that were handed out: a resumed run must come to
the same digest before it goes on.
"""

from __future__ import annotations

import array
import hashlib
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from sweeper.errors import StateMismatch
from sweeper.trial import rng
from sweeper.trial.rng import Snapshot, generator_state, numpy_random
from sweeper.trial.tensors import torch_if_loaded

_MASK: Final = (1 << 64) - 1


def mixed_seed(seed: int, number: int) -> int:
    """Give 63 well-mixed bits for one batch (SplitMix64: Steele, Lea, Flood 2014, "Fast splittable PRNGs", fig. 14)."""
    mixed = (seed + (number + 1) * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return (mixed ^ (mixed >> 31)) >> 1


class SeededIndex:
    """An index batch on its way to a loader worker, with what its random numbers are to be seeded from."""

    __slots__ = ("index", "number", "seed")

    def __init__(self, index: Any, seed: int, number: int) -> None:
        self.index = index
        self.seed = seed
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return SeededIndex, (self.index, self.seed, self.number)


class PrivateStream:
    """Random state of a loop's own, so that a sampler which draws as it goes does not depend on when it is asked.

    With workers a loader asks its sampler ahead of time, and by how much depends on the worker count.
    """

    def __init__(self, seed: int) -> None:
        numpy, torch = numpy_random(), torch_if_loaded()
        self._state = Snapshot(
            python=generator_state(random.Random(seed)),
            numpy=None if numpy is None else numpy.RandomState([seed & 0xFFFFFFFF, seed >> 32]).get_state(legacy=False),
            torch=None if torch is None else torch.Generator().manual_seed(seed).get_state(),
        )

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function that draws from this stream instead of the process's random state."""
        outside = rng.take(cuda=False)
        rng.put_back(self._state)
        try:
            return function(*arguments)
        finally:
            self._state = rng.take(cuda=False)
            rng.put_back(outside)


class Order:
    """Index batches of one loop after another; the same object for all loops over one view."""

    def __init__(self) -> None:
        self._sampler: Any = ()
        self._source: Iterator[Any] = iter(())
        self._stream: PrivateStream | None = None
        self._seed: int | None = None
        self._pulled = 0
        self._ahead: deque[Any] = deque()
        self._waiting: deque[Any] = deque()
        self._digest = hashlib.blake2b(digest_size=16)
        self.last_batch = b""

    def begin(self, sampler: Any, *, stream: PrivateStream | None, seed: int | None) -> None:
        """Start a loop: `iter(sampler)` is called here, once. `seed` set: batches go to workers, seeded from it."""
        self._sampler = sampler
        self._stream = stream
        self._seed = seed
        self._pulled = 0
        self._ahead.clear()
        self._waiting.clear()
        self._digest = hashlib.blake2b(digest_size=16)
        self._source = iter(sampler) if stream is None else stream.call(iter, sampler)

    def skip(self, count: int) -> None:
        """Draw and drop that many batches.

        Raises:
            StateMismatch: there are not so many.
        """
        for done in range(count):
            try:
                batch = self._pull()
            except StopIteration:
                raise StateMismatch(f"the loader has only {done} batches; {count} were handed out before") from None
            self._waiting.append(batch)
            self.handed_out()

    def handed_out(self) -> None:
        """The loader has handed out the batch that was drawn first of those that are under way."""
        if self._waiting:
            self.last_batch = index_bytes(self._waiting.popleft())
            self._digest.update(self.last_batch)

    def has_more(self) -> bool:
        """Whether a batch is under way, or the sampler has another one. Draws it, if it must, a little early."""
        if self._waiting or self._ahead:
            return True
        try:
            self._ahead.append(self._draw())
        except StopIteration:
            return False
        return True

    @property
    def looked_ahead(self) -> bool:
        """Whether `has_more` has drawn a batch that nobody has asked for yet."""
        return bool(self._ahead)

    def next_digest(self) -> str | None:
        """Digest of the batch that will be handed out next, in hex; None if it has not been drawn."""
        drawn = self._waiting or self._ahead
        return hashlib.blake2b(index_bytes(drawn[0]), digest_size=16).hexdigest() if drawn else None

    def digest(self) -> str:
        """Digest of everything handed out in this loop, in hex."""
        return self._digest.hexdigest()

    def __iter__(self) -> Order:
        return self  # torch asks twice; the sampler is started by `begin`

    def __next__(self) -> Any:
        batch = self._pull()
        self._waiting.append(batch)
        return batch if self._seed is None else SeededIndex(batch, self._seed, self._pulled - 1)

    def __len__(self) -> int:
        return len(self._sampler)

    def _pull(self) -> Any:
        batch = self._ahead.popleft() if self._ahead else self._draw()
        self._pulled += 1
        return batch

    def _draw(self) -> Any:
        return next(self._source) if self._stream is None else self._stream.call(next, self._source)


def index_bytes(index: Any) -> bytes:
    """Give bytes that tell index batches apart, the same in every process."""
    if type(index) is list:
        try:
            return array.array("q", index).tobytes()
        except (TypeError, OverflowError):
            pass
    return repr(_plain(index)).encode()


def _plain(index: Any) -> Any:
    if isinstance(index, (str, bytes, int, float, type(None))):
        return index
    if isinstance(index, (list, tuple)):
        return [_plain(item) for item in index]
    if callable(getattr(index, "tolist", None)):
        return index.tolist()
    return type(index).__qualname__  # its text could hold an address
