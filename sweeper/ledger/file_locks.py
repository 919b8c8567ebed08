"""Advisory locks on files (`flock`): they end with the last process that holds them, however it died.

A lock belongs to the open file description: a forked child shares its parent's, an exec'd program does not get it
(every descriptor here is close-on-exec unless handed on explicitly).
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def open_lock(path: Path) -> int:
    """Open (and create, mode 0600) a lock file; returns a close-on-exec descriptor that holds no lock yet."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_lock(descriptor: int, *, shared: bool) -> bool:
    """Take the lock if nobody stands in the way right now; never waits."""
    mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(path: Path, *, by_anyone: bool = False) -> bool:
    """Whether another open file holds the exclusive lock of `path`; with `by_anyone` a shared one counts too.

    The look itself holds a lock for an instant (shared, so that two who look do not see each other).
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(descriptor, shared=not by_anyone)
    finally:
        os.close(descriptor)
