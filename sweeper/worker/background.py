"""Threads for slow store calls, niced so that an upload disturbs training as little as possible."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sweeper.model.waits import Future

T = TypeVar("T")
NICENESS = 10


class ThreadBackground:
    """A small thread pool whose finished work wakes the driver."""

    def __init__(self, wake: Callable[[], None], *, threads: int = 2) -> None:
        self._wake = wake
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="sweeper-store", initializer=_be_nice)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Start the work on a thread; the driver wakes when it is done."""
        future: ThreadFuture[T] = self._pool.submit(work)
        future.add_done_callback(lambda _: self._wake())
        return future

    def close(self) -> None:
        """Forget what has not begun; what is under way ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _be_nice() -> None:
    # On Linux a priority belongs to a thread; elsewhere this would slow the whole worker, so it is left alone.
    if hasattr(os, "sched_getaffinity"):
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
