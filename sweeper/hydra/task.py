"""What a child runs: the trial's config composed anew, checked against its hash, then run as Hydra runs a job."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

from hydra.core.utils import JobStatus, run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict, read_write

from sweeper.hydra.compose import TemplateLoader
from sweeper.hydra.directories import literal, set_job, trial_subdir
from sweeper.hydra.identity import config_hash
from sweeper.model.messages import Start
from sweeper.model.trial import Grant
from sweeper.settings import IdentitySettings
from sweeper.trial.child import ConfigDiffers


class HydraTask:
    """The user's task function under Hydra; implements `sweeper.trial.child.TrialTask`."""

    def __init__(
        self,
        *,
        context: HydraContext,
        loader: TemplateLoader,
        function: TaskFunction,
        master: DictConfig,
        identity: IdentitySettings,
    ) -> None:
        self._context = context
        self._loader = loader
        self._function = function
        self._master = master
        self._identity = identity

    def prepare(self, start: Start) -> Callable[[], object]:
        """Compose the trial's config and check its hash; see `TrialTask.prepare`.

        Raises:
            ConfigDiffers: this machine, script or config directory gives another config.
        """
        setup_globals()
        config = self._loader.compose(self._master, start.overrides, position=start.number)
        found = self._hash(config)
        if found != start.config_hash:
            raise ConfigDiffers(
                f"trial {start.number} ({' '.join(start.overrides)}) has config {start.config_hash[:12]}, but it is "
                f"{found[:12]} as composed here. Other config files, another version of the script, or a value that "
                "depends on the machine: list its resolver in hydra.launcher.identity.unstable_resolvers, or the key "
                "in hydra.launcher.identity.ignore."
            )
        set_job(config, start.number)
        with read_write(config.hydra), open_dict(config.hydra):
            config.hydra.sweep.dir = literal(start.sweep_dir)
            config.hydra.sweep.subdir = literal(start.output_subdir)
        return functools.partial(self._run, config, list(start.overrides))

    def output_subdir(self, grant: Grant) -> str:
        """Give a trial's own directory below the sweep's."""
        config = self._loader.compose(self._master, grant.overrides, position=grant.number)
        return trial_subdir(config, grant.number)

    def _run(self, config: DictConfig, overrides: list[str]) -> object:
        sys.argv = [sys.argv[0], *overrides]
        result = run_job(
            hydra_context=self._context,
            task_function=self._function,
            config=config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )
        if result.status is JobStatus.COMPLETED:
            value: object = result.return_value
            return value
        raise result._return_value  # `return_value` would print Hydra's own line first

    def _hash(self, config: DictConfig) -> str:
        return config_hash(
            config,
            ignore=self._identity.ignore,
            version=self._identity.version,
            unstable_resolvers=self._identity.unstable_resolvers,
            allow_missing=self._identity.allow_missing,
        )
