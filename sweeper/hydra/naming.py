"""Which sweep a command means, and what its default name is.

Running the same command again *is* resuming, so a name must be the same each time and differ between unlike commands:
job name, plus six hex digits of the script's location, of the sweep directory (if it is the same each time), and of
whether it searches.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from omegaconf import DictConfig

from sweeper.errors import UserError
from sweeper.launch.settings import MAX_NAME_CHARACTERS
from sweeper.launch.task import Task
from sweeper.model.states import SweepState
from sweeper.model.trial import Sweep

_MAX_SUCCESSORS: Final = 1000
_MOMENT: Final = re.compile(r"\$\{\s*now\s*:")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenName:
    """The sweep a command continues or begins."""

    name: str
    existing: Sweep | None
    superseded: str | None = None
    """The finished sweep that is left alone because the script has changed since."""


def default_name(job_name: str, task: Task, sweep_dir_expression: str, *, is_search: bool) -> str:
    """Make a sweep's name from what stays the same when the command is given again.

    Args:
        job_name: `hydra.job.name`.
        task: the task; its file's location counts.
        sweep_dir_expression: `hydra.sweep.dir` as written; left out if it names the moment.
        is_search: whether it searches; a grid and a search of one script are two sweeps.
    """
    parts = [str(task.file)]
    if not _MOMENT.search(sweep_dir_expression):
        parts.append(sweep_dir_expression)
    if is_search:
        parts.append("search")
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
