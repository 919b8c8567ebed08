"""One multirun command, whichever of our plugins it came through: what its processes may become, and how it begins.

In a worker or child process a role takes over and nothing returns. In the command itself the root warm parent is
forked while the process holds no connection or thread of ours, and only then is anything connected.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hydra.core.utils import configure_log, setup_globals
from hydra.errors import HydraException
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from sweeper.cli.progress import is_live
from sweeper.errors import UserError
from sweeper.hydra.compose import TemplateLoader
from sweeper.hydra.directories import claim_sweep_dir, pin_sweep_dir, resolve_sweep_dir
from sweeper.hydra.naming import ChosenName, choose_name, default_name, sweep_dir_expression
from sweeper.hydra.space_process import SPACE_ROLE
from sweeper.hydra.task import HydraTask
from sweeper.launch.console import log_above_display
from sweeper.launch.local_workers import WorkerStarter
from sweeper.launch.settings import LauncherSettings
from sweeper.launch.task import Task, check_same_task, describe_task
from sweeper.launch.worker_role import CHECK, WORKER, AskedRole, Work, be_worker, worker_role
from sweeper.ledger.reads import trials as read_trials
from sweeper.ledger.sweeps import find_sweep
from sweeper.model.trial import Json, Sweep, SweepSpec, Trial
from sweeper.trial.child import child_role
from sweeper.trial.child_starter import CHILD_ROLE
from sweeper.trial.fresh import FreshParent, run_role_from_environment
from sweeper.trial.spawning import Role
from sweeper.trial.warm_parent import WarmParent
from sweeper.wiring import WORKER_ROLE, Backends, connect

log = logging.getLogger("sweeper.launcher")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A process that runs the command's script, before it forks or connects."""

    loader: TemplateLoader
    config: DictConfig
    settings: LauncherSettings
    task: Task
    work: Work
    roles: Mapping[str, Role]
    asked: AskedRole | None
    """What `sweeper worker`, `coordinate` or `check` want of it; None in the command itself."""
    is_search: bool
    """Whether its sweep is a search, and not a grid of given jobs."""

    @property
    def is_check(self) -> bool:
        """Whether `sweeper check` started it."""
        return self.asked is not None and self.asked.kind == CHECK

    def work_if_asked(self) -> None:
        """In a process that `sweeper worker` started, be that worker and never return."""
        if self.asked is not None and self.asked.kind == WORKER:
            be_worker(self.work, self.asked.sweep or self.settings.name or _name_here(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The command itself: forked, connected, and with the sweep known that it means."""

    prepared: Prepared
    name: str
    default_named: bool
    backends: Backends
    warm: WarmParent | None
    """None where workers are started elsewhere (`sweeper coordinate`) and nothing else has to be forked."""
    start_worker: WorkerStarter

    def close(self) -> None:
        """Let go of what was opened."""
        self.backends.close()
        if self.warm is not None:
            self.warm.close()

    def known(self) -> Sweep | None:
        """The sweep as the ledger has it now; None before it has begun."""
        return find_sweep(self.backends.database, self.name)

    def spec(self, sweep_dir: Path, *, search: Mapping[str, Json] | None = None) -> SweepSpec:
        """Give what the sweep's row is written from or matched against."""
        settings, identity, task = self.prepared.settings, self.prepared.settings.identity, self.prepared.task
        return SweepSpec(
            name=self.name,
            task=task.name,
            source_digest=task.source_digest,
            sweep_dir=str(sweep_dir),
            store_url=self.backends.store.url,
            seed=settings.seed,
            search=search,
            identity={
                "ignore": list(identity.ignore),
                "version": identity.version,
                "unstable_resolvers": list(identity.unstable_resolvers),
                "allow_missing": identity.allow_missing,
            },
            retry=settings.retry,
            checkpoint_keep=settings.worker.checkpoint.keep,
            default_named=self.default_named,
        )

    def existing(self, sweep: Sweep | None) -> Iterator[tuple[Trial, DictConfig]]:
        """A sweep's trials with their configs; one that cannot be composed any more claims no directory."""
        loader, config = self.prepared.loader, self.prepared.config
        for trial in read_trials(self.backends.database, sweep.sweep_id) if sweep else ():
            with contextlib.suppress(HydraException):
                yield trial, loader.compose(config, trial.overrides, position=trial.number)


def prepare_process(
    context: HydraContext,
    function: TaskFunction,
    config: DictConfig,
    *,
    loader: TemplateLoader,
    settings: LauncherSettings,
    asked: AskedRole | None,
    is_search: bool,
    more_roles: Mapping[str, Role] | None = None,
) -> Prepared:
    """Say what this process and those forked from it may become; in one that was started in a role, be that.

    Raises:
        UserError: the task cannot be run by other processes.
    """
    task = describe_task(function)
    trial_task = HydraTask(context=context, loader=loader, function=function, master=config, identity=settings.identity)
    children = {CHILD_ROLE: child_role(trial_task)}
    work = Work(
        children=children,
        fallback=FreshParent(None, children),
        places=settings.places,
        settings=settings.worker,
        output_subdir=trial_task.output_subdir,
    )
    roles = {**children, WORKER_ROLE: worker_role(work), **(more_roles or {})}
    if asked is None:
        run_role_from_environment(roles)
    return Prepared(
        loader=loader,
        config=config,
        settings=settings,
        task=task,
        work=work,
        roles=roles,
        asked=asked,
        is_search=is_search,
    )


def begin(prepared: Prepared) -> Command:
    """Fork, connect, find the sweep that is meant, and pin its directory. What was opened is closed on bad input.

    Raises:
        UserError: ledger or store cannot be used, or the sweep is another task's or of another kind.
    """
    settings, config, asked = prepared.settings, prepared.config, prepared.asked
    with contextlib.ExitStack() as opened:
        warm = None
        if asked is None or SPACE_ROLE in prepared.roles:
            warm = WarmParent.fork(prepared.roles)
            opened.callback(warm.close)
        if asked is not None:
            coordinator = dataclasses.replace(settings.coordinator, workers=0)
            settings = dataclasses.replace(settings, coordinator=coordinator)
            prepared = dataclasses.replace(prepared, settings=settings)
        logging.getLogger("alembic").setLevel(logging.WARNING)  # a first start's migrations are no news to this reader
        backends = connect(settings.places)
        opened.callback(backends.close)
        named = (asked.sweep if asked else None) or settings.name
        chosen = _choose(named, prepared, lambda name: find_sweep(backends.database, name))
        if chosen.existing is not None:
            check_same_task(chosen.existing, prepared.task, name_setting="hydra.launcher.name")
            check_same_kind(chosen.existing, is_search=prepared.is_search)
        if chosen.superseded is not None:
            _say_what_was_superseded(chosen, prepared.task)
        pin_sweep_dir(config, _sweep_dir(config, chosen))
        opened.pop_all()
    return Command(
        prepared=prepared,
        name=chosen.name,
        default_named=named is None,
        backends=backends,
        warm=warm,
        start_worker=WorkerStarter(
            warm if asked is None else None,
            FreshParent(None, prepared.roles) if asked is None else None,
            sweep=chosen.name,
            gpus=settings.gpus,
            verbose=bool(config.hydra.verbose),
        ),
    )


def begin_output(config: DictConfig) -> None:
    """Let the command's own log lines appear as Hydra's configuration has them, above a live display."""
    setup_globals()
    configure_log(config.hydra.hydra_logging, config.hydra.verbose)
    if is_live():
        log_above_display()


def check_same_kind(sweep: Sweep, *, is_search: bool) -> None:
    """Refuse to mix a search and a grid of given jobs under one name.

    Raises:
        UserError: the sweep is the other one.
    """
    if (sweep.search is not None) == is_search:
        return
    kinds = "a search (hydra/sweeper=sweeper)", "a grid of given jobs"
    other, this = kinds if sweep.search is not None else kinds[::-1]
    raise UserError(
        f"sweep {sweep.name!r} is {other}, and this command is {this}",
        remedy="give this one another name: hydra.launcher.name=… (or hydra.sweeper.study_name, where that is set)",
    )


def _say_what_was_superseded(chosen: ChosenName, task: Task) -> None:
    log.warning(
        "sweep %r is finished and %s has changed since: this is a new sweep, %r (to continue the old one: "
        "hydra.launcher.name=%s)",
        chosen.superseded,
        task.file.name,
        chosen.name,
        chosen.superseded,
    )


def _choose(name: str | None, prepared: Prepared, find: Callable[[str], Sweep | None]) -> ChosenName:
    task, config = prepared.task, prepared.config
    default = default_name(str(config.hydra.job.name), task, sweep_dir_expression(config), is_search=prepared.is_search)
    return choose_name(name, default, task.source_digest, find)


def _name_here(prepared: Prepared) -> str:
    """The default name, for a worker started by hand on the machine of the command, which may be starting just now."""
    with connect(prepared.settings.places).database as database:
        return _choose(None, prepared, lambda name: find_sweep(database, name)).name


def _sweep_dir(config: DictConfig, chosen: ChosenName) -> Path:
    if chosen.existing is not None:
        return Path(chosen.existing.sweep_dir)
    wanted, fresh = resolve_sweep_dir(config)
    return claim_sweep_dir(wanted, chosen.name, fresh=fresh)
