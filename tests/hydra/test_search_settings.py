"""`hydra.sweeper`: what is read from it, under the Optuna plugin's names, and what is refused by name (CLEAR)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.singleton import Singleton
from omegaconf import DictConfig, OmegaConf, open_dict

from hydra_plugins.sweeper_plugin.sweeper import SweeperSweeperConf, _store_nodes
from sweeper.errors import UserError
from sweeper.hydra.cloning import clone
from sweeper.hydra.search_nodes import GROUPS
from sweeper.hydra.search_settings import SearchSettings, read_search_settings
from sweeper.hydra.searching import _settings
from sweeper.model.search import Constraint, Direction
from tests.hydra.composing import Application

PARSER = OverridesParser.create()


class Composed:
    """Multirun configs; a composition takes long enough to be made once for each choice of groups."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._masters: dict[tuple[str, ...], DictConfig] = {}

    def master(self, *overrides: str) -> DictConfig:
        groups = tuple(line for line in overrides if "/" in line.partition("=")[0])
        if groups not in self._masters:
            self._masters[groups] = self._application.master("hydra/sweeper=sweeper", *groups)
        config = clone(self._masters[groups])
        for line in (line for line in overrides if line not in groups):
            override = PARSER.parse_override(line)
            if override.is_add():
                with open_dict(config):
                    OmegaConf.update(config, override.key_or_group, override.value(), merge=True, force_add=True)
            else:
                OmegaConf.update(config, override.key_or_group, override.value(), merge=True)
            config.hydra.overrides.hydra.append(line)
        return config


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    state = Singleton.get_state()
    GlobalHydra.instance().clear()
    yield Composed(Application(tmp_path_factory.mktemp("application")))
    GlobalHydra.instance().clear()
    Singleton.set_state(state)


def settings(application: Composed, *overrides: str) -> SearchSettings:
    return read_search_settings(application.master(*overrides))


def test_defaults(application: Composed) -> None:
    found = settings(application)
    assert found.directions == (Direction.MINIMIZE,)
    assert (found.n_trials, found.workers, found.name, found.seed) == (20, None, None, None)
    assert found.sampler["_target_"] == "optuna.samplers.TPESampler"
    assert (found.pruner, found.scheduler, found.deterministic) == (None, None, None)
    assert (found.limits.value, found.limits.timeout_s, found.limits.max_failure_rate) == (None, None, 1.0)


@pytest.mark.parametrize(
    ("override", "directions"),
    [
        ("hydra.sweeper.direction=maximize", "maximize"),
        ("hydra.sweeper.direction=MAXIMIZE", "maximize"),
        ("hydra.sweeper.direction=Direction.maximize", "maximize"),
        ("hydra.sweeper.direction=[minimize,maximize]", "minimize maximize"),
    ],
)
def test_directions(application: Composed, override: str, directions: str) -> None:
    found = settings(application, override).directions
    assert [direction.value for direction in found] == directions.split()


@pytest.mark.slow
@pytest.mark.parametrize("sampler", GROUPS["sampler"])
def test_every_sampler_by_its_name_in_three_ways(application: Composed, sampler: str) -> None:
    node = GROUPS["sampler"][sampler]
    target = node["_target_"]
    by_group = settings(application, f"hydra/sweeper/sampler={sampler}")
    assert by_group.sampler == {key: value for key, value in node.items() if value is not None}
    assert settings(application, f"hydra.sweeper.sampler={sampler}").sampler == by_group.sampler
    assert settings(application, f"hydra.sweeper.sampler={target}").sampler["_target_"] == target


@pytest.mark.slow
@pytest.mark.parametrize("group", ["pruner", "scheduler"])
def test_pruners_and_schedulers_by_name(application: Composed, group: str) -> None:
    for name, node in GROUPS[group].items():
        missing = [f"hydra.sweeper.{group}.{key}=9" for key, value in node.items() if value == "???"]
        found = getattr(settings(application, f"hydra/sweeper/{group}={name}", *missing), group)
        if name == "none":
            assert found is None
        else:
            assert found == {key: 9 if value == "???" else value for key, value in node.items() if value is not None}


def test_a_value_that_has_to_be_given_is_asked_for(application: Composed) -> None:
    with pytest.raises(UserError, match=r"hydra\.sweeper\.pruner\.patience has no value"):
        settings(application, "hydra/sweeper/pruner=patient")


def test_keys_of_the_plugins_configs_are_taken(application: Composed) -> None:
    found = settings(
        application,
        "hydra.sweeper.sampler.seed=123",
        "hydra.sweeper.sampler.n_startup_trials=5",
        "hydra.sweeper.sampler.consider_prior=true",
        "hydra.sweeper.sampler.prior_weight=1.0",
        "hydra.sweeper.study_name=sphere",
        "hydra.sweeper.n_jobs=3",
        "hydra.sweeper.max_failure_rate=0.5",
    )
    assert (found.seed, found.name, found.workers) == (123, "sphere", 3)
    assert found.sampler["n_startup_trials"] == 5
    assert found.sampler["consider_prior"] is True
    assert found.limits.max_failure_rate == 0.5


def test_a_class_of_ones_own_drops_what_the_group_had(application: Composed) -> None:
    found = settings(application, "hydra.sweeper.sampler._target_=my.Sampler", "+hydra.sweeper.sampler.depth=3")
    assert found.sampler == {"_target_": "my.Sampler", "depth": 3}


def test_seeds_are_left_out_of_nested_nodes_too(application: Composed) -> None:
    nested = "hydra.sweeper.sampler.independent_sampler={_target_:optuna.samplers.RandomSampler,seed:4}"
    found = settings(application, "hydra/sweeper/sampler=qmc", nested)
    assert found.sampler["independent_sampler"] == {"_target_": "optuna.samplers.RandomSampler"}


def test_lists_and_limits(application: Composed) -> None:
    found = settings(
        application,
        "hydra.sweeper.constraints=['latency_ms <= 20','accuracy >= 0.9']",
        "hydra.sweeper.enqueue=[{x:1.0,+w:2},{x:2.0}]",
        "hydra.sweeper.stop.value=0.01",
        "hydra.sweeper.stop.timeout_s=60",
        "hydra.sweeper.max_batch_size=2",
    )
    assert found.constraints == (
        Constraint(metric="latency_ms", at_most=20.0),
        Constraint(metric="accuracy", at_least=0.9),
    )
    assert found.enqueue == ({"x": 1.0, "w": 2}, {"x": 2.0})
    assert (found.limits.value, found.limits.timeout_s, found.max_batch_size) == (0.01, 60.0, 2)


def test_params_are_added_to_with_and_without_a_plus(application: Composed) -> None:
    found = settings(application, "hydra.sweeper.params.x='interval(0,1)'", "+hydra.sweeper.params.m.lr='1,2'")
    assert found.params == {"x": "interval(0,1)", "m": {"lr": "1,2"}}


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["hydra.sweeper.storage=sqlite:///x.db"], ["storage", "SWEEPER_DATABASE_URL", "sweeper url --optuna"]),
        (["hydra.sweeper.sampler=tpee"], ["'tpee'", "tpe, random"]),
        (["hydra.sweeper.scheduler=ashaa"], ["'ashaa'", "asha"]),
        (["hydra.sweeper.pruner=mean"], ["'mean'", "median"]),
        (["hydra.sweeper.sampler._target_=x.raise_motpe_removed"], ["MOTPE", "tpe"]),
        (["hydra.sweeper.sampler=null"], ["hydra.sweeper.sampler", "tpe"]),
        (["hydra.sweeper.direction=min"], ["'min'", "minimize"]),
        (["hydra.sweeper.direction=[]"], ["direction", "minimize"]),
        (["hydra.sweeper.n_trials=0"], ["n_trials=0"]),
        (["hydra.sweeper.n_jobs=-1"], ["n_jobs=-1"]),
        (["hydra.sweeper.max_batch_size=0"], ["max_batch_size=0"]),
        (["hydra.sweeper.max_failure_rate=1.5"], ["max_failure_rate=1.5"]),
        (["hydra.sweeper.stop.timeout_s=0"], ["stop.timeout_s"]),
        (["hydra.sweeper.stop.value=nan"], ["stop.value"]),
        (["hydra.sweeper.enqueue=[x]"], ["enqueue", "'x'"]),
        (["hydra.sweeper.constraints=[latency]"], ["constraints", "'latency'"]),
        (["hydra.sweeper.study_name=' '"], ["study_name is empty"]),
        ([f"hydra.sweeper.study_name={'n' * 600}"], ["study_name is too long"]),
        (["hydra.sweeper.search_space={x:{type:int,low:1,high:4}}"], ["search_space", "x: int(interval(1,4))"]),
        (["hydra.sweeper.sampler.seed=abc"], ["sampler.seed='abc'"]),
        (["hydra.sweeper.sampler.seed=1", "hydra.launcher.seed=2"], ["sampler.seed=1", "hydra.launcher.seed=2"]),
        (["hydra.sweeper.sampler.seed=1", "hydra.launcher.seed=0"], ["sampler.seed=1", "hydra.launcher.seed=0"]),
        (["+hydra.sweeper.n_trails=5"], ["'n_trails' in hydra.sweeper", "did you mean n_trials?"]),
        (["+hydra.sweeper.stop.timeout=5"], ["'timeout' in hydra.sweeper.stop", "did you mean timeout_s?"]),
        (["hydra/launcher=basic"], ["hydra/launcher=basic", "leave hydra/launcher out"]),
        (["hydra/launcher=joblib"], ["hydra/launcher=joblib"]),
    ],
)
def test_bad_values_are_refused_by_name(application: Composed, overrides: list[str], parts: list[str]) -> None:
    with pytest.raises(UserError) as refused:
        settings(application, *overrides)
    for part in parts:
        assert part in str(refused.value)


def test_a_key_that_is_not_known_is_refused_by_hydra(application: Composed) -> None:
    with pytest.raises(Exception, match="n_startup_trial"):
        settings(application, "hydra.sweeper.sampler.n_startup_trial=5")


def test_the_launchers_own_settings_win_over_the_plugins_names(application: Composed) -> None:
    names = ["hydra.sweeper.study_name=mine", "hydra.sweeper.n_jobs=3", "hydra.sweeper.sampler.seed=9"]
    config = application.master(*names)
    found = _settings(config, read_search_settings(config))
    assert (found.name, found.workers, found.seed) == ("mine", 3, 9)
    config = application.master(*names, "hydra.launcher.workers=2", "hydra.launcher.name=mine")
    assert _settings(config, read_search_settings(config)).workers == 2
    config = application.master(*names, "hydra.launcher.name=yours")
    with pytest.raises(UserError, match="two names"):
        _settings(config, read_search_settings(config))


@pytest.mark.parametrize(
    ("asked", "workers", "lag"),
    [(None, 1, 1), (None, 4, None), (True, 4, 4), (False, 1, None), (None, None, None)],
)
def test_one_worker_makes_a_search_deterministic(
    application: Composed, asked: bool | None, workers: int | None, lag: int | None
) -> None:
    overrides = [] if asked is None else [f"hydra.sweeper.deterministic={asked}"]
    spec = settings(application, *overrides).spec({}, (), workers=workers)
    assert (spec.deterministic, spec.lag if spec.deterministic else None) == (lag is not None, lag)


@pytest.mark.parametrize(("scheduler", "workers"), [(True, 2), (False, None)])
def test_determinism_where_it_cannot_be_is_refused(application: Composed, scheduler: bool, workers: int | None) -> None:
    overrides = ["hydra.sweeper.deterministic=true", *(["hydra/sweeper/scheduler=asha"] if scheduler else [])]
    with pytest.raises(UserError, match=r"hydra\.sweeper\.deterministic=true"):
        settings(application, *overrides).spec({}, (), workers=workers)


def test_nodes_that_the_optuna_plugin_has_stored_are_left_alone() -> None:
    """Both installed: neither reads what it cannot."""
    store = ConfigStore.instance()
    samplers: dict[str, Any] = store.repo["hydra"]["sweeper"]["sampler"]
    kept = samplers["tpe.yaml"]
    try:
        store.store(group="hydra/sweeper/sampler", name="tpe", node={"theirs": True}, provider="optuna_sweeper")
        _store_nodes()
        assert samplers["tpe.yaml"].node == {"theirs": True}
    finally:
        samplers["tpe.yaml"] = kept


def test_hydra_makes_nothing_of_the_nodes_itself() -> None:
    assert OmegaConf.structured(SweeperSweeperConf)._recursive_ is False
