"""The `hydra.sweeper` node, checked once: what is searched and how, apart from the space itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sweeper.coordinator.parts import SearchLimits
from sweeper.errors import UserError
from sweeper.hydra.chosen_nodes import PREFIX, chosen_node, without_seeds
from sweeper.hydra.compose import override_lines
from sweeper.hydra.search_nodes import SAMPLERS
from sweeper.hydra.search_params import refuse_old_space
from sweeper.hydra.settings import PREFIX as LAUNCHER_PREFIX
from sweeper.hydra.settings import refuse_unknown_settings
from sweeper.launch.constraints import read_constraints
from sweeper.launch.settings import check_name
from sweeper.launch.timing import search_lag
from sweeper.model.search import Constraint, Direction, SearchSpec
from sweeper.model.space import Space
from sweeper.model.trial import Json

LAUNCHER: Final = "hydra_plugins.sweeper_plugin.launcher.SweeperLauncher"
GRID: Final = str(SAMPLERS["grid"]["_target_"])
_LAUNCHER_SEED: Final = "hydra.launcher.seed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """`hydra.sweeper`, resolved; nodes have neither seeds nor keys without a value."""

    name: str | None
    """`study_name`; the launcher's own setting wins where only that is given."""
    seed: int | None
    """`sampler.seed`."""
    workers: int | None
    """`n_jobs`."""
    directions: tuple[Direction, ...]
    n_trials: int
    sampler: Mapping[str, Json]
    pruner: Mapping[str, Json] | None
    scheduler: Mapping[str, Json] | None
    deterministic: bool | None
    """None: as the number of workers has it."""
    constraints: tuple[Constraint, ...]
    custom_space: str | None
    params: object
    enqueue: tuple[Mapping[str, Any], ...]  # Any: YAML
    limits: SearchLimits
    max_batch_size: int | None

    @property
    def grid(self) -> bool:
        """Whether every config of the space is enumerated."""
        return self.sampler["_target_"] == GRID

    def spec(self, space: Space, fixed: tuple[str, ...], *, workers: int | None) -> SearchSpec:
        """Give the search as the ledger stores it.

        Args:
            space: the dimensions.
            fixed: what every trial has beside its parameters.
            workers: how many work on it; None when they are started elsewhere.

        Raises:
            UserError: `deterministic` is asked for where it cannot be.
        """
        lag = search_lag(
            self.deterministic,
            workers=workers,
            scheduler=self.scheduler is not None,
            written=lambda setting: f"{PREFIX if setting == 'deterministic' else LAUNCHER_PREFIX}{setting}",
        )
        return SearchSpec(
            directions=self.directions,
            n_trials=self.n_trials,
            space=space,
            sampler=self.sampler,
            pruner=self.pruner,
            scheduler=self.scheduler,
            deterministic=lag is not None,
            lag=lag or 1,
            constraints=self.constraints,
            custom_space=self.custom_space,
            fixed=fixed,
        )


def read_search_settings(config: DictConfig) -> SearchSettings:
    """Check `hydra.sweeper` of a composed multirun config.

    Raises:
        UserError: a value that cannot be; the message names the setting.
    """
    _refuse_other_launcher(config)
    refuse_unknown_settings(config.hydra.sweeper, PREFIX.rstrip("."))
    values = _plain(config)
    _refuse_storage(values["storage"])
    refuse_old_space(values["search_space"])
    sampler = chosen_node(config, "sampler", values["sampler"])
    if sampler is None:
        raise UserError(f"{PREFIX}sampler is empty", remedy=f"choose one of: {', '.join(SAMPLERS)}")
    name = values["study_name"]
    return SearchSettings(
        name=None if name is None else check_name(str(name), f"{PREFIX}study_name"),
        seed=_seed(config, sampler),
        workers=None if values["n_jobs"] is None else _at_least("n_jobs", values["n_jobs"], 1),
        directions=_directions(values["direction"]),
        n_trials=_at_least("n_trials", values["n_trials"], 1),
        sampler=without_seeds(sampler),
        pruner=without_seeds(chosen_node(config, "pruner", values["pruner"])),
        scheduler=without_seeds(chosen_node(config, "scheduler", values["scheduler"])),
        deterministic=values["deterministic"],
        constraints=read_constraints(_listed("constraints", values["constraints"]), setting=f"{PREFIX}constraints"),
        custom_space=values["custom_search_space"] or None,
        params=values["params"],
        enqueue=tuple(_point(point) for point in _listed("enqueue", values["enqueue"])),
        limits=_limits(values),
        max_batch_size=None
        if values["max_batch_size"] is None
        else _at_least("max_batch_size", values["max_batch_size"], 1),
    )


def _plain(config: DictConfig) -> dict[str, Any]:  # Any: the node's declared types
    try:
        values = OmegaConf.to_container(config.hydra.sweeper, resolve=True, enum_to_str=True)
    except OmegaConfBaseException as error:
        raise UserError(f"{PREFIX.rstrip('.')} cannot be read: {str(error).splitlines()[0]}") from None
    return {str(key): value for key, value in values.items()} if isinstance(values, dict) else {}


def _refuse_other_launcher(config: DictConfig) -> None:
    target = config.hydra.launcher.get("_target_")
    if target == LAUNCHER:
        return
    name = config.hydra.runtime.choices.get("hydra/launcher") or target
    raise UserError(
        f"hydra/launcher={name} cannot be used with hydra/sweeper=sweeper, which brings its own",
        remedy="leave hydra/launcher out, or set hydra/launcher=sweeper",
    )


def _refuse_storage(storage: object) -> None:
    if storage is not None:
        raise UserError(
            f"{PREFIX}storage is not used: the search is kept in the ledger, and resumed from it",
            remedy="leave it out; SWEEPER_DATABASE_URL (or hydra.launcher.database) says which database, and "
            "`sweeper url --optuna` gives a storage URL with which Optuna can read the study",
        )


def _seed(config: DictConfig, sampler: Mapping[str, Json]) -> int | None:
    seed = sampler.get("seed")
    if seed is None:
        return None
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise UserError(f"{PREFIX}sampler.seed={seed!r:.80} is not an integer")
    other = config.hydra.launcher.seed
    said = other != 0 or any(line.startswith(f"{_LAUNCHER_SEED}=") for line in override_lines(config, "hydra"))
    if said and other != seed:
        raise UserError(
            f"{PREFIX}sampler.seed={seed} and {_LAUNCHER_SEED}={other} are two seeds for one sweep",
            remedy="set one of them; samplers and trials derive theirs from it",
        )
    return seed


def _directions(value: object) -> tuple[Direction, ...]:
    texts = value if isinstance(value, list) else [value]
    names = [str(text).rpartition(".")[2].lower() for text in texts]
    if not names or any(name not in set(Direction) for name in names):
        raise UserError(
            f"{PREFIX}direction={value!r:.80} is no direction", remedy="write minimize, maximize, or a list of these"
        )
    return tuple(Direction(name) for name in names)


def _limits(values: Mapping[str, Any]) -> SearchLimits:  # Any: the node's declared types
    rate, stop = values["max_failure_rate"], values["stop"] or {}
    if not 0.0 <= rate <= 1.0:
        raise UserError(f"{PREFIX}max_failure_rate={rate:g} must be between 0 and 1")
    timeout_s = stop.get("timeout_s")
    if timeout_s is not None and not (timeout_s > 0 and math.isfinite(timeout_s)):
        raise UserError(f"{PREFIX}stop.timeout_s={timeout_s:g} must be above 0 (seconds)")
    value = stop.get("value")
    if value is not None and math.isnan(value):
        raise UserError(f"{PREFIX}stop.value is not a number")
    return SearchLimits(value=value, timeout_s=timeout_s, max_failure_rate=rate)


def _listed(setting: str, value: object) -> list[Any]:  # Any: YAML
    if value is None:
        return []
    if not isinstance(value, list):
        raise UserError(f"{PREFIX}{setting}={value!r:.80} is not a list")
    return value


def _point(point: object) -> Mapping[str, Any]:  # Any: YAML
    if not isinstance(point, dict):
        raise UserError(
            f"{PREFIX}enqueue has {point!r:.80}", remedy="write a list of mappings: [{x: 0.5, optimizer: adam}]"
        )
    return {str(name).lstrip("+"): value for name, value in point.items()}


def _at_least(setting: str, value: int, least: int) -> int:
    if value < least:
        raise UserError(f"{PREFIX}{setting}={value} must be at least {least}")
    return value
