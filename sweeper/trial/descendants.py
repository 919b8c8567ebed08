"""What a trial's child process owes to the processes that user code starts in it, DataLoader workers above all.

They must outlive the signals that a scheduler sends to every process it finds (the main process still needs them to
reach its safe point), and must not outlive the child itself (they hold its GPU memory and its life lock).
"""

from __future__ import annotations

import multiprocessing.popen_fork
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from sweeper.trial.kernel import die_with_parent
from sweeper.trial.session import uninstall

SHIELDED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that only the worker acts upon; it then tells the child what to do."""


def shield_from_signals() -> None:
    """Let this process and its forks survive the signals that people and schedulers send. Main thread only.

    A handler that does nothing, not `SIG_IGN`: programs started by user code get the default action back, so that they
    can be terminated as usual. Interrupted system calls of C code are restarted.
    """
    for number in SHIELDED:
        signal.signal(number, _do_nothing)
        signal.siginterrupt(number, False)
    multiprocessing.popen_fork.Popen.terminate = _terminate  # type: ignore[assignment] # SIGTERM is ignored


def tie_forks_to_this_process() -> None:
    """From now on, forks of this process die with it and keep the shield. Call once, in a trial's child."""
    _ForkHooks().register()


class _ForkHooks:
    def __init__(self) -> None:
        self._parent_pid: int | None = None

    def register(self) -> None:
        os.register_at_fork(before=self._before, after_in_child=self._after)

    def _before(self) -> None:
        # The death signal follows the forking *thread*: a helper thread may end long before the process does.
        main = threading.current_thread() is threading.main_thread()
        self._parent_pid = os.getpid() if main else None

    def _after(self) -> None:
        if self._parent_pid is not None:
            die_with_parent(self._parent_pid)
        uninstall()  # only one process may speak to the worker
        _keep_loader_workers_shielded()


def _keep_loader_workers_shielded() -> None:
    """torch gives its loader workers a SIGTERM handler of their own that exits; put ours back after it."""
    handling = sys.modules.get("torch.utils.data._utils.signal_handling")
    install: Callable[[], None] | None = getattr(handling, "_set_worker_signal_handlers", None)
    if handling is None or install is None:
        return

    def install_shielded() -> None:
        install()
        signal.signal(signal.SIGTERM, _do_nothing)

    handling._set_worker_signal_handlers = install_shielded  # type: ignore[attr-defined]


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Only a handler that exists keeps the default action away."""


def _terminate(process: Any) -> None:  # Any: `multiprocessing.popen_fork.Popen`, whose methods typeshed leaves out
    """`Process.terminate` for forks, which share our shield: SIGKILL, or `with Pool(…)` would wait for ever."""
    process._send_signal(signal.SIGKILL if process.method == "fork" else signal.SIGTERM)
