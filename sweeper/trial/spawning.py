"""What it means to start a process of ours: roles, spawners, and the handle of what was started.

There are two spawners: `WarmParent` forks (milliseconds, the user's script already imported) and `FreshParent` starts a
new interpreter on the same script (always possible, a second or more). Both run a *role*, looked up by name, so that
nothing but a name, plain JSON and descriptors passes between processes (SAFE).
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn, Protocol

from sweeper.errors import SweeperError
from sweeper.model.trial import Json
from sweeper.model.waits import ExitStatus
from sweeper.trial.kernel import flush_c_output

CHILD_ROLE: Final = "child"
"""The role under which trials are trained."""
HIDDEN_VARIABLES: Final = ("SWEEPER_DATABASE_URL", "SWEEPER_STORE_URL")
"""What a child's environment must be free of: user code, and what it starts, has no business with our credentials."""


class ForkUnsafe(SweeperError):
    """Forking this process could hang or corrupt the child (threads, CUDA, a parallel runtime): start a fresh one."""


class SpawnFailed(SweeperError):
    """The process could not be started at all, or its warm parent is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What a spawned process does for its whole life: `main(payload, descriptors)`, whose result is the exit status.

    A *child* (the default) trains: it leads its own process group, dies with its parent, and is only forked where
    forking is proven safe. A role that `survives` (a worker) leads its own session, outlives the process that forked
    it, and never computes.
    """

    main: Callable[[Json, tuple[int, ...]], int]
    survives: bool = False


class Spawned(Protocol):
    """A started process. All calls return at once; call them from the thread that spawned it."""

    @property
    def pid(self) -> int:
        """For logs; liveness is `exit_status`, killing is `kill`."""
        ...

    def fileno(self) -> int:
        """A descriptor that turns readable when `exit_status` may have news. It may change: ask before each wait."""
        ...

    def exit_status(self) -> ExitStatus | None:
        """None while it lives. For a child, the end of its whole process group has then been brought about too."""
        ...

    def kill(self) -> None:
        """End it with SIGKILL, a child with its whole process group; never a process that is not ours."""
        ...

    def close(self) -> None:
        """Let go of it. A child that still lives is killed; a role that survives is left alone."""
        ...


class Spawner(Protocol):
    """Starts processes in a role."""

    def spawn(self, role: str, payload: Json, descriptors: Sequence[int] = (), *, output: int | None = None) -> Spawned:
        """Start `roles[role].main(payload, descriptors)` in a new process.

        The process gets copies of `descriptors` (other numbers, same order). `output`, if given, becomes its standard
        output and error.

        Raises:
            ForkUnsafe: use a `FreshParent` instead.
            SpawnFailed: no process was started.
        """
        ...

    def close(self) -> None:
        """End the spawner; its children die, what survives goes on."""
        ...


def perform(role: Role, payload: Json, descriptors: tuple[int, ...]) -> NoReturn:
    """Run a role to its end and leave the process without any `atexit` handler or destructor of the user's script.

    Those handlers were registered for the process that was forked, once; running them in each of its copies would, for
    instance, delete its temporary folders many times. The last of the output is flushed.
    """
    status = 1
    try:
        status = role.main(payload, descriptors)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # the one broad handler of this process
        traceback.print_exc()
    leave(status)


def leave(status: int) -> NoReturn:
    """Flush logging, Python's and C's output, and exit at once with `status`."""
    for flush in (logging.shutdown, sys.stdout.flush, sys.stderr.flush, flush_c_output):
        try:
            flush()
        except (OSError, ValueError, AttributeError):
            continue
    os._exit(status)
