"""What Python does not offer of the operating system: death signals, orphans, thread counts, the C library's state.

Everything here has a sensible answer on systems that lack the feature; only Linux has them all.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sweeper.model.waits import ExitStatus

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
LINUX: Final = sys.platform == "linux"


def signal_on_parent_death(number: int) -> bool:
    """Ask for a signal when the *thread* that forked this process ends (`prctl(2)`, PR_SET_PDEATHSIG); Linux only.

    Forgotten at the next fork. The parent may be gone already: compare `os.getppid()` afterwards.
    """
    return _prctl(_PR_SET_PDEATHSIG, number)


def die_with_parent(parent_pid: int) -> None:
    """Be killed when `parent_pid` dies; leave at once if it has died already."""
    signal_on_parent_death(signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)


def adopt_orphans() -> bool:
    """Become the parent of descendants whose own parent dies, so that they can be waited for; Linux only."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def thread_count() -> int:
    """Operating-system threads of this process, those of native libraries included (Linux; else Python's)."""
    try:
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208 no Path objects on this hot path
    except OSError:
        return threading.active_count()


def open_pidfd(pid: int) -> int | None:
    """A descriptor for exactly this process, immune to reuse of its number; None where there is no such thing.

    Safe only while the process cannot have been reaped: call in its parent.
    """
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def is_readable(descriptor: int, within_s: float = 0.0) -> bool:
    """Whether a read would not block, an end or a death included; waits up to `within_s` seconds."""
    watch = select.poll()
    watch.register(descriptor, select.POLLIN)
    return bool(watch.poll(within_s * 1000))


def wait_or_kill(pid: int, limit_s: float) -> None:
    """Wait for a child process of this one to end; kill it when it takes longer than `limit_s` seconds."""
    pidfd = open_pidfd(pid)
    if pidfd is not None:
        if not is_readable(pidfd, limit_s):
            os.kill(pid, signal.SIGKILL)
        os.close(pidfd)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def reap_next(before: Callable[[int], None]) -> tuple[int, ExitStatus] | None:
    """Take leave of one child process that has ended; None if none has.

    `before(pid)` is called while the number, and that of the group it leads, cannot have passed to anyone else (where
    the system lacks `waitid`, just afterwards).
    """
    try:
        if hasattr(os, "waitid"):
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return None
            before(ended.si_pid)
            pid, status = os.waitpid(ended.si_pid, 0)
        else:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return None
            before(pid)
    except ChildProcessError:
        return None
    return pid, exit_status(os.waitstatus_to_exitcode(status))


def has_ended(pid: int) -> bool:
    """Whether a child process of ours has ended, without reaping it if the system can tell so."""
    if not hasattr(os, "waitid"):
        return True
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def exit_status(code: int) -> ExitStatus:
    """Turn Python's way of telling (negative for signals) into ours."""
    return ExitStatus(code=code) if code >= 0 else ExitStatus(code=None, signal=-code)


def lead_group(pid: int) -> None:
    """Make `pid` a group leader; done by both sides, as either may be first, and either may already be gone."""
    try:
        os.setpgid(pid, pid)
    except (ProcessLookupError, PermissionError):
        return


def give_up_terminal() -> None:
    """Read nothing from standard input any more."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def kill_group(group: int) -> None:
    """SIGKILL a process group that is known to be ours (its leader is not reaped yet); an empty one is no error."""
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def kill_orphaned_group(group: int) -> None:
    """SIGKILL what is left of a group whose leader's parent is gone, so that its number may have been reused.

    Only processes that are in that group *and* in our own session are touched, each through a descriptor that is
    checked after it was opened. Without `/proc` nothing is done: the death signal has to suffice.
    """
    session = os.getsid(0)
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        if _group_and_session(pid) != (group, session) or (descriptor := open_pidfd(pid)) is None:
            continue
        try:
            if _group_and_session(pid) == (group, session):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            continue
        finally:
            os.close(descriptor)


def flush_c_output() -> None:
    """Write out what C code has printed into the C library's own buffers."""
    _libc().fflush(None)


def erase_environment(name: str) -> None:
    """Unset a variable and wipe its value where the kernel shows it (`/proc/<pid>/environ`).

    Unsetting alone leaves the text that the process was started with readable for its whole life. Call only while the
    process has one thread.
    """
    libc = _libc()
    libc.getenv.restype = ctypes.c_void_p
    address = libc.getenv(name.encode())
    if address:
        ctypes.memset(address, 0, len(ctypes.string_at(address)))
    os.environ.pop(name, None)


def _group_and_session(pid: int) -> tuple[int, int] | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return None
    return int(fields[2]), int(fields[3])


def _prctl(option: int, argument: int) -> bool:
    return LINUX and _libc().prctl(option, ctypes.c_ulong(argument), 0, 0, 0) == 0


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
