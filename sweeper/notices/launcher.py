"""Notice of a launcher that swallowed a signal: a shell script or package runner that died and left us (PR-04).

A signal to the outer process alone never reaches us: a shell dies of it at once and its command goes on, until the
whole machine or container is taken. That our parent ended is then the only warning there is.
"""

from __future__ import annotations

import os
import signal
from typing import Final

from sweeper.model.waits import Notice

_BACKGROUND: Final = (signal.SIGINT, signal.SIGHUP)
"""Ignored by what `nohup` starts, and by what a script starts in the background: meant to outlive its parent."""


class LauncherGone:
    """Tells once that the process which started this one has ended."""

    def __init__(self, parent_pid: int, descriptor: int) -> None:
        """Take over a pidfd of the parent."""
        self._parent_pid = parent_pid
        self._fd = descriptor
        self._told = False

    @classmethod
    def watch(cls) -> LauncherGone | None:
        """Watch the parent if it merely wraps this command, else give None. Call before handlers are installed.

        A wrapper shares our process group. An interactive shell gives each command a group of its own, and what is
        meant to outlive its parent ignores SIGINT or SIGHUP, leads a session, or has been left to process 1.
        """
        parent_pid = os.getppid()
        ignoring = any(signal.getsignal(number) is signal.SIG_IGN for number in _BACKGROUND)
        if parent_pid <= 1 or ignoring or not hasattr(os, "pidfd_open"):
            return None
        try:
            if os.getpgid(parent_pid) != os.getpgid(0):
                return None
            descriptor = os.pidfd_open(parent_pid)
        except OSError:
            return None
        return cls(parent_pid, descriptor)

    @property
    def spent(self) -> bool:
        """Once it has been told: a pidfd stays readable."""
        return self._told

    def fileno(self) -> int:
        """Readable when the parent has ended."""
        return self._fd

    def poll(self, now_s: float) -> list[Notice]:
        """A notice when the parent is no longer ours."""
        if self._told or os.getppid() == self._parent_pid:
            return []
        self._told = True
        return [Notice(source="launcher", reason="the process that started this one is gone")]

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._fd)
