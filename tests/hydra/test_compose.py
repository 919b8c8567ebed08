"""Composition by template gives exactly what Hydra's own composition gives, and Hydra's own refusals."""

from __future__ import annotations

import itertools

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from sweeper.hydra.compose import JobCompositionError, TemplateLoader, quoted
from tests.hydra.composing import Application


def plain(config: DictConfig) -> str:
    return repr(OmegaConf.to_container(config, resolve=False))


class Counting(TemplateLoader):
    """Counts full compositions."""

    full = 0

    def _in_full(self, master: DictConfig, lines: tuple[str, ...], position: int) -> DictConfig:
        self.full += 1
        return super()._in_full(master, lines, position)


@pytest.mark.parametrize(
    "jobs",
    [
        [["lr=1"], ["lr=2.5"], ["lr=text"], ["lr='quoted text'"], ["lr=null"], ["lr=${nested.a}"], ["lr=[1,2]"]],
        [["lr=1", "nested.a=3"], ["nested.a=4", "lr=2"], ["lr=2", "nested.a={x:1}"]],
        [["server=nginx", "server.port=1"], ["server=nginx", "server.port=2"], ["server=apache", "server.port=2"]],
        [["nested.b=[3]", "name=a"], ["nested.b=[4,5]", "name=a=b"], ["nested.b=[]", "name=''"]],
        [["+new=1", "lr=1"], ["+new=2", "lr=2"], ["+new=2", "lr=3"]],
        [["++lr=1", "lr=2"], ["lr=2", "++lr=1"], ["lr=3", "++lr=1"]],
        [["~name", "lr=1"], ["~name", "lr=2"], ["lr=1"]],
        [["nested.a=1", "++nested={a:5}"], ["nested.a=2", "++nested={a:5}"]],
        [["extra=more", "nested.a=1"], ["extra=more", "nested.a=2"], ["extra=more"]],
        [["server@other=nginx", "lr=1"], ["+server@other=nginx", "lr=1"], ["+server@other=nginx", "lr=2"]],
        [[], []],
        [["server={port:5}"], ["server={port:6}"]],
        [["lr=1", "lr=2"], ["lr=3", "lr=4"]],
    ],
)
def test_a_template_gives_what_the_full_composition_gives(application: Application, jobs: list[list[str]]) -> None:
    master = application.master("lr=1,2", "hydra.job.name=named")
    loader = TemplateLoader(application.hydra.config_loader)
    for overrides in jobs:
        try:
            expected = plain(application.in_full(master, overrides))
        except HydraException:
            with pytest.raises(JobCompositionError, match=f"job #{loader._asked}"):
                loader.load_sweep_config(master, overrides)
        else:
            assert plain(loader.load_sweep_config(master, overrides)) == expected


def test_jobs_of_one_shape_are_composed_in_full_once(application: Application) -> None:
    master = application.master()
    loader = Counting(application.hydra.config_loader)
    for index in range(20):
        assert loader.load_sweep_config(master, [f"lr={index}"]).lr == index
    assert loader.full == 1


def test_each_group_choice_has_its_template(application: Application) -> None:
    master = application.master()
    loader = Counting(application.hydra.config_loader)
    for server, lr in itertools.product(["nginx", "apache"], range(5)):
        config = loader.load_sweep_config(master, [f"server={server}", f"lr={lr}"])
        assert (config.server.kind, config.lr) == (server, lr)
        assert config.hydra.runtime.choices.server == server
    assert loader.full == 2


def test_jobs_do_not_share_nodes(application: Application) -> None:
    master = application.master()
    loader = TemplateLoader(application.hydra.config_loader)
    configs = [loader.load_sweep_config(master, [f"lr={index}"]) for index in range(4)]
    configs[2].nested.a = 99
    assert [config.nested.a for config in configs] == [1, 1, 99, 1]
    assert loader.load_sweep_config(master, ["lr=7"]).nested.a == 1


def test_a_primed_template_serves_the_first_job(application: Application) -> None:
    master = application.master()
    loader = Counting(application.hydra.config_loader)
    loader.prime(master, ["lr=1"])
    loader.full = 0
    assert loader.load_sweep_config(master, ["lr=5"]).lr == 5
    assert loader.full == 0


def test_a_pinned_sweep_directory_is_in_every_job_and_needs_no_new_template(application: Application) -> None:
    master = application.master("hydra.sweep.dir=before")
    loader = Counting(application.hydra.config_loader)
    loader.prime(master, ["lr=1"])
    loader.full = 0
    master.hydra.sweep.dir = "/pinned"
    master.hydra.overrides.hydra = ["hydra.sweep.dir='/pinned'"]
    config = loader.load_sweep_config(master, ["lr=5"])
    assert config.hydra.sweep.dir == "/pinned"
    assert loader.full == 0
    assert plain(config) == plain(application.in_full(master, ["lr=5"]))


def test_cached_resolver_answers_are_those_of_the_command(application: Application) -> None:
    master = application.master()
    stamp = master.stamp
    loader = TemplateLoader(application.hydra.config_loader)
    assert {loader.load_sweep_config(master, [f"lr={index}"]).stamp for index in range(4)} == {stamp}


def test_an_override_that_fits_only_some_groups_names_job_overrides_key_and_the_way_out(
    application: Application,
) -> None:
    """HY-03."""
    master = application.master()
    loader = TemplateLoader(application.hydra.config_loader)
    for index, server in enumerate(["apache", "nginx"]):
        assert loader.load_sweep_config(master, [f"server={server}", f"server.port={index}"]).server.port == index
    with pytest.raises(JobCompositionError) as caught:
        loader.load_sweep_config(master, ["server=plain", "server.port=8081"])
    message = str(caught.value)
    assert "job #2 (server=plain server.port=8081)" in message
    assert "'server.port'" in message
    assert "++server.port=8081" in message


def test_deleting_an_absent_key_names_job_and_key(application: Application) -> None:
    """HY-03."""
    master = application.master()
    loader = TemplateLoader(application.hydra.config_loader)
    loader.load_sweep_config(master, ["server=apache", "~server.port"])
    with pytest.raises(JobCompositionError, match=r"job #1 \(server=plain ~server.port\)[^$]*'server.port'"):
        loader.load_sweep_config(master, ["server=plain", "~server.port"])


def test_quoted_text_is_read_back_exactly() -> None:
    parser = OverridesParser.create()
    for letters in itertools.product(["a", "'", "\\", "${x}", " ", "="], repeat=3):
        text = "".join(letters)
        value = parser.parse_override(f"k={quoted(text)}").value()
        assert OmegaConf.create({"k": value, "x": 1}).k == text
