"""The life of the warm parent: one thread, no computing, a loop that forks, reaps and kills.

It holds no connection of ours. Each child has a *line*, a socket to the owner that tells how the child ended; a byte on
it asks to kill the child's group, and its end means the same. A child's group is killed before its leader is reaped, so
the group's number cannot have passed to anyone else, and the exit is reported only when the whole group is gone.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, NoReturn

from sweeper.model.waits import ExitStatus
from sweeper.trial.canary import reason_not_to_fork
from sweeper.trial.frames import close_all, receive_frame, send_frame
from sweeper.trial.kernel import (
    adopt_orphans,
    die_with_parent,
    give_up_terminal,
    kill_group,
    lead_group,
    open_pidfd,
    reap_next,
    signal_on_parent_death,
    thread_count,
)
from sweeper.trial.preloading import preload
from sweeper.trial.spawning import Role, perform

IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
_OWNER_DIED: Final = signal.SIGUSR2
_GROUP_POLLS: Final = 200
_GROUP_POLL_S: Final = 0.005


def serve(control: socket.socket, roles: Mapping[str, Role], *, owner_pid: int, known_safe: bool) -> NoReturn:
    """Be the warm parent of `owner_pid` until that is gone or closes its end of `control`."""
    try:
        _WarmProcess(control, roles, owner_pid=owner_pid, known_safe=known_safe).run()
    except BaseException:  # the one broad handler of this process
        traceback.print_exc()
    finally:
        os._exit(0)


@dataclass(slots=True)
class _Kept:
    """A forked process that is not reaped yet, and its line (None once the owner has let go)."""

    pid: int
    role: Role
    line: socket.socket | None


class _WarmProcess:
    def __init__(self, control: socket.socket, roles: Mapping[str, Role], *, owner_pid: int, known_safe: bool) -> None:
        self._control = control
        self._roles = roles
        self._owner_pid = owner_pid
        self._verdict: str | None = None
        self._canary_flew = known_safe
        self._preloaded = False
        self._kept: dict[int, _Kept] = {}
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()

    def run(self) -> None:
        """Serve requests, lines and signals; at the end kill every child's group."""
        self._settle()
        try:
            while os.getppid() == self._owner_pid:
                ready = [key.data for key, _ in self._selector.select()]
                if not all(handle() for handle in ready):
                    break
        finally:
            for kept in list(self._kept.values()):
                if not kept.role.survives:
                    kill_group(kept.pid)
                    self._await_group(kept.pid)

    def _settle(self) -> None:
        """Become quiet: no terminal, no signals but our own, one compute thread, memory kept shared with children."""
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        signal.set_wakeup_fd(self._wake_writer.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, _OWNER_DIED):
            signal.signal(number, _only_wake)
        signal_on_parent_death(_OWNER_DIED)
        adopt_orphans()
        give_up_terminal()
        torch = sys.modules.get("torch")
        if torch is not None and hasattr(torch, "set_num_threads"):
            torch.set_num_threads(1)
        gc.freeze()
        self._watch(self._control, self._on_request)
        self._watch(self._wake_reader, self._on_signal)

    def _watch(self, channel: socket.socket, handle: Callable[[], bool]) -> None:
        self._selector.register(channel, selectors.EVENT_READ, handle)

    def _on_signal(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            self._wake_reader.recv(4096)
        self._reap()
        return True

    # Requests

    def _on_request(self) -> bool:
        request = receive_frame(self._control)
        if request is None:
            return False
        body, descriptors = request
        line = socket.socket(fileno=descriptors.pop(0))
        try:
            self._answer(body, line, descriptors)
        except OSError as error:
            _try_to_send(line, {"failed": f"cannot fork: {error}"})
            line.close()
        finally:
            close_all(descriptors)
        return True

    def _answer(self, body: dict[str, Any], line: socket.socket, descriptors: list[int]) -> None:
        role = self._roles.get(body.get("role", ""))
        if "check" in body:
            _try_to_send(line, {"unsafe": self._unsafe()})
            line.close()
        elif role is None:
            _try_to_send(line, {"failed": f"no role {body['role']!r}"})
            line.close()
        elif (reason := self._reason_not_to_fork(role)) is not None:
            _try_to_send(line, {"unsafe": reason})
            line.close()
        else:
            self._fork(role, body, line, descriptors)

    def _reason_not_to_fork(self, role: Role) -> str | None:
        if not self._preloaded:  # only now: a command that has nothing to run does without
            preload()
            gc.freeze()
            self._preloaded = True
        return self._threads() if role.survives else self._unsafe()

    def _threads(self) -> str | None:
        return f"the process has {count} threads" if (count := thread_count()) > 1 else None

    def _unsafe(self) -> str | None:
        if not self._canary_flew:
            self._verdict = reason_not_to_fork()
            self._canary_flew = True
        return self._verdict or self._threads()

    def _fork(self, role: Role, body: dict[str, Any], line: socket.socket, descriptors: list[int]) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            line.close()
            self._become(role, body, descriptors, parent)
        if not role.survives:
            lead_group(pid)
        kept = _Kept(pid, role, line)
        self._kept[pid] = kept
        self._watch(line, lambda: self._on_line(kept))
        pidfd = open_pidfd(pid)
        _try_to_send(line, {"pid": pid}, [] if pidfd is None else [pidfd])
        if pidfd is not None:
            os.close(pidfd)

    def _become(self, role: Role, body: dict[str, Any], descriptors: list[int], parent: int) -> NoReturn:
        """In the new process: shed everything of the warm parent, take the role's place in the tree, and live."""
        try:
            if role.survives:
                os.setsid()
            else:
                lead_group(0)
                die_with_parent(parent)
            self._shed(role)
            if body["output"]:
                output = descriptors.pop()
                os.dup2(output, 1)
                os.dup2(output, 2)
                os.close(output)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        perform(role, body["payload"], tuple(descriptors))

    def _shed(self, role: Role) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in (*IGNORED, _OWNER_DIED):  # a child goes on ignoring them until it has handlers of its own
            signal.signal(number, signal.SIG_DFL if role.survives else signal.SIG_IGN)
        if role.survives:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._selector.close()
        for channel in (self._control, self._wake_reader, self._wake_writer):
            channel.close()
        for kept in self._kept.values():
            if kept.line is not None:
                kept.line.close()
        self._kept.clear()

    # Children

    def _on_line(self, kept: _Kept) -> bool:
        if kept.line is None:
            return True
        try:
            wish = kept.line.recv(16)
        except ConnectionError:
            wish = b""
        if kept.pid in self._kept and (wish or not kept.role.survives):
            self._kill(kept)
        if not wish:
            self._drop_line(kept)
        return True

    def _kill(self, kept: _Kept) -> None:
        if kept.role.survives:
            os.kill(kept.pid, signal.SIGKILL)
        else:
            kill_group(kept.pid)

    def _drop_line(self, kept: _Kept) -> None:
        if kept.line is not None:
            self._selector.unregister(kept.line)
            kept.line.close()
            kept.line = None

    def _reap(self) -> None:
        while (ended := reap_next(self._before_reaping)) is not None:
            pid, status = ended
            kept = self._kept.pop(pid, None)  # None for an orphan that we adopted
            if kept is not None:
                self._report(kept, status)

    def _before_reaping(self, pid: int) -> None:
        kept = self._kept.get(pid)
        if kept is not None and not kept.role.survives:
            kill_group(pid)

    def _report(self, kept: _Kept, status: ExitStatus) -> None:
        if not kept.role.survives:
            self._await_group(kept.pid)
        if kept.line is not None:
            _try_to_send(kept.line, {"code": status.code, "signal": status.signal})
            self._drop_line(kept)

    def _await_group(self, group: int) -> None:
        """Wait for what a killed group leaves to us as orphans, about a second at most."""
        for _ in range(_GROUP_POLLS):
            try:
                if os.waitpid(-group, os.WNOHANG) == (0, 0):
                    select.select([], [], [], _GROUP_POLL_S)
            except ChildProcessError:
                return


def _only_wake(number: int, frame: FrameType | None) -> None:
    """A handler must exist for the wake-up descriptor to be written."""


def _try_to_send(line: socket.socket, body: dict[str, Any], descriptors: list[int] | None = None) -> None:
    try:
        send_frame(line, body, descriptors or ())
    except OSError:
        return  # the owner is gone or has let go; the end of its line says so
