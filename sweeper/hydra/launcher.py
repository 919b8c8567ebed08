"""`hydra/launcher=sweeper`: the set-up of one command whose jobs another sweeper makes."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from hydra.errors import HydraException
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from sweeper.hydra.answering import answering
from sweeper.hydra.checking import Checking
from sweeper.hydra.command import begin, prepare_process
from sweeper.hydra.compose import TemplateLoader, override_lines
from sweeper.hydra.launching import Launch
from sweeper.hydra.settings import check_overrides, read_settings
from sweeper.launch.worker_role import asked_role

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
        prepared = prepare_process(
            context, function, config, loader=loader, settings=settings, asked=asked, is_search=False
        )
        if prepared.is_check:
            return Checking(loader=loader, config=config, settings=settings, children=prepared.work.children)
        _prime(loader, config)
        prepared.work_if_asked()
        command = begin(prepared)
        if config.hydra.sweeper.get("max_batch_size") is not None:
            log.warning("with hydra.sweeper.max_batch_size, a failed trial keeps Hydra from launching later batches")
        return Launch(command)


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
