"""The staging file, seen from the child: one copy of every tensor's bytes, the layout's JSON behind them.

The file is memory shared with the worker (a memfd, or an unlinked file), so sealed bytes survive the child's death. It
only ever grows: the worker may still have it mapped. The mapping is kept between saves.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from typing import Final

from sweeper.errors import CheckpointCorrupt
from sweeper.model.messages import Restore
from sweeper.model.staging import Layout
from sweeper.trial.values import Decoder, encode

_GROWTH: Final = 1 << 20
"""The file grows in steps of 1 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutPlace:
    """Where a sealed save's layout lies, in bytes from the start of the file."""

    offset: int
    size_bytes: int


class StagingFile:
    """Writes saves into the file behind a descriptor, one at a time."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._map: mmap.mmap | None = None

    def write(self, value: object) -> LayoutPlace:
        """Copy a value into the file. When this returns, later changes to live objects no longer matter.

        Raises:
            UnsavableValue: a value has no exact, pickle-free form; nothing was written.
            OSError: no memory for the file.
        """
        encoded = encode(value)
        data = encoded.layout.to_bytes()
        offset = encoded.layout.buffer_bytes
        mapped = self._mapped(offset + len(data))
        encoded.copy_into(mapped)
        mapped[offset : offset + len(data)] = data
        return LayoutPlace(offset=offset, size_bytes=len(data))

    def _mapped(self, size_bytes: int) -> mmap.mmap:
        if self._map is not None and len(self._map) >= size_bytes:
            return self._map
        size_bytes = -(-size_bytes // _GROWTH) * _GROWTH
        size_bytes = max(size_bytes, os.fstat(self._descriptor).st_size)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._descriptor, 0, size_bytes)  # full memory is an error here, not SIGBUS later
        else:
            os.ftruncate(self._descriptor, size_bytes)
        self._map = mmap.mmap(self._descriptor, size_bytes)
        return self._map


class Restored:
    """A verified checkpoint in the restore file. Every `decoder` gives its own private, writable copies."""

    def __init__(self, descriptor: int, restore: Restore, *, size_bytes: int) -> None:
        end = restore.layout_offset + restore.layout_bytes
        if not 0 <= restore.layout_offset <= end <= size_bytes:
            raise CheckpointCorrupt(f"the layout ends at {end}, the restore file at {size_bytes}")
        self.step = restore.step
        # Copy-on-write: torch refuses to look at memory that it could not write.
        self._map = mmap.mmap(descriptor, size_bytes, access=mmap.ACCESS_COPY)
        try:
            self.layout = Layout.from_bytes(self._map[restore.layout_offset : end])
        except ValueError as error:
            raise CheckpointCorrupt(str(error)) from error
        if self.layout.buffer_bytes > restore.layout_offset:
            raise CheckpointCorrupt("tensor bytes reach into the layout")

    def decoder(self) -> Decoder:
        """Give a decoder over the bytes; ties between tensors hold within one decoder."""
        return Decoder(self.layout, self._map)
