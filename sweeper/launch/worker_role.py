"""Processes that run a command again as a worker: forked by the command, or started by `sweeper worker -- …`."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from sweeper.cli.progress import is_live
from sweeper.launch.console import log_above_display
from sweeper.model.trial import Grant, Json
from sweeper.settings import Places, WorkerSettings
from sweeper.trial.fresh import COORDINATOR, ROLE_VARIABLE
from sweeper.trial.spawning import Role, Spawner
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a worker process of a command needs to know beside its sweep's name."""

    children: Mapping[str, Role]
    """What its warm parent forks."""
    fallback: Spawner
    """Starts them as fresh interpreters, where forking proves impossible."""
    places: Places
    settings: WorkerSettings
    output_subdir: Callable[[Grant], str] | None = None
    """A trial's own directory below the sweep's; its number by default."""


def asked_role() -> AskedRole | None:
    """Take the role that the command line tool put into the environment, once; None in every other process."""
    kind = os.environ.get(ROLE_VARIABLE)
    if kind not in _BY_HAND:
        return None
    del os.environ[ROLE_VARIABLE]
    return AskedRole(kind=kind, sweep=os.environ.pop(SWEEP_VARIABLE, None))


def worker_role(work: Work) -> Role:
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
        return _live(
            work,
            sweep_name=str(parts["sweep"]),
            parent_fd=descriptors[0],
            gpu=None if gpu is None else str(gpu),
        )

    return Role(main=main, survives=True)


def be_worker(work: Work, sweep_name: str) -> NoReturn:
    """Be a worker that was started by hand, until nothing is left to do or a notice comes; never returns."""
    logging.getLogger("alembic").setLevel(logging.WARNING)  # how an empty database got its tables is no news here
    raise SystemExit(_live(work, sweep_name=sweep_name, parent_fd=None, gpu=None))


def _live(work: Work, *, sweep_name: str, parent_fd: int | None, gpu: str | None) -> int:
    warm = WarmParent.fork(work.children, close=() if parent_fd is None else (parent_fd,))
    return run_worker(
        work.places,
        sweep_name=sweep_name,
        spawner=warm,
        fallback=work.fallback,
        settings=work.settings,
        parent_fd=parent_fd,
        gpu=gpu,
        output_subdir=work.output_subdir,
    )
