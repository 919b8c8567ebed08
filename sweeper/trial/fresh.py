"""Starting a role in a new interpreter on the same script: slower than forking, and always possible.

The script runs from its first line; when it reaches the plugin (or calls `run_role_from_environment` itself), the role
takes over and never returns. Which script that is comes from the process that starts it, never from the ledger (SAFE).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sweeper.errors import UserError
from sweeper.model.trial import Json
from sweeper.model.waits import ExitStatus
from sweeper.trial.kernel import die_with_parent, exit_status, has_ended, kill_group, open_pidfd
from sweeper.trial.spawning import HIDDEN_VARIABLES, Role, SpawnFailed, perform

ROLE_VARIABLE: Final = "SWEEPER_ROLE"
"""JSON: the role's name, the payload's descriptor, the role's descriptors, the parent to die with (or null). Set by
hand (`sweeper worker -- …`), it is a bare word."""
COORDINATOR: Final = "coordinator"
"""The one role by hand that is a command of its own."""


def this_command(argv: Sequence[str] | None = None) -> list[str]:
    """Give the command line that starts this process's script again.

    Args:
        argv: Arguments after the script; this process's own by default.

    Raises:
        UserError: there is no script or module to start (an interactive session, a notebook, `python -c`).
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined] # as multiprocessing does
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        module = spec.name.removesuffix(".__main__") if spec.name != "__main__" else spec.name
        return [sys.executable, *flags, "-m", module, *arguments]
    script = getattr(main, "__file__", None)
    if script is None or not Path(script).is_file():
        raise UserError(
            "the task function's script cannot be started again: the main program has no file",
            remedy="put the function and its @hydra.main into a .py file and run that",
        )
    return [sys.executable, *flags, str(Path(script).absolute()), *arguments]


class FreshParent:
    """A spawner that starts `command` again for each process; implements `Spawner`.

    Call `spawn` from the main thread: a child is tied to the thread that started it.
    """

    def __init__(
        self,
        command: Sequence[str] | None,
        roles: Mapping[str, Role],
        *,
        cwd: Path | None = None,
        without: Sequence[str] = HIDDEN_VARIABLES,
    ) -> None:
        """Remember what to start.

        Args:
            command: Interpreter, script and arguments, as `this_command` gives them; None to ask it only when a
                process is to be started, so that a program without a file can still fork.
            roles: The same roles that the script hands to `run_role_from_environment`.
            cwd: Working directory; the current one by default, as it is now.
            without: Environment variables that children (not roles that survive) must not get.
        """
        self._command = None if command is None else list(command)
        self._roles = roles
        self._cwd = cwd or Path.cwd()
        self._without = frozenset(without)

    def spawn(
        self, role: str, payload: Json, descriptors: Sequence[int] = (), *, output: int | None = None
    ) -> FreshProcess:
        """Start the script in a role; see `Spawner.spawn`. Returns before the script has run its first line."""
        wanted = self._roles[role]
        command = self._known_command()
        with tempfile.TemporaryFile() as note:
            note.write(json.dumps(payload).encode())
            note.flush()
            tied = not wanted.survives and threading.current_thread() is threading.main_thread()
            task = [role, note.fileno(), list(descriptors), os.getpid() if tied else None]
            try:
                popen = subprocess.Popen(
                    command,
                    cwd=self._cwd,
                    env=self._environment(wanted, json.dumps(task)),
                    pass_fds=[note.fileno(), *descriptors],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=wanted.survives,
                    process_group=None if wanted.survives else 0,
                )
            except OSError as error:
                raise SpawnFailed(f"cannot start {command[0]}: {error}") from error
        return FreshProcess(popen, group=not wanted.survives)

    def close(self) -> None:
        """Nothing is held; handles are closed one by one."""

    def _known_command(self) -> list[str]:
        try:
            return self._command or this_command()
        except UserError as error:
            raise SpawnFailed(str(error)) from error

    def _environment(self, role: Role, task: str) -> dict[str, str]:
        hidden: frozenset[str] = frozenset() if role.survives else self._without
        return {**{name: value for name, value in os.environ.items() if name not in hidden}, ROLE_VARIABLE: task}


class FreshProcess:
    """A process that a `FreshParent` started; implements `Spawned`. It is our own child, so we reap it ourselves."""

    def __init__(self, popen: subprocess.Popen[bytes], *, group: bool) -> None:
        self._popen = popen
        self._group = group
        self._pidfd = open_pidfd(popen.pid)
        self._status: ExitStatus | None = None

    @property
    def pid(self) -> int:
        """For logs."""
        return self._popen.pid

    def fileno(self) -> int:
        """Readable once it has ended; -1 where the system has no such descriptor."""
        return -1 if self._pidfd is None else self._pidfd

    def exit_status(self) -> ExitStatus | None:
        """None while it lives. A child's group is killed before its leader is reaped."""
        if self._status is None and has_ended(self._popen.pid):
            if self._group and hasattr(os, "waitid"):
                kill_group(self._popen.pid)
            code = self._popen.poll()
            if code is not None:
                self._status = exit_status(code)
        return self._status

    def kill(self) -> None:
        """See `Spawned.kill`. Not reaped yet, so the number is still its own."""
        if self._status is not None:
            return
        if self._group:
            kill_group(self._popen.pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._popen.pid, signal.SIGKILL)

    def close(self) -> None:
        """See `Spawned.close`."""
        if self.exit_status() is None:
            if self._group:
                self.kill()
                self._popen.wait()
            else:
                self._popen.returncode = 0  # it goes on without us: keeps subprocess from warning about that
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None


def run_role_from_environment(roles: Mapping[str, Role]) -> None:
    """Take over and never return if this interpreter was started for a role; else do nothing.

    The variable is removed, so that no program started later believes that the role is its own.

    Raises:
        UserError: the role is unknown here, which means that another version or script was started.
    """
    text = os.environ.pop(ROLE_VARIABLE, None)
    if text is None:
        return
    name, note, descriptors, parent_pid = _read_task(text)
    role = roles.get(name)
    if role is None:
        raise UserError(f"{ROLE_VARIABLE} names {name!r}, which this program does not know")
    if parent_pid is not None:
        die_with_parent(parent_pid)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    with os.fdopen(note, "rb") as file:
        file.seek(0)
        payload: Json = json.load(file)
    perform(role, payload, tuple(descriptors))


def _read_task(text: str) -> tuple[str, int, list[int], int | None]:
    try:
        task: Any = json.loads(text)
        name, note, descriptors, parent_pid = task
        os.fstat(note)
    except (ValueError, TypeError, OSError) as error:
        raise UserError(
            f"{ROLE_VARIABLE} is set, but not by the process that started this one",
            remedy=f"unset {ROLE_VARIABLE}",
        ) from error
    return name, note, descriptors, parent_pid
