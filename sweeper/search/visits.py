"""Which configs were proposed already, and which one comes next where a sampler only repeats itself."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Final

from sweeper.search.axes import Axis, Code

REPEATS_BEFORE_ENUMERATION: Final = 2
"""A finite space: after this many repeats in a row the next config that is new is taken in product order."""
REPEATS_AT_MOST: Final = 50
"""In a row: then a space counts as used up that nobody can enumerate."""

Codes = tuple[Code, ...]


class Visits:
    """Keeps count of proposed configs; depends on rows alone, so restarts change nothing (SAME).

    Product order: the first dimension is the slowest, as in Hydra's own sweeps.
    """

    def __init__(self, axes: tuple[Axis, ...], *, grid: bool, open_space: bool) -> None:
        self._axes = axes
        self._grid = grid
        self._size = _size(axes, open_space=open_space)
        self._seen: set[Hashable] = set()
        self._repeats = 0
        self._next = 0
        """Position in product order before which everything was proposed."""

    def visit(self, codes: Hashable, *, repeated: bool, chosen: bool) -> None:
        """Take in a number's config.

        Args:
            codes: what the config is known by; None when it is of no interest any more (it no longer fits the space).
            repeated: whether the ledger knew the config before.
            chosen: whether the sampler chose it; enqueued points neither count as repeats nor end a row of them.
        """
        again = repeated or codes in self._seen
        if chosen:
            self._repeats = self._repeats + 1 if again else 0
        if codes is not None:
            self._seen.add(codes)

    def instead(self) -> Codes | None:
        """Give the config to propose without asking a sampler: in a grid always, else after too many repeats."""
        return self._next_new() if self._grid or self._repeats >= REPEATS_BEFORE_ENUMERATION else None

    def completing(self, fixed: Mapping[str, Code]) -> Codes:
        """Give the first new config of a grid that has these values; the first one at all where none is new."""
        first, rest = _first_and_all(self._matching(fixed))
        return next((codes for codes in rest if codes not in self._seen), first)

    def used_up(self) -> bool:
        """Whether there is nothing new to propose, or nothing new to be expected."""
        if self._size is not None and self._next_new() is None:
            return True
        return not self._grid and self._repeats >= REPEATS_AT_MOST

    def _next_new(self) -> Codes | None:
        while self._size is not None and self._next < self._size:
            codes = self._at(self._next)
            if codes not in self._seen:
                return codes
            self._next += 1
        return None

    def _at(self, position: int) -> Codes:
        codes: list[Code] = []
        for axis in reversed(self._axes):
            position, at = divmod(position, axis.size or 1)
            codes.append(axis.code_at(at))
        return tuple(reversed(codes))

    def _matching(self, fixed: Mapping[str, Code]) -> Iterator[Codes]:
        values = [
            [fixed[axis.name]] if axis.name in fixed else (axis.code_at(at) for at in range(axis.size or 1))
            for axis in self._axes
        ]
        return itertools.product(*values)


def _size(axes: tuple[Axis, ...], *, open_space: bool) -> int | None:
    sizes = [axis.size for axis in axes if axis.size is not None]
    return None if open_space or len(sizes) < len(axes) else math.prod(sizes)


def _first_and_all(found: Iterator[Codes]) -> tuple[Codes, Iterator[Codes]]:
    first = next(found)
    return first, itertools.chain([first], found)
