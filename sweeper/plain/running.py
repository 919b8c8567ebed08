"""One call, from its checked request to its end: as a command of its own, a worker, or a coordinator without any."""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import Final

from sweeper.errors import UserError
from sweeper.launch.worker_role import CHECK, WORKER, AskedRole, Work, asked_role, be_worker, worker_role
from sweeper.plain.command import Command
from sweeper.plain.file import request_from_file
from sweeper.plain.fresh import ImportingParent, is_fresh_process
from sweeper.plain.objective import reference_to
from sweeper.plain.request import SweepRequest
from sweeper.plain.task import PlainTask
from sweeper.results.records import SweepResult
from sweeper.trial.child import child_role
from sweeper.trial.fresh import COORDINATOR
from sweeper.trial.session import current_session
from sweeper.trial.spawning import CHILD_ROLE
from sweeper.trial.warm_parent import WarmParent
from sweeper.wiring import WORKER_ROLE, connect

_ONE_SWEEP: Final = "after `--` comes a command that runs this one sweep, and `--sweep` may be left out"


def check_process() -> None:
    """Refuse to begin a sweep where none can be.

    Raises:
        UserError: inside a trial, while the script is only imported, or beside the main thread.
    """
    if current_session() is not None:
        raise UserError("sweeper.sweep is called inside a trial", remedy="call it in the script that starts the sweep")
    if is_fresh_process():
        raise UserError(
            "sweeper.sweep is called while the objective's module is imported for a trial",
            remedy='put the call below `if __name__ == "__main__":`',
        )
    if threading.current_thread() is not threading.main_thread():
        raise UserError("sweeper.sweep is called beside the main thread", remedy="call it on the main thread")


def run_file(path: Path) -> SweepResult:
    """Do what a file describes; see `sweeper.sweep`.

    Raises:
        UserError: names file and line.
        Interrupted: the process is to leave.
        SweepFailed: the search cannot go on.
    """
    asked = asked_role()
    request = request_from_file(path, elsewhere=asked is not None and asked.kind == COORDINATOR)
    return run_request(request, asked)


def run_request(request: SweepRequest, asked: AskedRole | None) -> SweepResult:
    """Run it in the role that was asked for; a worker never comes back.

    Raises:
        UserError: another sweep was asked for, the name belongs to another sweep, or ledger or store cannot be used.
        Interrupted: the process is to leave.
        SweepFailed: the search cannot go on.
    """
    if asked is not None:
        _check_asked(asked, request.name)
    settings = request.settings
    children = {CHILD_ROLE: child_role(PlainTask(lambda: request.function, request.configs))}
    fresh = ImportingParent(lambda: reference_to(request.function), request.configs, settings.identity, request.values)
    work = Work(children=children, fallback=fresh, places=settings.places, settings=settings.worker)
    if asked is not None and asked.kind == WORKER:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
        be_worker(work, request.name)
    with contextlib.ExitStack() as opened:
        warm = None
        coordinator = replace(settings.coordinator, workers=0)
        if asked is None:  # before any connection or thread of ours exists
            warm = WarmParent.fork({**children, WORKER_ROLE: worker_role(work)})
            opened.callback(warm.close)
            if (reason := warm.fork_safety()) is not None:
                fresh.check(reason)
            coordinator = settings.coordinator
        backends = connect(settings.places)
        opened.callback(backends.close)
        return Command(request, backends, coordinator, warm=warm, fresh=fresh).run()


def _check_asked(asked: AskedRole, name: str) -> None:
    if asked.kind == CHECK:
        raise UserError(
            "`sweeper check` runs scripts with @hydra.main only",
            remedy="call sweeper.resume in the function and compare two runs, one of them killed in the middle",
        )
    if asked.sweep is not None and asked.sweep != name:
        raise UserError(f"this command runs the sweep {name!r}, and {asked.sweep!r} was asked for", remedy=_ONE_SWEEP)
