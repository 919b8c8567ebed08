"""The warm parent as its owner sees it: a copy of the owner's process, forked early, that forks children on request."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sweeper.model.trial import Json
from sweeper.model.waits import ExitStatus
from sweeper.trial.frames import close_all, receive_frame, send_frame
from sweeper.trial.kernel import flush_c_output, is_readable, kill_orphaned_group, wait_or_kill
from sweeper.trial.spawning import ForkUnsafe, Role, SpawnFailed
from sweeper.trial.warm_process import serve

REPLY_S: Final = 60.0
"""How long a fork may take, the canary's limit and the first one's imports included, before the warm parent is given
up."""

CLOSE_S: Final = 5.0
"""How long a closed warm parent may take to end its children before it is killed (which ends them too)."""


class WarmParent:
    """A spawner that forks. Make it with `WarmParent.fork` before any connection or thread of ours exists.

    It dies when its owner dies or closes it, and its children (not the roles that survive) die with it.
    """

    def __init__(self, pid: int, channel: socket.socket, roles: Mapping[str, Role]) -> None:
        self._pid = pid
        self._channel: socket.socket | None = channel
        self._roles = roles

    @classmethod
    def fork(cls, roles: Mapping[str, Role], *, close: Sequence[int] = (), known_safe: bool = False) -> WarmParent:
        """Fork the warm parent off this process, as it is now.

        Args:
            roles: What its children may become, by name.
            close: Descriptors of ours that it must not hold.
            known_safe: The canary has run in the process that this one was forked from, and lived.
        """
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        flush_c_output()
        owner_end, far_end = socket.socketpair()
        owner_pid = os.getpid()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 warns of threads; the canary proves instead
            pid = os.fork()
        if pid == 0:
            owner_end.close()
            close_all(close)
            serve(far_end, roles, owner_pid=owner_pid, known_safe=known_safe)
        far_end.close()
        owner_end.settimeout(REPLY_S)
        return cls(pid, owner_end, roles)

    @property
    def pid(self) -> int:
        """The warm parent's process, for logs."""
        return self._pid

    def fork_safety(self) -> str | None:
        """Have the canary fly now if it has not yet; None when forking children is safe, else the reason it is not.

        Raises:
            SpawnFailed: the warm parent is gone.
        """
        line = self._request({"check": True}, ())
        with line:
            reply = self._reply(line)[0]
        unsafe: str | None = reply["unsafe"]
        return unsafe

    def spawn(
        self, role: str, payload: Json, descriptors: Sequence[int] = (), *, output: int | None = None
    ) -> ForkedProcess:
        """Fork a process in a role; see `Spawner.spawn`. About 20 ms with torch loaded, the first time 1.6 s more."""
        passed = [*descriptors, *([] if output is None else [output])]
        line = self._request({"role": role, "payload": payload, "output": output is not None}, passed)
        try:
            reply, received = self._reply(line)
        except SpawnFailed:
            line.close()
            raise
        if (pid := reply.get("pid")) is None:
            line.close()
            if "unsafe" in reply:
                raise ForkUnsafe(reply["unsafe"])
            raise SpawnFailed(reply["failed"])
        return ForkedProcess(pid, line, received[0] if received else None, group=not self._roles[role].survives)

    def close(self) -> None:
        """End the warm parent and wait for it. Its children are killed first; what survives goes on."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
            wait_or_kill(self._pid, CLOSE_S)

    def _request(self, body: dict[str, Json], descriptors: Sequence[int]) -> socket.socket:
        if self._channel is None:
            raise SpawnFailed("the warm parent was closed")
        line, far_end = socket.socketpair()
        line.settimeout(REPLY_S)
        try:
            with far_end:
                send_frame(self._channel, body, [far_end.fileno(), *descriptors])
        except OSError as error:
            line.close()
            raise SpawnFailed(f"the warm parent (process {self._pid}) is gone: {error}") from error
        return line

    def _reply(self, line: socket.socket) -> tuple[dict[str, Any], list[int]]:
        try:
            answer = receive_frame(line)
        except TimeoutError as error:
            raise SpawnFailed(f"the warm parent (process {self._pid}) did not answer in {REPLY_S:g} s") from error
        if answer is None:
            raise SpawnFailed(f"the warm parent (process {self._pid}) died while it forked")
        return answer


class ForkedProcess:
    """A process that a warm parent forked; implements `Spawned`.

    Its *line* to the warm parent carries the exit status one way and the wish to kill the other: only the warm parent
    knows, before it reaps, that the process group is still ours. Closing the line of a child kills it.
    """

    def __init__(self, pid: int, line: socket.socket, pidfd: int | None, *, group: bool) -> None:
        line.setblocking(True)
        self._pid = pid
        self._line: socket.socket | None = line
        self._pidfd = pidfd
        self._group = group
        self._status: ExitStatus | None = None

    @property
    def pid(self) -> int:
        """For logs."""
        return self._pid

    def fileno(self) -> int:
        """The line while the warm parent lives, then the process's own descriptor; -1 when there is neither."""
        if self._line is not None:
            return self._line.fileno()
        return -1 if self._pidfd is None else self._pidfd

    def exit_status(self) -> ExitStatus | None:
        """None while it lives; both fields None when the warm parent died and nobody saw how the process ended."""
        if self._status is None and self._line is not None and is_readable(self._line.fileno()):
            answer = receive_frame(self._line)
            if answer is not None:
                self._status = ExitStatus(code=answer[0]["code"], signal=answer[0]["signal"])
            else:
                self._lose_line()
        if self._status is None and self._line is None and self._gone():
            self._status = ExitStatus(code=None, signal=None)
        return self._status

    def kill(self) -> None:
        """See `Spawned.kill`. The leader dies even if its warm parent hangs."""
        if self.exit_status() is not None:
            return
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        if self._line is not None:
            try:
                self._line.sendall(b"K")
            except OSError:
                self._lose_line()

    def close(self) -> None:
        """See `Spawned.close`."""
        if self._line is not None:
            self._line.close()
            self._line = None
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def _lose_line(self) -> None:
        """The warm parent is gone: its children are dying of their death signal, and what they started with them."""
        if self._line is not None:
            self._line.close()
            self._line = None
        if self._group:
            kill_orphaned_group(self._pid)

    def _gone(self) -> bool:
        if self._pidfd is not None:
            return is_readable(self._pidfd)
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return True
        return False
