"""Threads for slow store calls, niced so that an upload disturbs training as little as possible."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from typing import TypeVar

from sweeper.model.waits import Future

T = TypeVar("T")
NICENESS = 10


class ThreadBackground:
    """A daemon thread per piece of work, of which a program has one or two at a time.

    Daemon, and no pool: a pool's threads are joined when the interpreter ends, so a store call that hangs would hold a
    worker past the deadline at which its machine is taken.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Start the work on a thread; the driver wakes when it is done."""
        future: ThreadFuture[T] = ThreadFuture()

        def do() -> None:
            _be_nice()
            try:
                value = work()
            except BaseException as error:  # raised again by `result`, on the thread of the program
                future.set_exception(error)
            else:
                future.set_result(value)
            self._wake()

        threading.Thread(target=do, name="sweeper-store", daemon=True).start()
        return future


def _be_nice() -> None:
    # On Linux a priority belongs to a thread; elsewhere this would slow the whole worker, so it is left alone.
    if hasattr(os, "sched_getaffinity"):
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
