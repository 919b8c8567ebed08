"""What one call asks for: all that was given, checked as a whole before anything is written or started (CLEAR)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sweeper.coordinator.parts import SearchLimits, SearchPlan
from sweeper.errors import UserError
from sweeper.launch.settings import LauncherSettings
from sweeper.launch.task import Task
from sweeper.model.trial import SweepSpec
from sweeper.plain.config import Configs, check_places, check_secrets
from sweeper.plain.objective import Function, describe_objective
from sweeper.plain.search import SEARCH_KEYS, read_failure_rate, read_points, read_search, read_stop
from sweeper.plain.settings import GROUPS, MAPPING, SETTINGS, TEXT, checked, read_settings, read_values
from sweeper.plain.space import read_space

OWN_KEYS: Final = ("base", "directory")
SETTING_KEYS: Final = (*(name for name in SETTINGS if "." not in name), *GROUPS)
KEYS: Final = ("space", *SEARCH_KEYS, *OWN_KEYS, *SETTING_KEYS)
"""Everything that `sweeper.sweep` takes beside the objective, and that a file may hold."""
_FOLDER: Final = "sweeps"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """A checked call."""

    function: Function
    task: Task
    name: str
    configs: Configs
    plan: SearchPlan
    settings: LauncherSettings
    values: Mapping[str, Any] = field(repr=False)  # Any: the settings as given; may hold a URL with a password
    directory: Path

    def spec(self, sweep_dir: Path) -> SweepSpec:
        """Give what the sweep's row is written from."""
        settings = self.settings
        return SweepSpec(
            name=self.name,
            task=self.task.name,
            source_digest=self.task.source_digest,
            sweep_dir=str(sweep_dir),
            store_url=settings.places.store_url,
            seed=settings.seed,
            search=self.plan.spec.as_json(),
            identity={
                "ignore": list(settings.identity.ignore),
                "version": settings.identity.version,
                "unstable_resolvers": [],
                "allow_missing": False,
            },
            retry=settings.retry,
            checkpoint_keep=settings.worker.checkpoint.keep,
            default_named=False,
        )


def read_request(
    function: Function, given: Mapping[str, Any], *, elsewhere: bool = False
) -> SweepRequest:  # Any: checked here
    """Check a call.

    Args:
        function: the objective.
        given: the rest, by the names of `KEYS`; None means: as if it were not given.
        elsewhere: whether the sweep's workers are started elsewhere, so that `workers` says nothing unless it is given.

    Raises:
        UserError: names what is wrong and the remedy.
    """
    task = describe_objective(function)
    values = read_values({key: given.get(key) for key in SETTING_KEYS})
    settings = read_settings(values)
    if settings.name is None:
        raise UserError("the sweep has no name", remedy="give one: running the same name again is resuming it")
    space = read_space(given.get("space") or {})
    base = given.get("base")
    configs = Configs({} if base is None else checked(MAPPING, "base", base), settings.identity)
    check_places(configs, space)
    workers = None if elsewhere and given.get("workers") is None else settings.workers
    spec = read_search(given, space, workers=workers, fixed=configs.fixed_lines())
    check_secrets([configs.text(configs.base), str(spec.as_json())], settings.places)
    value, timeout_s = read_stop(given.get("stop"))
    limits = SearchLimits(
        value=value, timeout_s=timeout_s, max_failure_rate=read_failure_rate(given.get("max_failure_rate"))
    )
    return SweepRequest(
        function=function,
        task=task,
        name=settings.name,
        configs=configs,
        plan=SearchPlan(
            spec=spec,
            compose=lambda number, params: configs.identify(params),
            enqueue=read_points(given.get("enqueue"), space),
            limits=limits,
        ),
        settings=settings,
        values=values,
        directory=_directory(given.get("directory"), settings.name),
    )


def _directory(given: object, name: str) -> Path:
    """Where a new sweep's trials write: as given, or named for the sweep below the working directory."""
    if given is not None:
        return (
            Path(checked(TEXT, "directory", str(given) if isinstance(given, Path) else given)).expanduser().absolute()
        )
    readable = re.sub(r"[^\w.+-]+", "_", name).strip("._") or "sweep"
    return Path.cwd() / _FOLDER / readable
