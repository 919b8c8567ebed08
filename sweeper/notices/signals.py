"""Notices from the process itself: signals, and a parent that asks or is gone.

A handler sets a flag and writes one byte to a pipe, nothing else: it may interrupt any instruction, also one that holds
a lock. It runs between two instructions of the main thread only, so not for a signal that came just as a wait began, or
that another thread took, until that wait is over; therefore Python's own C handler writes a byte to the pipe as well.
Handlers that were there before are called after it. SIGCONT cancels nothing (Slurm sends it with SIGTERM).
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Final

from sweeper.model.waits import Notice

DEFAULT_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

_Handler = Callable[[int, FrameType | None], object] | int | None


class SignalNotices:
    """Turns signals into notices, from its making until `close`."""

    def __init__(self, signals: Iterable[signal.Signals] = DEFAULT_SIGNALS) -> None:
        """Install the handlers.

        Raises:
            RuntimeError: not on the main thread, where alone Python runs handlers.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("signal notices can only be installed on the main thread")
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._caught: list[int] = []
        self._earlier: dict[signal.Signals, _Handler] = {}
        self._earlier_wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in signals:
            self._earlier[number] = signal.signal(number, self._handle)

    @property
    def spent(self) -> bool:
        """Never: a signal can always come again."""
        return False

    def fileno(self) -> int:
        """Readable when a signal has come."""
        return self._read

    def poll(self, now_s: float) -> list[Notice]:
        """One notice for each signal since the last call. A signal carries no deadline."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass
        caught, self._caught = self._caught, []
        return [Notice(source="signal", reason=signal.Signals(number).name) for number in caught]

    def close(self) -> None:
        """Put the earlier handlers back."""
        signal.set_wakeup_fd(self._earlier_wakeup)
        for number, handler in self._earlier.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._earlier.clear()
        os.close(self._read)
        os.close(self._write)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._caught.append(number)
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"\0")
        earlier = self._earlier.get(signal.Signals(number))
        # Python's own SIGINT handler raises KeyboardInterrupt at a random instruction: the opposite of a notice.
        if callable(earlier) and earlier is not signal.default_int_handler:
            earlier(number, frame)


class ParentGone:
    """Notices from the process that started this one, through a pipe whose other end only it holds.

    A byte on it means "leave"; its end means that the parent is gone, which the kernel tells whatever it died of. The
    two have different sources: that a parent goes after it has asked is no second, more urgent request.
    """

    def __init__(self, descriptor: int) -> None:
        self._fd = descriptor
        os.set_blocking(descriptor, False)
        self._gone = False

    @property
    def spent(self) -> bool:
        """Once the parent is gone: the end of a pipe stays readable for ever."""
        return self._gone

    def fileno(self) -> int:
        """Readable when there is something to tell."""
        return self._fd

    def poll(self, now_s: float) -> list[Notice]:
        """A notice when the parent asks this process to leave, or is gone."""
        try:
            data = os.read(self._fd, 4096)
        except BlockingIOError:
            return []
        self._gone = not data
        if self._gone:
            return [Notice(source="parent", reason="the process that started this worker is gone")]
        return [Notice(source="command", reason="asked to leave")] * len(data)
