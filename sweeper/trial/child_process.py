"""A child as its worker holds it: a socket, shared memory, an output file and a process; implements `Child`."""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import socket
import tempfile
from pathlib import Path
from typing import Final

from sweeper.model.control import PAGE_BYTES, ControlPage
from sweeper.model.messages import FrameDecoder, Start, ToChild, ToWorker, encode
from sweeper.model.waits import ExitStatus
from sweeper.trial.spawning import CHILD_ROLE, Spawned, Spawner

TAIL_BYTES: Final = 64 << 10
TAIL_LINES: Final = 40
_READ_BYTES: Final = 1 << 18
_log = logging.getLogger(__name__)


class ChildProcess:
    """One started process. Owns everything it is given, and releases it in `close`."""

    def __init__(
        self, spawned: Spawned, *, channel: socket.socket, control: ControlPage, staging_fd: int, output_fd: int
    ) -> None:
        channel.setblocking(False)
        self._spawned = spawned
        self._channel = channel
        self._control = control
        self._staging_fd = staging_fd
        self._output_fd = output_fd
        self._decoder = FrameDecoder()
        self._unread: list[ToWorker] = []
        self._unsent = bytearray()
        self._open = True
        self._maps: list[mmap.mmap] = []

    @property
    def pid(self) -> int:
        """For logs."""
        return self._spawned.pid

    @property
    def step(self) -> int:
        """Training step at the last safe point."""
        return self._control.step

    @property
    def safe_points(self) -> int:
        """Safe points passed so far."""
        return self._control.safe_points

    @property
    def stateful(self) -> bool:
        """Whether the child can save."""
        return self._control.stateful

    @property
    def exited(self) -> ExitStatus | None:
        """How it ended, once all its messages are read; its whole process group is dead by then."""
        status = self._spawned.exit_status()
        if status is None:
            return None
        self._drain()
        return None if self._unread else status

    def filenos(self) -> tuple[int, ...]:
        """The socket while it is open, and the process. Ask again before each wait: they may change."""
        process = self._spawned.fileno()
        channel = (self._channel.fileno(),) if self._open else ()
        return channel if process < 0 else (*channel, process)

    def receive(self) -> list[ToWorker]:
        """Messages that have arrived since the last call, in order."""
        self._flush()
        self._drain()
        messages, self._unread = self._unread, []
        return messages

    def send(self, message: ToChild) -> None:
        """Put a message on the socket and raise the flag that the child looks at."""
        self._unsent += encode(message)
        self._flush()

    def staged(self) -> memoryview:
        """The staging file as it is now, read-only; valid until `close`."""
        size = os.fstat(self._staging_fd).st_size
        if size == 0:
            return memoryview(b"")
        if not self._maps or len(self._maps[-1]) != size:
            self._maps.append(mmap.mmap(self._staging_fd, size, prot=mmap.PROT_READ))
        return memoryview(self._maps[-1])

    def output_tail(self) -> str:
        """The last lines printed: at most 40, from at most the last 64 KiB."""
        size = os.fstat(self._output_fd).st_size
        data = os.pread(self._output_fd, TAIL_BYTES, max(0, size - TAIL_BYTES))
        return "\n".join(data.decode("utf-8", "replace").replace("\0", "�").splitlines()[-TAIL_LINES:])

    def kill(self) -> None:
        """End the child's whole process group with SIGKILL; returns before it is dead (`exited` tells)."""
        self._spawned.kill()

    def close(self) -> None:
        """Release everything shared with the child, which is killed if it still lives."""
        self._spawned.close()
        self._channel.close()
        self._open = False
        self._control.close()
        for view in self._maps:
            with contextlib.suppress(BufferError):  # someone still reads it; unmapped when that ends
                view.close()
        self._maps.clear()
        os.close(self._staging_fd)
        os.close(self._output_fd)

    def _flush(self) -> None:
        if not self._unsent or not self._open:
            return
        try:
            sent = self._channel.send(self._unsent)
        except BlockingIOError:
            return  # the child has not looked for long; more at the next call
        except OSError:
            self._unsent.clear()  # the child is gone, which `exited` tells
            return
        del self._unsent[:sent]
        self._control.raise_inbox()

    def _drain(self) -> None:
        while self._open:
            try:
                data = self._channel.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._open = False
                return
            try:
                self._unread += self._decoder.feed(data)  # type: ignore[arg-type] # only what a child may say
            except ValueError as error:
                _log.error("child_spoke_nonsense", extra={"pid": self.pid, "error": str(error)})
                self._open = False
                self.kill()


def launch_child(
    spawner: Spawner, start: Start, *, restore_fd: int | None = None, lock_fd: int | None = None
) -> ChildProcess:
    """Make a child's memory, socket and output file, start it, and send it `start`.

    Raises:
        ForkUnsafe: a fresh interpreter is needed.
        SpawnFailed: the spawner cannot start processes.
        OSError: no memory or descriptors, or the output folder cannot be written.
    """
    with contextlib.ExitStack() as undo:
        control_fd, staging_fd = _shared_memory("control"), _shared_memory("staging")
        undo.callback(os.close, control_fd)
        undo.callback(os.close, staging_fd)
        os.ftruncate(control_fd, PAGE_BYTES)
        output_fd = _open_output(start)
        undo.callback(os.close, output_fd)
        ours, theirs = socket.socketpair()
        undo.callback(theirs.close)
        undo.callback(ours.close)
        descriptors = [theirs.fileno(), control_fd, staging_fd]
        descriptors += [fd for fd in (lock_fd, restore_fd) if fd is not None]
        payload = {"lock": lock_fd is not None, "restore": restore_fd is not None}
        spawned = spawner.spawn(CHILD_ROLE, {**payload}, descriptors, output=output_fd)
        undo.pop_all()
    theirs.close()
    control = ControlPage(control_fd)
    os.close(control_fd)
    child = ChildProcess(spawned, channel=ours, control=control, staging_fd=staging_fd, output_fd=output_fd)
    child.send(start)
    return child


def _shared_memory(name: str) -> int:
    """A descriptor for memory that two processes can map: a memfd, or an unlinked file where there is none."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(f"sweeper-{name}")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _open_output(start: Start) -> int:
    folder = Path(start.sweep_dir) / start.output_subdir
    folder.mkdir(parents=True, exist_ok=True)
    return os.open(folder / f"attempt-{start.fence}.log", os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
