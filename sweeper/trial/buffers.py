"""Where each block of bytes of a save goes: blocks are placed once, aligned, and copied later."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sweeper.model.staging import TensorEntry

ALIGNMENT: Final = 64
"""Bytes; what torch's own allocator gives, so that no kernel sees another alignment after a resume."""

CopyBytes = Callable[[mmap.mmap, int], None]
"""Copies a block's live bytes into a buffer at an offset."""


@dataclass(slots=True)
class BufferPlan:
    """The blocks of one save, in order of first appearance."""

    entries: list[TensorEntry] = field(default_factory=list)
    _copies: list[CopyBytes] = field(default_factory=list)
    size_bytes: int = 0

    def add(
        self, size_bytes: int, copy: CopyBytes, *, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> int:
        """Place one more block; give its index."""
        offset = -(-self.size_bytes // ALIGNMENT) * ALIGNMENT
        entry = TensorEntry(dtype=dtype, shape=shape, strides=strides, offset=offset, size_bytes=size_bytes)
        self.entries.append(entry)
        self._copies.append(copy)
        self.size_bytes = offset + size_bytes
        return len(self.entries) - 1

    def add_raw(self, size_bytes: int, copy: CopyBytes) -> int:
        """Place a block of plain bytes; give its index."""
        return self.add(size_bytes, copy, dtype="uint8", shape=(size_bytes,), strides=(1,))

    def copy_into(self, buffer: mmap.mmap) -> None:
        """Copy every block to its place."""
        for entry, copy in zip(self.entries, self._copies, strict=True):
            copy(buffer, entry.offset)
