"""One command's search: checked, begun or matched, coordinated to its end, and its results handed to Hydra."""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from hydra.errors import HydraException
from hydra.types import HydraContext
from omegaconf import OmegaConf

from sweeper.cli.progress import open_progress
from sweeper.clock import SystemClock
from sweeper.coordinator.leaving import CoordinatorEnd
from sweeper.coordinator.parts import SearchPlan
from sweeper.errors import UserError
from sweeper.hydra.answering import INTERRUPTED, answering, leave
from sweeper.hydra.command import Command, begin_output
from sweeper.hydra.composing import HydraComposer
from sweeper.hydra.directories import pin_sweep_dir
from sweeper.hydra.exit_status import leave_with
from sweeper.hydra.received import as_received
from sweeper.hydra.search_arguments import SearchArguments, grid_size
from sweeper.hydra.search_returns import Batch, SearchReturns
from sweeper.hydra.search_settings import SearchSettings
from sweeper.hydra.space_function import SpaceFunction
from sweeper.launch.begun_trials import check_begun_trials
from sweeper.launch.search_end import say_search_end
from sweeper.launch.telling import FailureLog
from sweeper.ledger.matching import search_notices
from sweeper.ledger.proposals import history
from sweeper.ledger.reads import trials as read_trials
from sweeper.model.rungs import check_scheduler
from sweeper.model.search import SearchSpec
from sweeper.model.states import TrialState
from sweeper.model.tagged import to_tagged
from sweeper.model.trial import Json, Sweep
from sweeper.results.files import write_results
from sweeper.results.loading import read_results
from sweeper.trial.fresh import FreshParent
from sweeper.wiring import begin_asking, begin_sweep, coordinate

log = logging.getLogger("sweeper.launcher")
_AGAIN: Final = "run the same command again to go on from there"


class Search:
    """A command that is set up; called once."""

    def __init__(
        self,
        command: Command,
        context: HydraContext,
        search: SearchSettings,
        read: Callable[[Sequence[str]], SearchArguments],
        *,
        workers: int | None,
    ) -> None:
        """Remember what was set up.

        Args:
            command: forked and connected.
            context: Hydra's, for its callbacks.
            search: `hydra.sweeper`.
            read: reads the command line's overrides, with those of the config.
            workers: how many there are; None where they are started elsewhere and nobody said how many.
        """
        self._command = command
        self._context = context
        self._search = search
        self._read = read
        self._workers = workers
        weakref.finalize(self, command.close)

    def __call__(self, arguments: list[str]) -> list[Batch]:
        """Search; one result for each number, in batches.

        Raises:
            SystemExit: 2 for bad input, before any row; 75 when the command was told to leave; 1 when it cannot go on.
            JobCompositionError: a config cannot be composed (Hydra prints it).
        """
        with answering():
            try:
                return self._run(self._received(self._read(arguments)))
            except KeyboardInterrupt:
                leave(f"interrupted; {_AGAIN}", INTERRUPTED)

    def _received(self, arguments: SearchArguments) -> SearchArguments:
        """Dimensions in the types that the config declares."""
        prepared = self._command.prepared
        self._check_identity(arguments)
        try:
            first = prepared.loader.compose(prepared.config, arguments.overrides(arguments.first()), position=0)
        except HydraException:
            if self._search.custom_space is None:
                raise
            return arguments  # the function may leave out what does not fit
        return as_received(
            arguments, first, is_group=lambda name: prepared.loader.is_group(prepared.config, name.partition("@")[0])
        )

    def _check_identity(self, arguments: SearchArguments) -> None:
        for ignored in self._command.prepared.settings.identity.ignore:
            for name in arguments.space:
                if name == ignored or name.startswith((f"{ignored}.", f"{ignored}[")):
                    raise UserError(
                        f"{name} is searched, and hydra.launcher.identity.ignore leaves {ignored} out of the identity: "
                        "all its values would be one config",
                        remedy="take it out of one of them",
                    )

    def _run(self, arguments: SearchArguments) -> list[Batch]:
        command, prepared = self._command, self._command.prepared
        begin_output(prepared.config)
        spec = self._search.spec(arguments.space, arguments.fixed, workers=self._workers)
        notices = [*arguments.notices, *self._check(spec)]
        enqueue = self._enqueued(spec)
        with contextlib.ExitStack() as opened:
            function = self._function(arguments)
            if function is not None:
                opened.callback(function.close)
            known = command.known()
            composer = HydraComposer(
                prepared.loader,
                prepared.config,
                arguments,
                identity=prepared.settings.identity,
                places=prepared.settings.places,
                existing=lambda: command.existing(command.known()),
                function=function,
            )
            composer.check()
            sweep_dir = Path(known.sweep_dir if known else str(prepared.config.hydra.sweep.dir))
            sweep_spec = command.spec(sweep_dir, search=spec.as_json())
            notices += search_notices(known, sweep_spec)
            if known is not None:
                notices += check_begun_trials(
                    command.backends.database, known, composer.hash_now, fixed="the config (or identity.version)"
                )
            sweep = begin_sweep(command.backends, sweep_spec)
            self._begin_files(sweep)
            for notice in notices:
                log.warning("%s", notice)
            plan = SearchPlan(
                spec=spec, compose=composer, enqueue=enqueue, suggest_more=function, limits=self._search.limits
            )
            end = self._coordinate(sweep, plan)
        return self._returned(sweep, composer, end)

    def _check(self, spec: SearchSpec) -> tuple[str, ...]:
        from sweeper.search.checking import check_search  # Optuna: imported only after the fork

        check_scheduler(spec)
        notices = check_search(spec)
        if not spec.space and spec.custom_space is None:
            notices = (*notices, "nothing is searched: all values are fixed, so there is one config only")
        size = grid_size(spec.space) if self._search.grid else 0
        if size > spec.n_trials:
            told = f"the grid has {size} configs, of which n_trials={spec.n_trials} takes the first"
            notices = (*notices, f"{told}: hydra.sweeper.n_trials={size} takes all")
        return notices

    def _enqueued(self, spec: SearchSpec) -> tuple[dict[str, Json], ...]:
        from sweeper.search.checking import checked_point  # Optuna: imported only after the fork

        points = []
        for point in self._search.enqueue:
            tagged = {name: to_tagged(value) for name, value in point.items()}
            points.append(checked_point(spec.space, tagged, open_space=spec.custom_space is not None))
        return tuple(points)

    def _function(self, arguments: SearchArguments) -> SpaceFunction | None:
        command = self._command
        if self._search.custom_space is None:
            return None
        if command.warm is None:
            raise AssertionError("a search with a define-by-run function forks a warm parent")
        return SpaceFunction(
            command.warm,
            FreshParent(None, command.prepared.roles),
            fixed=arguments.fixed_values,
            clock=SystemClock(),
            note=lambda text: log.warning("%s", text),
        )

    def _begin_files(self, sweep: Sweep) -> None:
        """Pin the stored directory and write the command's own config there, as Hydra's sweeper does."""
        config, folder = self._command.prepared.config, Path(sweep.sweep_dir)
        pin_sweep_dir(config, folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            temporary = folder / f".multirun.yaml.{os.getpid()}"
            OmegaConf.save(config, temporary)
            temporary.replace(folder / "multirun.yaml")
        except OSError as error:
            raise UserError(
                f"the sweep directory {folder} cannot be written: {error.strerror}",
                remedy="choose another hydra.sweep.dir",
            ) from error

    def _coordinate(self, sweep: Sweep, plan: SearchPlan) -> CoordinatorEnd:
        command, backends = self._command, self._command.backends
        log.info("sweep %r: up to %d trials", sweep.name, plan.spec.n_trials)
        with contextlib.closing(begin_asking(backends, sweep)) as asking:
            sink = FailureLog(
                open_progress(),
                lambda number: next(iter(read_trials(backends.database, sweep.sweep_id, [number])), None),
            )
            try:
                end = coordinate(
                    backends,
                    sweep,
                    asking,
                    command.prepared.settings.coordinator,
                    start_workers=command.start_worker,
                    progress=sink,
                    search=plan,
                )
                found = read_trials(backends.database, sweep.sweep_id)
                sink.advise(sweep.name, found, done=end.kind == "done")
                return end
            finally:
                sink.close()

    def _returned(self, sweep: Sweep, composer: HydraComposer, end: CoordinatorEnd) -> list[Batch]:
        database, folder = self._command.backends.database, Path(sweep.sweep_dir)
        result = read_results(database, sweep, reports=False)
        write_results(result, folder)
        counts = ", ".join(f"{count} {state.value}" for state, count in end.counts.items() if count) or "no trials"
        if end.kind == "evicted":
            leave(f"sweep {sweep.name!r} was interrupted ({end.reason}): {counts}; {_AGAIN}", INTERRUPTED)
        if end.kind == "workers_failed":
            leave(f"sweep {sweep.name!r} stopped: {end.reason}; {counts}; {_AGAIN}", 1)
        say_search_end(result, end.reason, folder)
        rows, trials = history(database, sweep.sweep_id), read_trials(database, sweep.sweep_id)
        if end.kind == "failed_fast" or any(trial.state is TrialState.FAILED for trial in trials) or not trials:
            leave_with(1, self._context)
        return SearchReturns(self._command, composer, rows, trials).batches(self._search.max_batch_size)
