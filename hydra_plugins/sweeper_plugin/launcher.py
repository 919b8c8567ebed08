"""`hydra/launcher=sweeper`: the settings node and the door to `sweeper.hydra.launcher`, which is imported at use.

No `from __future__ import annotations` here: Hydra's plugin scanner runs this module before it is in `sys.modules`,
and dataclasses look string annotations up there.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


@dataclass
class RetryConf:
    """Limits per trial; evictions and losses count toward neither crash."""

    max_crashes: int = 3
    max_no_progress: int = 10


@dataclass
class CheckpointConf:
    """When trials checkpoint (seconds) and how many checkpoints are kept."""

    every_s: float = 300.0
    keep: int = 3


@dataclass
class IdentityConf:
    """What counts as the same config (docs/config-identity.md)."""

    ignore: list[str] = field(default_factory=list)
    version: Optional[str] = None  # noqa: UP045 OmegaConf reads the annotation
    unstable_resolvers: list[str] = field(default_factory=list)
    allow_missing: bool = False


@dataclass
class SweeperLauncherConf:
    """`hydra.launcher` as it is for this launcher; docs/hydra.md explains each."""

    _target_: str = "hydra_plugins.sweeper_plugin.launcher.SweeperLauncher"
    name: Optional[str] = None  # noqa: UP045
    workers: Optional[int] = None  # noqa: UP045
    engine: str = "local"
    database: Optional[str] = None  # noqa: UP045
    store: Optional[str] = None  # noqa: UP045
    seed: int = 0
    fail_fast: bool = False
    threads: Optional[int] = None  # noqa: UP045
    lease_s: float = 60.0
    heartbeat_s: float = 15.0
    blind_s: float = 1800.0
    grace_s: float = 30.0
    signals: list[str] = field(default_factory=lambda: ["TERM", "INT"])
    hang_s: Optional[float] = None  # noqa: UP045
    retry: RetryConf = field(default_factory=RetryConf)
    checkpoint: CheckpointConf = field(default_factory=CheckpointConf)
    identity: IdentityConf = field(default_factory=IdentityConf)


ConfigStore.instance().store(group="hydra/launcher", name="sweeper", node=SweeperLauncherConf, provider="sweeper")


class SweeperLauncher(Launcher):
    """Hydra's side of the launcher; the work is done in `sweeper.hydra.launcher`."""

    def __init__(self, **_: Any) -> None:  # Any: the node's values, read again from the config in `setup`
        self._launch: Any = None  # Any: imported at use

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Take over if this process is a worker or child, else prepare the sweep; bad input leaves with 2."""
        from sweeper.hydra.launcher import prepare

        self._launch = prepare(hydra_context, task_function, config)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs; one result per job, in order."""
        returns: Sequence[JobReturn] = self._launch(job_overrides, initial_job_idx)
        return returns


class SweeperRolePlugin(SearchPathPlugin):
    """Called by Hydra before it composes anything, which is early enough for what a worker process must not do."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Leave the search path as it is. Take null as a choice, and say how to quote; in a worker or child, keep
        multirun callbacks silent.
        """
        from sweeper.hydra.arguments import explain_unquoted
        from sweeper.hydra.grammar import allow_null_choices
        from sweeper.hydra.multirun_callbacks import silence_multirun_callbacks

        allow_null_choices()
        explain_unquoted(sys.argv[1:])
        silence_multirun_callbacks()
