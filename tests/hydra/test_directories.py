"""Output directories: inside the sweep directory, short enough, the same in every attempt, no other's (HY-05)."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeper.errors import UserError
from sweeper.hydra.compose import TemplateLoader
from sweeper.hydra.directories import check_unshared, claim_sweep_dir, pin_sweep_dir, trial_subdir
from sweeper.hydra.jobs import check_directories, compose_jobs, distinct
from sweeper.settings import IdentitySettings
from tests.hydra.composing import Application

BY_OVERRIDES = "hydra.sweep.subdir='${hydra.job.override_dirname}'"


def subdir(application: Application, subdir_override: str, *overrides: str, number: int = 3) -> str:
    master = application.master(subdir_override)
    return trial_subdir(application.in_full(master, overrides), number)


def test_by_number_by_overrides_and_by_resolver(application: Application) -> None:
    assert subdir(application, "hydra.sweep.subdir='${hydra.job.num}'", "lr=1") == "3"
    assert subdir(application, "hydra.sweep.subdir='n/${hydra:job.id}'", "lr=1") == "n/3"
    assert subdir(application, BY_OVERRIDES, "lr=1", "name=b") == "lr=1,name=b"


def test_values_cannot_make_directories(application: Application) -> None:
    assert subdir(application, BY_OVERRIDES, "name='a/b'") == "name='a_b'"
    assert subdir(application, BY_OVERRIDES, "name='../x'") == "name='.._x'"


def test_a_name_too_long_for_a_file_system_is_shortened_and_stays_distinct(application: Application) -> None:
    names = [subdir(application, BY_OVERRIDES, f"name='{'é' * 300}{last}'") for last in "ab"]
    assert all(len(name.encode()) <= 200 for name in names)
    assert names[0] != names[1]
    assert names[0].startswith("name='éé")


@pytest.mark.parametrize("expression", ["../out", "/abs", "a/../../b", "."])
def test_outside_the_sweep_directory_is_refused(application: Application, expression: str) -> None:
    with pytest.raises(UserError, match="outside the sweep directory"):
        subdir(application, f"hydra.sweep.subdir='{expression}'")


def test_a_moment_in_a_trials_directory_is_refused(application: Application) -> None:
    with pytest.raises(UserError, match="depends on the moment"):
        subdir(application, "hydra.sweep.subdir='${now:%H}_${hydra.job.num}'")


def test_jobs_that_would_share_a_directory_are_refused_naming_both(application: Application) -> None:
    master = application.master("hydra.sweep.subdir=same")
    loader = TemplateLoader(application.hydra.config_loader)
    jobs = compose_jobs(loader, master, [["lr=1"], ["lr=2"]], 0, IdentitySettings())
    with pytest.raises(UserError, match=r"job #0 \(lr=1\) and job #1 \(lr=2\)"):
        check_directories(jobs, Path("/s"), lambda: ())


def test_the_same_config_twice_is_one_directory(application: Application) -> None:
    master = application.master("hydra.sweep.subdir=same")
    loader = TemplateLoader(application.hydra.config_loader)
    jobs = compose_jobs(loader, master, [["lr=1e-1"], ["lr=0.1"]], 0, IdentitySettings())
    assert [job.index for job in distinct(jobs)] == [0]
    check_directories(distinct(jobs), Path("/s"), lambda: ())


def test_one_directory_inside_another_is_refused() -> None:
    with pytest.raises(UserError, match="one directory: 'a'"):
        check_unshared([("1", "x", "a"), ("2", "y", "a/b/c")])
    check_unshared([("1", "x", "a/1"), ("2", "y", "a/2"), ("1", "z", "a/1")])


def test_two_sweeps_begun_in_the_same_second_get_two_directories(tmp_path: Path) -> None:
    wanted = tmp_path / "10-00-00"
    assert claim_sweep_dir(wanted, "one", fresh=True) == wanted
    assert claim_sweep_dir(wanted, "two", fresh=True) == tmp_path / "10-00-00-2"
    assert claim_sweep_dir(wanted, "one", fresh=True) == wanted
    assert claim_sweep_dir(wanted, "three", fresh=False) == wanted, "the user's own choice is kept"


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"hydra\.sweep\.dir"):
        claim_sweep_dir(tmp_path / "file" / "x", "one", fresh=True)


def test_pinning_replaces_the_override_and_survives_composition(application: Application) -> None:
    master = application.master("hydra.sweep.dir=before", "hydra.job.name=n")
    pin_sweep_dir(master, Path("/it's ${odd}/dir"))
    assert master.hydra.sweep.dir == "/it's ${odd}/dir"
    job = application.in_full(master, ["lr=1"])
    assert job.hydra.sweep.dir == "/it's ${odd}/dir"
    assert job.hydra.job.name == "n"
