"""Which function a sweep's trials run, as the ledger names it."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeper.errors import UserError
from sweeper.model.trial import Sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a sweep's trials run."""

    name: str
    """Module and qualified name; another task under the same sweep name is refused."""
    file: Path
    source_digest: str
    """SHA-256 of the script's file."""


def describe_task(function: Callable[..., Any]) -> Task:  # Any: whatever the user's function takes
    """Say which task a function, or an object that can be called, is.

    Raises:
        UserError: it was defined where no other process can find it again (a prompt, `python -`, `python -c`).
    """
    named = inspect.unwrap(function) if inspect.isroutine(function) else type(function)
    module = sys.modules.get(named.__module__)
    source = inspect.getsourcefile(named)
    if source is None or not Path(source).is_file() or module is None:
        raise UserError(
            f"the task {named.__module__}.{named.__qualname__} is not defined in a file, so no later command and no "
            "other worker could run it again",
            remedy="put it into a file of its own, a script (python train.py …) or a module, and run that",
        )
    file = Path(source).resolve()
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return Task(name=f"{_module_name(named.__module__, file)}:{named.__qualname__}", file=file, source_digest=digest)


def check_same_task(sweep: Sweep, task: Task, *, name_setting: str) -> None:
    """Refuse to mix two tasks under one sweep name, before anything is written.

    Args:
        sweep: the sweep as it is.
        task: what the command would run.
        name_setting: how the user writes another name, for the message.

    Raises:
        UserError: the sweep runs another task.
    """
    if sweep.task != task.name:
        raise UserError(
            f"sweep {sweep.name!r} runs another task: {sweep.task}, and this command's is {task.name}",
            remedy=f"give this sweep another name: {name_setting}=…",
        )


def _module_name(module: str, file: Path) -> str:
    """A script's stem instead of `__main__`, which every script has; a module's name however it was started."""
    if module != "__main__":
        return module
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name != "__main__":
        return str(spec.name).removesuffix(".__main__")
    return file.stem
