"""A command that is set up: the sweep begun or matched, coordinated to its end, and its results given."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from sweeper.cli.progress import is_live, open_progress
from sweeper.coordinator.leaving import CoordinatorEnd
from sweeper.coordinator.parts import SearchPlan
from sweeper.errors import UserError
from sweeper.ids import ConfigHash
from sweeper.launch.begun_trials import check_begun_trials
from sweeper.launch.console import log_above_display
from sweeper.launch.local_workers import WorkerStarter
from sweeper.launch.search_end import say_search_end
from sweeper.launch.task import check_same_task
from sweeper.launch.telling import FailureLog
from sweeper.ledger.matching import search_notices
from sweeper.ledger.reads import trials as read_trials
from sweeper.ledger.sweeps import find_sweep
from sweeper.model.trial import Sweep, Trial
from sweeper.plain.config import read_overrides
from sweeper.plain.ends import Interrupted, SweepFailed
from sweeper.plain.fresh import ImportingParent
from sweeper.plain.request import SweepRequest
from sweeper.results.files import write_results
from sweeper.results.loading import read_results
from sweeper.results.records import SweepResult
from sweeper.settings import CoordinatorSettings
from sweeper.trial.warm_parent import WarmParent
from sweeper.wiring import Backends, begin_asking, begin_sweep, coordinate

log = logging.getLogger("sweeper.launcher")
_OWNER_FILE: Final = ".sweep"
_AGAIN: Final = "the same command goes on from there"


class Command:
    """One call of `sweeper.sweep`, connected."""

    def __init__(
        self,
        request: SweepRequest,
        backends: Backends,
        settings: CoordinatorSettings,
        *,
        warm: WarmParent | None,
        fresh: ImportingParent,
    ) -> None:
        """Remember what was set up.

        Args:
            request: the checked call.
            backends: ledger and store.
            settings: the coordinator's.
            warm: forks local workers; None without any.
            fresh: starts them where forking proves impossible.
        """
        self._request = request
        self._backends = backends
        self._settings = settings
        self._start_worker = WorkerStarter(warm, fresh, sweep=request.name, gpus=request.settings.gpus, verbose=False)

    def run(self) -> SweepResult:
        """Search to the end, write the results beside the trials, and give them.

        Raises:
            UserError: the sweep differs from the one of this name; nothing was written.
            Interrupted: the process is to leave.
            SweepFailed: the search cannot go on.
        """
        request, backends = self._request, self._backends
        plan, notices = self._checked_plan()
        known = find_sweep(backends.database, request.name)
        if known is not None:
            check_same_task(known, request.task, name_setting="name")
            told = check_begun_trials(backends.database, known, self._hash_now, fixed="base (or identity.version)")
            notices = (*notices, *told)
        spec = request.spec(Path(known.sweep_dir) if known else claim_directory(request.directory, request.name))
        notices = (*notices, *search_notices(known, spec))
        sweep = begin_sweep(backends, spec)
        end = self._coordinate(sweep, plan, notices)
        return self._ended(sweep, end)

    def _checked_plan(self) -> tuple[SearchPlan, tuple[str, ...]]:
        from sweeper.search.checking import check_search, checked_point  # Optuna: imported only after the fork

        plan = self._request.plan
        notices = check_search(plan.spec)
        points = tuple(checked_point(plan.spec.space, point, open_space=False) for point in plan.enqueue)
        return replace(plan, enqueue=points), notices

    def _coordinate(self, sweep: Sweep, plan: SearchPlan, notices: tuple[str, ...]) -> CoordinatorEnd:
        backends = self._backends
        if is_live():
            log_above_display()
        with contextlib.closing(begin_asking(backends, sweep)) as asking:
            sink = FailureLog(
                open_progress(),
                lambda number: next(iter(read_trials(backends.database, sweep.sweep_id, [number])), None),
            )
            try:
                for notice in notices:
                    sink.note(notice)
                end = coordinate(
                    backends,
                    sweep,
                    asking,
                    self._settings,
                    start_workers=self._start_worker,
                    progress=sink,
                    search=plan,
                )
                self._advise(sweep, end, sink)
                return end
            finally:
                sink.close()

    def _advise(self, sweep: Sweep, end: CoordinatorEnd, sink: FailureLog) -> None:
        if end.kind == "evicted":
            counts = ", ".join(f"{count} {state.value}" for state, count in end.counts.items() if count)
            sink.note(f"sweep {sweep.name!r} was interrupted ({end.reason}): {counts or 'no trials'}; {_AGAIN}")
            return
        sink.advise(sweep.name, self._trials(sweep), done=end.kind == "done")

    def _ended(self, sweep: Sweep, end: CoordinatorEnd) -> SweepResult:
        folder = Path(sweep.sweep_dir)
        result = read_results(self._backends.database, sweep)
        try:
            write_results(result, folder)
        except OSError as error:
            log.warning("the results cannot be written to %s: %s", folder, error.strerror)
        if end.kind == "evicted":
            raise Interrupted(sweep.name, end.reason)
        if end.kind == "workers_failed":
            raise SweepFailed(sweep.name, end.reason)
        say_search_end(result, end.reason, folder)
        if end.kind == "failed_fast":
            raise SweepFailed(sweep.name, end.reason)
        return result

    def _hash_now(self, overrides: Sequence[str]) -> ConfigHash:
        return self._request.configs.identify(read_overrides(overrides)).config_hash

    def _trials(self, sweep: Sweep) -> list[Trial]:
        return read_trials(self._backends.database, sweep.sweep_id)


def claim_directory(directory: Path, name: str) -> Path:
    """Give the directory in which a new sweep begins; no other sweep's trials write there.

    Raises:
        UserError: it belongs to another sweep, or cannot be written.
    """
    owner = directory / _OWNER_FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        try:
            with owner.open("x", encoding="utf-8") as file:
                file.write(name)
        except FileExistsError:
            if (other := owner.read_text(encoding="utf-8")) not in ("", name):
                raise UserError(
                    f"the directory {directory} belongs to the sweep {other!r}", remedy="choose another: directory=…"
                ) from None
    except OSError as error:
        raise UserError(
            f"the directory {directory} cannot be written: {error.strerror}", remedy="choose another: directory=…"
        ) from error
    return directory
