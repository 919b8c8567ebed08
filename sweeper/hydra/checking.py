"""`sweeper check`: the launch call's first job, trained straight and with a death in the middle; nothing is stored."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import NoReturn

from omegaconf import DictConfig

from sweeper.clock import SystemClock
from sweeper.hydra.compose import TemplateLoader
from sweeper.hydra.directories import trial_subdir
from sweeper.hydra.jobs import compose_jobs
from sweeper.launch.settings import LauncherSettings
from sweeper.model.messages import Start
from sweeper.model.waits import Child
from sweeper.trial.child_starter import ChildStarter
from sweeper.trial.fresh import FreshParent, this_command
from sweeper.trial.resume_check import check_resume, with_hash_seed
from sweeper.trial.spawning import Role


class Checking:
    """Takes the place of a launch: checks the first job, says what was found, and ends the process."""

    def __init__(
        self, *, loader: TemplateLoader, config: DictConfig, settings: LauncherSettings, children: Mapping[str, Role]
    ) -> None:
        self._loader = loader
        self._config = config
        self._settings = settings
        self._children = children

    def __call__(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> NoReturn:
        """Check; leaves with 0 when the script resumes exactly, else with 1."""
        jobs = compose_jobs(self._loader, self._config, job_overrides[:1], initial_job_idx, self._settings.identity)
        job = jobs[0]
        print(f"checking {' '.join(job.overrides) or 'the config as it is'}", flush=True)
        with tempfile.TemporaryDirectory(prefix="sweeper-check-") as folder:
            start = Start(
                number=0,
                config_hash=job.config_hash,
                overrides=list(job.overrides),
                sweep_dir=folder,
                output_subdir=trial_subdir(job.config, 0),
                attempt=1,
                fence=1,
                seed=self._settings.seed,
                threads=self._settings.worker.threads,
                gpu=self._settings.gpus[0] if self._settings.gpus else None,
                every_s=1.0,
                restore=None,
                first_seq=1,
            )
            finding = check_resume(self._starter(), start, tell=lambda text: print(f"  {text}", flush=True))
        print("exact:" if finding.exact else "NOT EXACT:", *finding.lines, sep="\n  ", flush=True)
        raise SystemExit(0 if finding.exact else 1)

    def _starter(self) -> StartFresh:
        parent = FreshParent(this_command(), self._children)
        return StartFresh(ChildStarter(parent, fallback=None, clock=SystemClock()))


class StartFresh:
    """Starts children in fresh interpreters, each under a hash seed of its own."""

    def __init__(self, starter: ChildStarter) -> None:
        self._starter = starter

    def __call__(self, start: Start, restore_fd: int | None, hash_seed: int) -> Child:
        """Start one."""
        with_hash_seed(hash_seed)
        return self._starter.start(start, restore_fd)
