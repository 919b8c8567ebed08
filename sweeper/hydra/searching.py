"""`hydra/sweeper=sweeper`: the set-up of one command that searches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from sweeper.errors import UserError
from sweeper.hydra.answering import answering
from sweeper.hydra.checking import Checking
from sweeper.hydra.command import Prepared, begin, prepare_process
from sweeper.hydra.compose import TemplateLoader, override_lines
from sweeper.hydra.search import Search
from sweeper.hydra.search_arguments import SearchArguments, read_arguments
from sweeper.hydra.search_params import params_lines
from sweeper.hydra.search_settings import SearchSettings, read_search_settings
from sweeper.hydra.settings import check_lines, check_overrides, read_settings
from sweeper.hydra.space_process import SPACE_ROLE, space_role
from sweeper.hydra.space_syntax import SweptReader
from sweeper.launch.settings import LauncherSettings
from sweeper.launch.worker_role import asked_role

Sweep = Callable[[list[str]], Any]  # Any: what Hydra returns from a multirun


def prepare_search(context: HydraContext, function: TaskFunction, config: DictConfig) -> Sweep:
    """Set the search up for one command; bad input ends the process with status 2 and one message.

    In a process that was started as a worker or a child, takes over and never returns.
    """
    with answering():
        asked = asked_role()
        check_overrides(config)
        loader = TemplateLoader(context.config_loader)
        context.config_loader = loader
        search = read_search_settings(config)
        prepared = prepare_process(
            context,
            function,
            config,
            loader=loader,
            settings=_settings(config, search),
            asked=asked,
            is_search=True,
            more_roles={SPACE_ROLE: space_role(config, search.custom_space)} if search.custom_space else None,
        )

        def read(task: Sequence[str]) -> SearchArguments:
            return _arguments(prepared, search, task)

        arguments = read(override_lines(config, "task"))
        first = arguments.overrides(arguments.first())
        if prepared.is_check:
            checking = Checking(
                loader=loader, config=config, settings=prepared.settings, children=prepared.work.children
            )
            return lambda _: checking([first], 0)
        loader.prime(config, first)
        prepared.work_if_asked()
        command = begin(prepared)
        return Search(command, context, search, read, workers=_workers(config, prepared))


def _settings(config: DictConfig, search: SearchSettings) -> LauncherSettings:
    """The launcher's settings, with what the plugin's names say of them."""
    node = config.hydra.launcher
    given: dict[str, object] = {}
    if search.name is not None:
        if node.name not in (None, search.name):
            raise UserError(
                f"hydra.sweeper.study_name={search.name} and hydra.launcher.name={node.name} are two names for one "
                "sweep",
                remedy="set one of them",
            )
        given["name"] = search.name
    if search.seed is not None:
        given["seed"] = search.seed
    if search.workers is not None and node.workers is None:
        given["workers"] = search.workers
    return read_settings(config, given=given)


def _workers(config: DictConfig, prepared: Prepared) -> int | None:
    """How many workers there are; None where they are started elsewhere and nobody said how many."""
    said = config.hydra.launcher.workers is not None or config.hydra.sweeper.n_jobs is not None
    return prepared.settings.workers if prepared.asked is None or said else None


def _arguments(prepared: Prepared, search: SearchSettings, task: Sequence[str]) -> SearchArguments:
    loader = prepared.loader
    lines = params_lines(search.params, loader.parse)
    check_lines(lines)
    seed = prepared.settings.seed
    reader = SweptReader(seed=seed, grid=search.grid, parse=loader.parse, options=loader.config_names)
    return read_arguments(lines, task, reader=reader, parse=loader.parse, seed=seed)
