"""The control page: 4 KiB of memory shared by a worker and its child, so that looking costs no system call.

One writer per field. The worker raises the *inbox* flag after it has put a message on the socket; the child clears it
before it reads. The child publishes its counters at each safe point; the worker reads them for progress and for hang
detection. Fields are aligned 8-byte little-endian integers, so each read or write is atomic on the machines we run on.
"""

from __future__ import annotations

import mmap
import struct
from typing import Final

PAGE_BYTES: Final = 4096
_INBOX, _STEP, _EPOCH, _SAFE_POINTS, _STATEFUL = 0, 8, 16, 24, 32
_U64 = struct.Struct("<Q")


class ControlPage:
    """A view of the shared page; the same class serves both sides."""

    __slots__ = ("_map",)

    def __init__(self, descriptor: int) -> None:
        self._map = mmap.mmap(descriptor, PAGE_BYTES)

    @property
    def inbox(self) -> bool:
        """Whether the worker has put a message on the socket since the child last looked."""
        return self._map[_INBOX] != 0

    def raise_inbox(self) -> None:
        """Worker: a message is on the socket."""
        self._map[_INBOX] = 1

    def clear_inbox(self) -> None:
        """Child: about to read the socket."""
        self._map[_INBOX] = 0

    def publish(self, *, step: int, epoch: int, safe_points: int) -> None:
        """Child: where training stands (about half a microsecond)."""
        _U64.pack_into(self._map, _STEP, step)
        _U64.pack_into(self._map, _EPOCH, epoch)
        _U64.pack_into(self._map, _SAFE_POINTS, safe_points)

    def mark_stateful(self) -> None:
        """Child: `sweeper.resume` was called, so saves are possible."""
        _U64.pack_into(self._map, _STATEFUL, 1)

    @property
    def stateful(self) -> bool:
        """Whether saves are possible at all."""
        return bool(self._read(_STATEFUL))

    @property
    def step(self) -> int:
        """The child's training step at its last safe point."""
        return self._read(_STEP)

    @property
    def epoch(self) -> int:
        """The child's epoch at its last safe point."""
        return self._read(_EPOCH)

    @property
    def safe_points(self) -> int:
        """How many safe points the child has passed; a value that stands still is a hang."""
        return self._read(_SAFE_POINTS)

    def close(self) -> None:
        """Unmap the page."""
        self._map.close()

    def _read(self, offset: int) -> int:
        value: int = _U64.unpack_from(self._map, offset)[0]
        return value
