"""Which sweep a command means, which task it runs, and what its default name is.

Running the same command again *is* resuming, so a name must be the same each time and differ between unlike commands:
job name, plus six hex digits of the script's location and (if it is the same each time) the sweep directory.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hydra.types import TaskFunction
from omegaconf import DictConfig

from sweeper.errors import UserError
from sweeper.launch.settings import MAX_NAME_CHARACTERS
from sweeper.model.states import SweepState
from sweeper.model.trial import Sweep

_MAX_SUCCESSORS: Final = 1000
_MOMENT: Final = re.compile(r"\$\{\s*now\s*:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a sweep's trials run."""

    name: str
    """Module and qualified name; another task under the same sweep name is refused."""
    file: Path
    source_digest: str
    """SHA-256 of the script's file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenName:
    """The sweep a command continues or begins."""

    name: str
    existing: Sweep | None
    superseded: str | None = None
    """The finished sweep that is left alone because the script has changed since."""


def describe_task(function: TaskFunction) -> Task:
    """Say which task a function is.

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
            remedy="put it into a script or module and run that: python train.py -m …",
        )
    file = Path(source).resolve()
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return Task(name=f"{_module_name(named.__module__, file)}:{named.__qualname__}", file=file, source_digest=digest)


def check_same_task(sweep: Sweep, task: Task) -> None:
    """Refuse to mix two tasks under one sweep name, before anything is written.

    Raises:
        UserError: the sweep runs another task.
    """
    if sweep.task != task.name:
        raise UserError(
            f"sweep {sweep.name!r} runs another task: {sweep.task}, and this command's is {task.name}",
            remedy="give this sweep another name: hydra.launcher.name=…",
        )


def default_name(job_name: str, task: Task, sweep_dir_expression: str) -> str:
    """Make a sweep's name from what stays the same when the command is given again.

    Args:
        job_name: `hydra.job.name`.
        task: the task; its file's location counts.
        sweep_dir_expression: `hydra.sweep.dir` as written; left out if it names the moment.
    """
    parts = [str(task.file)]
    if not _MOMENT.search(sweep_dir_expression):
        parts.append(sweep_dir_expression)
    digits = hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:6]
    readable = re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", "", job_name)[: MAX_NAME_CHARACTERS - 20]
    return f"{readable or 'sweep'}-{digits}"


def sweep_dir_expression(config: DictConfig) -> str:
    """Give `hydra.sweep.dir` as it is written, unresolved."""
    return str(config.hydra.sweep._get_node("dir")._value())


def choose_name(
    explicit: str | None, default: str, source_digest: str, find: Callable[[str], Sweep | None]
) -> ChosenName:
    """Decide which sweep a command means.

    An explicitly named sweep, an unfinished one, and a finished one whose script is unchanged are continued. A finished
    default-named sweep whose script has changed is left alone, and its successor (`…-2`, `…-3`) is looked at: editing a
    script and getting the old numbers back would be the worst surprise.

    Args:
        explicit: `hydra.launcher.name`.
        default: what `default_name` gave.
        source_digest: the script's digest now.
        find: looks a sweep up by name.
    """
    if explicit is not None:
        return ChosenName(name=explicit, existing=find(explicit))
    superseded = None
    for successor in range(1, _MAX_SUCCESSORS):
        name = default if successor == 1 else f"{default}-{successor}"
        sweep = find(name)
        if sweep is None or sweep.state is not SweepState.FINISHED or sweep.source_digest == source_digest:
            return ChosenName(name=name, existing=sweep, superseded=superseded if sweep is None else None)
        superseded = name
    raise UserError(
        f"{_MAX_SUCCESSORS} finished sweeps are named after {default!r}",
        remedy="give this one a name: hydra.launcher.name=…",
    )


def _module_name(module: str, file: Path) -> str:
    """A script's stem instead of `__main__`, which every script has; a module's name however it was started."""
    if module != "__main__":
        return module
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name != "__main__":
        return str(spec.name).removesuffix(".__main__")
    return file.stem
