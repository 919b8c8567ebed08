"""A pipe that turns readable when somebody on another thread, or in a signal handler, has something to tell."""

from __future__ import annotations

import contextlib
import os


class WakePipe:
    """Both ends non-blocking: a full pipe already wakes, an empty one has nothing to say."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        """The end to select on."""
        return self._read

    def wake(self) -> None:
        """Make it readable; safe from any thread, and once closed without effect."""
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._write, b"\0")

    def drain(self) -> None:
        """Empty it; call before looking at whatever was announced."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass

    def close(self) -> None:
        """Close both ends."""
        os.close(self._read)
        os.close(self._write)
