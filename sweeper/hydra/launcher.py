"""`hydra/launcher=sweeper`: the set-up of one command, and what happens in it before anything of ours is connected.

`prepare` is the launcher's set-up. In a worker or child process it takes over and never returns. In the command itself
it forks the root warm parent, while the process holds no connection or thread of ours, and only then connects.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from hydra.errors import HydraException
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from sweeper.errors import UserError
from sweeper.hydra.answering import answering
from sweeper.hydra.checking import Checking
from sweeper.hydra.compose import TemplateLoader, override_lines
from sweeper.hydra.directories import claim_sweep_dir, pin_sweep_dir, resolve_sweep_dir
from sweeper.hydra.launching import Launch
from sweeper.hydra.naming import ChosenName, choose_name, default_name, sweep_dir_expression
from sweeper.hydra.settings import check_overrides, read_settings
from sweeper.hydra.task import HydraTask
from sweeper.launch.settings import LauncherSettings
from sweeper.launch.task import Task, check_same_task, describe_task
from sweeper.launch.worker_role import CHECK, WORKER, Work, asked_role, be_worker, worker_role
from sweeper.ledger.sweeps import find_sweep
from sweeper.model.trial import Sweep
from sweeper.trial.child import child_role
from sweeper.trial.child_starter import CHILD_ROLE
from sweeper.trial.fresh import FreshParent, run_role_from_environment
from sweeper.trial.spawning import Role
from sweeper.trial.warm_parent import WarmParent
from sweeper.wiring import WORKER_ROLE, connect

log = logging.getLogger("sweeper.launcher")
_MAX_PRIMED = 4


def prepare(context: HydraContext, function: TaskFunction, config: DictConfig) -> Launch | Checking:
    """Set the launcher up for one command; bad input ends the process with status 2 and one message.

    In a process that was started as a worker or a child, takes over and never returns.
    """
    with answering():
        asked = asked_role()
        check_overrides(config)
        loader = TemplateLoader(context.config_loader)
        context.config_loader = loader
        settings = read_settings(config)
        task = describe_task(function)
        trial_task = HydraTask(
            context=context, loader=loader, function=function, master=config, identity=settings.identity
        )
        children = {CHILD_ROLE: child_role(trial_task)}
        work = Work(
            children=children,
            fallback=FreshParent(None, children),
            places=settings.places,
            settings=settings.worker,
            output_subdir=trial_task.output_subdir,
        )
        roles = {**children, WORKER_ROLE: worker_role(work)}
        if asked is None:
            run_role_from_environment(roles)
        if asked is not None and asked.kind == CHECK:
            return Checking(loader=loader, config=config, settings=settings, children=children)
        _prime(loader, config)
        if asked is not None and asked.kind == WORKER:
            be_worker(work, asked.sweep or settings.name or _name_here(settings, task, config))
        return _begin(loader, config, settings, task, roles if asked is None else None, asked.sweep if asked else None)


def _begin(
    loader: TemplateLoader,
    config: DictConfig,
    settings: LauncherSettings,
    task: Task,
    roles: dict[str, Role] | None,
    named: str | None,
) -> Launch:
    """Fork, connect, find the sweep that is meant, and pin its directory. What was opened is closed on bad input."""
    with contextlib.ExitStack() as opened:
        warm = None
        if roles is None:
            settings = dataclasses.replace(settings, coordinator=dataclasses.replace(settings.coordinator, workers=0))
        else:
            warm = WarmParent.fork(roles)
            opened.callback(warm.close)
        logging.getLogger("alembic").setLevel(logging.WARNING)  # a first start's migrations are no news to this reader
        backends = connect(settings.places)
        opened.callback(backends.close)
        chosen = _choose(named or settings.name, task, config, lambda name: find_sweep(backends.database, name))
        if chosen.existing is not None:
            check_same_task(chosen.existing, task, name_setting="hydra.launcher.name")
        _say_what_was_chosen(chosen, task, config)
        pin_sweep_dir(config, _sweep_dir(config, chosen))
        opened.pop_all()
    return Launch(
        loader=loader,
        config=config,
        settings=settings,
        task=task,
        name=chosen.name,
        default_named=named is None and settings.name is None,
        backends=backends,
        warm=warm,
        fallback=FreshParent(None, roles) if roles is not None else None,
    )


def _say_what_was_chosen(chosen: ChosenName, task: Task, config: DictConfig) -> None:
    if chosen.superseded is not None:
        log.warning(
            "sweep %r is finished and %s has changed since: this is a new sweep, %r (to continue the old one: "
            "hydra.launcher.name=%s)",
            chosen.superseded,
            task.file.name,
            chosen.name,
            chosen.superseded,
        )
    if config.hydra.sweeper.get("max_batch_size") is not None:
        log.warning("with hydra.sweeper.max_batch_size, a failed trial keeps Hydra from launching the later batches")


def _choose(name: str | None, task: Task, config: DictConfig, find: Callable[[str], Sweep | None]) -> ChosenName:
    default = default_name(str(config.hydra.job.name), task, sweep_dir_expression(config))
    return choose_name(name, default, task.source_digest, find)


def _name_here(settings: LauncherSettings, task: Task, config: DictConfig) -> str:
    """The default name, for a worker that was started by hand on the machine of the command."""
    with connect(settings.places).database as database:
        chosen = _choose(None, task, config, lambda name: find_sweep(database, name))
    if chosen.existing is None:
        raise UserError(
            f"there is no sweep {chosen.name!r} in this ledger",
            remedy="start the sweep's own command first, or name its sweep: sweeper worker --sweep NAME -- …",
        )
    return chosen.name


def _sweep_dir(config: DictConfig, chosen: ChosenName) -> Path:
    if chosen.existing is not None:
        return Path(chosen.existing.sweep_dir)
    wanted, fresh = resolve_sweep_dir(config)
    return claim_sweep_dir(wanted, chosen.name, fresh=fresh)


def _prime(loader: TemplateLoader, config: DictConfig) -> None:
    """Make the templates that this command's jobs are likely to need, so that workers and children inherit them."""
    for count, job in enumerate(_likely_jobs(loader, config)):
        if count >= _MAX_PRIMED:
            break
        loader.prime(config, job)


def _likely_jobs(loader: TemplateLoader, config: DictConfig) -> Iterator[list[str]]:
    """One job for each combination of swept groups, with the first value of everything else."""
    jobs: list[dict[str, str]] = [{}]
    try:
        lines = [f"{key}={value}" for key, value in (config.hydra.sweeper.get("params") or {}).items()]
        lines += override_lines(config, "task")
        for line in lines:
            override = loader.parse(line)
            key = override.get_key_element()
            if not override.is_sweep_override():
                values = [override.get_value_element_as_str()]
            elif override.is_discrete_sweep():
                values = list(override.sweep_string_iterator())
            else:
                return
            if not loader.is_group(config, override.key_or_group):
                values = values[:1]
            jobs = [{**job, key: value} for job in jobs for value in values][:_MAX_PRIMED]
    except (HydraException, OmegaConfBaseException):
        return  # said by the sweeper
    for job in jobs:
        yield [f"{key}={value}" for key, value in job.items()]
