"""From a proposal to a trial: overrides, identity, recorded values, directories, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.core.singleton import Singleton
from omegaconf import DictConfig

from sweeper.errors import UserError
from sweeper.hydra.cloning import clone
from sweeper.hydra.compose import JobCompositionError, TemplateLoader
from sweeper.hydra.composing import HydraComposer
from sweeper.hydra.directories import pin_sweep_dir
from sweeper.hydra.search_arguments import read_arguments
from sweeper.hydra.search_params import params_lines
from sweeper.hydra.space_syntax import SweptReader
from sweeper.model.trial import Trial
from sweeper.settings import IdentitySettings, Places
from tests.hydra.composing import Application


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    state = Singleton.get_state()
    GlobalHydra.instance().clear()
    yield Application(tmp_path_factory.mktemp("application"))
    GlobalHydra.instance().clear()
    Singleton.set_state(state)


@pytest.fixture(scope="module")
def loader(application: Application) -> TemplateLoader:
    return TemplateLoader(application.hydra.config_loader)


@pytest.fixture(scope="module")
def composed(application: Application) -> DictConfig:
    return application.master()


@pytest.fixture
def master(composed: DictConfig, tmp_path: Path) -> DictConfig:
    config = clone(composed)
    pin_sweep_dir(config, tmp_path)
    return config


def composer(
    loader: TemplateLoader,
    master: DictConfig,
    *task: str,
    params: object = None,
    existing: list[tuple[Trial, DictConfig]] | None = None,
    places: Places | None = None,
) -> HydraComposer:
    parse = loader.parse
    reader = SweptReader(seed=0, grid=False, parse=parse, options=loader.config_names)
    arguments = read_arguments(params_lines(params, parse), task, reader=reader, parse=parse, seed=0)
    return HydraComposer(
        loader,
        master,
        arguments,
        identity=IdentitySettings(),
        places=places or Places(home=Path(), database_url=None, store_url="file:///x"),
        existing=lambda: existing or [],
    )


def test_a_proposal_becomes_overrides_hash_and_recorded_values(loader: TemplateLoader, master: DictConfig) -> None:
    """TRUTH: what is recorded is what the job receives, value and type."""
    compose = composer(loader, master, "lr=tag(log,interval(1e-5,1))", "server=apache,nginx", "+c=1,1.0,'1',null")
    trial = compose(0, {"lr": 0.25, "server": "nginx", "c": "1"})
    assert trial.overrides == ("lr=0.25", "server=nginx", "+c='1'")
    assert dict(trial.params) == {"lr": 0.25, "server": "nginx", "c": "1"}
    hashes = {
        compose(n, {"lr": 0.25, "server": "nginx", "c": c}).config_hash for n, c in enumerate((1, 1.0, "1", None))
    }
    assert len(hashes) == 4
    assert compose(9, {"lr": 0.25, "server": "nginx", "c": "1"}).config_hash == trial.config_hash


def test_an_absent_parameter_gets_no_override(loader: TemplateLoader, master: DictConfig) -> None:
    """OP-09: two trials that differ only in what does not apply are one config."""
    compose = composer(loader, master, "name=a,b", "lr=interval(0,1)")
    trial = compose(0, {"name": "a"})
    assert trial.overrides == ("name=a",)
    assert "lr" not in trial.params


def test_a_glob_chooses_from_the_group(loader: TemplateLoader, master: DictConfig) -> None:
    compose = composer(loader, master, "server=glob(*,exclude=p*)")
    compose.check()
    assert compose.overrides({"server": "nginx"}) == ["server=nginx"]


@pytest.mark.parametrize(
    ("task", "job", "part"),
    [
        (["nope=1,2"], "job #0 (nope=1)", "nope"),
        (["server=nginx,missing"], "job #1 (server=missing)", "missing"),
        (["server=nginx,plain", "server.port=1,2"], "job #1 (server=plain server.port=1)", "++server.port=1"),
        (["lr=interval(0,1)", "~nothing"], "job #0 (lr=0.0 ~nothing", "nothing"),
    ],
)
def test_what_cannot_be_composed_is_found_before_the_first_row(
    loader: TemplateLoader, master: DictConfig, task: list[str], job: str, part: str
) -> None:
    """HY-03, CLEAR: the message names job and overrides; Hydra prints it."""
    with pytest.raises(JobCompositionError) as failed:
        composer(loader, master, *task).check()
    assert job in str(failed.value)
    assert part in str(failed.value)


def test_a_missing_value_is_found_before_the_first_row(loader: TemplateLoader, master: DictConfig) -> None:
    with pytest.raises(UserError, match=r"job #0 .*'data'"):
        composer(loader, master, "lr=interval(0,1)", "+data='???'").check()


def test_a_proposal_that_cannot_be_composed_is_refused_with_the_reason(
    loader: TemplateLoader, master: DictConfig
) -> None:
    compose = composer(loader, master, "server=nginx,plain", "server.port=1,2")
    with pytest.raises(UserError, match=r"job #7 \(server=plain server\.port=2\)"):
        compose(7, {"server": "plain", "server.port": 2})
    assert compose(8, {"server": "nginx", "server.port": 2}).params["server.port"] == 2


def test_a_config_that_spells_out_the_databases_password_is_refused(loader: TemplateLoader, master: DictConfig) -> None:
    """SAFE."""
    url = "postgresql://me:hunter2@host/db"
    places = Places(home=Path(), database_url=url, store_url="file:///x")
    compose = composer(loader, master, "lr=interval(0,1)", f"name='{url}'", places=places)
    with pytest.raises(UserError, match="password") as refused:
        compose(0, {"lr": 0.5})
    assert "hunter2" not in str(refused.value).replace(f"name='{url}'", "")


@pytest.mark.slow
@pytest.mark.parametrize("subdir", ["x", "${hydra.job.override_dirname}"])
def test_two_trials_never_share_a_directory(
    application: Application, loader: TemplateLoader, tmp_path: Path, subdir: str
) -> None:
    """HY-05."""
    config = application.master(f"hydra.sweep.subdir='{subdir}'", "hydra.job.config.override_dirname.exclude_keys=[lr]")
    pin_sweep_dir(config, tmp_path)
    compose = composer(loader, config, "lr=interval(0,1)", "name=a,b")
    first = compose(0, {"lr": 0.5, "name": "a"})
    assert compose(0, {"lr": 0.5, "name": "a"}).config_hash == first.config_hash, "asked again, it is the same"
    assert compose(1, {"lr": 0.5, "name": "a"}).config_hash == first.config_hash, "an alias writes nothing"
    with pytest.raises(UserError, match=r"trial 0 would write into one directory"):
        compose(2, {"lr": 0.25, "name": "a"})


@pytest.mark.slow
def test_directories_of_earlier_runs_count(application: Application, loader: TemplateLoader, tmp_path: Path) -> None:
    config = application.master("hydra.sweep.subdir=x/y")
    pin_sweep_dir(config, tmp_path)
    earlier = composer(loader, config, "lr=interval(0,1)")(3, {"lr": 0.5})
    trial = cast(Trial, SimpleNamespace(number=3, config_hash=earlier.config_hash))
    found = loader.compose(config, earlier.overrides, position=3)
    compose = composer(loader, config, "lr=interval(0,1)", existing=[(trial, found)])
    with pytest.raises(UserError, match="trial 3"):
        compose(4, {"lr": 0.25})
    other = application.master("hydra.sweep.subdir=x")
    pin_sweep_dir(other, tmp_path)
    compose = composer(loader, other, "lr=interval(0,1)", existing=[(trial, found)])
    with pytest.raises(UserError, match="trial 3"):
        compose(4, {"lr": 0.25})


@pytest.mark.slow
def test_a_directory_outside_the_sweep_is_refused(
    application: Application, loader: TemplateLoader, tmp_path: Path
) -> None:
    config = application.master("hydra.sweep.subdir=../x")
    pin_sweep_dir(config, tmp_path)
    with pytest.raises(UserError, match="outside the sweep directory"):
        composer(loader, config, "lr=interval(0,1)").check()
