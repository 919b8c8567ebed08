"""Processes that run the user's script as a worker: forked by the command, or started by `sweeper worker -- …`."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from sweeper.cli.progress import is_live
from sweeper.hydra.console import log_above_display
from sweeper.hydra.multirun_callbacks import COORDINATOR
from sweeper.hydra.settings import LauncherSettings
from sweeper.hydra.task import HydraTask
from sweeper.model.trial import Json
from sweeper.trial.fresh import ROLE_VARIABLE, FreshParent
from sweeper.trial.spawning import Role
from sweeper.trial.warm_parent import WarmParent
from sweeper.wiring import run_worker

SWEEP_VARIABLE: Final = "SWEEPER_SWEEP"
WORKER: Final = "worker"
CHECK: Final = "check"
_BY_HAND: Final = (WORKER, COORDINATOR, CHECK)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRole:
    """What `sweeper worker`, `sweeper coordinate` or `sweeper check` wants this process to be."""

    kind: str
    sweep: str | None


def asked_role() -> AskedRole | None:
    """Take the role that the command line tool put into the environment, once; None in every other process."""
    kind = os.environ.get(ROLE_VARIABLE)
    if kind not in _BY_HAND:
        return None
    del os.environ[ROLE_VARIABLE]
    return AskedRole(kind=kind, sweep=os.environ.pop(SWEEP_VARIABLE, None))


def worker_role(children: Mapping[str, Role], settings: LauncherSettings, task: HydraTask) -> Role:
    """Give the role of a local worker, to be forked by the root warm parent.

    Its payload names the sweep and the device; its descriptor is the pipe whose other end the command holds.
    """

    def main(payload: Json, descriptors: tuple[int, ...]) -> int:
        parts = payload if isinstance(payload, dict) else {}
        if not parts.get("verbose"):
            # The command shows each transition itself; its workers speak up when something is wrong.
            logging.getLogger("sweeper").setLevel(logging.WARNING)
        if is_live():
            log_above_display()
        gpu = parts.get("gpu")
        return _work(
            children,
            settings,
            task,
            sweep_name=str(parts["sweep"]),
            parent_fd=descriptors[0],
            gpu=None if gpu is None else str(gpu),
        )

    return Role(main=main, survives=True)


def be_worker(children: Mapping[str, Role], settings: LauncherSettings, task: HydraTask, sweep_name: str) -> NoReturn:
    """Be a worker that was started by hand, until nothing is left to do or a notice comes; never returns."""
    raise SystemExit(_work(children, settings, task, sweep_name=sweep_name, parent_fd=None, gpu=None))


def _work(
    children: Mapping[str, Role],
    settings: LauncherSettings,
    task: HydraTask,
    *,
    sweep_name: str,
    parent_fd: int | None,
    gpu: str | None,
) -> int:
    warm = WarmParent.fork(children, close=() if parent_fd is None else (parent_fd,))
    return run_worker(
        settings.places,
        sweep_name=sweep_name,
        spawner=warm,
        fallback=FreshParent(None, children),
        settings=settings.worker,
        parent_fd=parent_fd,
        gpu=gpu,
        output_subdir=task.output_subdir,
    )
