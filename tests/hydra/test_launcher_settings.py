"""`hydra.launcher`: read once, checked, each refusal one message that names the setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeper.errors import UserError
from sweeper.hydra.settings import check_overrides, read_settings
from sweeper.launch.settings import LauncherSettings, carries_secret, check_name
from tests.hydra.composing import Application

SWEEPER = "hydra/launcher=sweeper"


def settings(application: Application, *overrides: str, **environ: str) -> LauncherSettings:
    return read_settings(application.master(SWEEPER, *overrides), {"CUDA_VISIBLE_DEVICES": "", **environ})


def test_defaults(application: Application) -> None:
    read = settings(application, SWEEPER_HOME="/home/x")
    assert (read.name, read.workers, read.seed, read.gpus) == (None, 1, 0, ())
    assert read.places.database_url is None
    assert read.places.store_url == "file:///home/x/store"
    assert (read.worker.lease.lease_s, read.worker.lease.heartbeat_s) == (60.0, 15.0)
    assert (read.retry.max_crashes, read.retry.max_no_progress) == (3, 10)
    assert (read.worker.checkpoint.every_s, read.worker.checkpoint.keep) == (300.0, 3)


def test_every_setting_arrives(application: Application) -> None:
    read = settings(
        application,
        "hydra.launcher.name=mine",
        "hydra.launcher.workers=3",
        "hydra.launcher.seed=7",
        "hydra.launcher.fail_fast=true",
        "hydra.launcher.lease_s=9",
        "hydra.launcher.heartbeat_s=2",
        "hydra.launcher.retry.max_crashes=1",
        "hydra.launcher.retry.max_no_progress=2",
        "hydra.launcher.checkpoint.every_s=0.5",
        "hydra.launcher.checkpoint.keep=5",
        "hydra.launcher.identity.ignore=[a.b,c]",
        "hydra.launcher.identity.version=v2",
        "hydra.launcher.identity.unstable_resolvers=[host]",
        "hydra.launcher.identity.allow_missing=true",
        "hydra.launcher.hang_s=60",
        "hydra.launcher.signals=[TERM,sigusr1]",
        "hydra.launcher.threads=2",
    )
    assert (read.name, read.workers, read.seed) == ("mine", 3, 7)
    assert read.coordinator.fail_fast
    assert read.coordinator.workers == 3
    assert read.coordinator.lease == read.worker.lease
    assert (read.worker.lease.lease_s, read.worker.hang_s, read.worker.threads) == (9.0, 60.0, 2)
    assert (read.retry.max_crashes, read.retry.max_no_progress) == (1, 2)
    assert (read.worker.checkpoint.every_s, read.worker.checkpoint.keep) == (0.5, 5)
    assert read.identity.ignore == ("a.b", "c")
    assert (read.identity.version, read.identity.unstable_resolvers) == ("v2", ("host",))
    assert read.identity.allow_missing
    assert read.worker.signals == read.coordinator.signals == ("SIGTERM", "SIGUSR1")


def test_explicit_beats_environment_and_one_worker_per_gpu(application: Application) -> None:
    read = settings(
        application,
        "hydra.launcher.store=s3://bucket/x",
        SWEEPER_STORE_URL="memory://env",
        SWEEPER_DATABASE_URL="postgresql://h/db\n",
        CUDA_VISIBLE_DEVICES="0,1",
    )
    assert read.places.store_url == "s3://bucket/x"
    assert read.places.database_url == "postgresql://h/db"
    assert (read.workers, read.gpus) == (2, ("0", "1"))


def test_a_relative_store_is_made_absolute(
    application: Application, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """HY-06: the resumed attempt must find it from another directory."""
    monkeypatch.chdir(tmp_path)
    assert settings(application, "hydra.launcher.store=ckpt").places.store_url == (tmp_path / "ckpt").as_uri()
    assert settings(application, SWEEPER_STORE_URL="./c").places.store_url == (tmp_path / "c").as_uri()


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("hydra.launcher.workers=0", "workers"),
        ("hydra.launcher.engine=slurmm", "engine"),
        ("hydra.launcher.retry.max_crashes=0", "max_crashes"),
        ("hydra.launcher.checkpoint.every_s=0", "every_s"),
        ("hydra.launcher.checkpoint.every_s=nan", "every_s"),
        ("hydra.launcher.lease_s=20", "heartbeat_s"),
        ("hydra.launcher.name=''", "name"),
        ("hydra.launcher.signals=[KILL]", "signals"),
        ("hydra.launcher.database=postgresql://me:hunter2@host/db", "SWEEPER_DATABASE_URL"),
        ("hydra.launcher.database='postgresql://host/db?password=hunter2'", "SWEEPER_DATABASE_URL"),
        ("hydra.launcher.store='s3://key:hunter2@bucket/x'", "SWEEPER_STORE_URL"),
    ],
)
def test_what_cannot_be_is_refused_naming_the_setting(application: Application, override: str, named: str) -> None:
    with pytest.raises(UserError, match=named) as caught:
        settings(application, override)
    assert "hunter2" not in str(caught.value)


def test_a_password_by_interpolation_is_fine(application: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_DB", "postgresql://me:hunter2@host/db")
    read = settings(application, "hydra.launcher.database=${oc.env:MY_DB}")
    assert read.places.database_url == "postgresql://me:hunter2@host/db"


@pytest.mark.parametrize("name", ["a", "sweep 1", "李明", "a/b", "x" * 200])
def test_names_that_can_be(name: str) -> None:
    assert check_name(name, "hydra.launcher.name") == name


@pytest.mark.parametrize("name", ["", " ", "x" * 201, "a\nb", "a\x00b", "\x1b[31m", "\udcff", "a\u2028b"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(UserError, match=r"hydra\.launcher\.name"):
        check_name(name, "hydra.launcher.name")


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("postgresql://host/db", False),
        ("postgresql://me@host/db", False),
        ("postgresql://me:pw@host/db", True),
        ("postgresql:///db?host=/run&user=me", False),
        ("postgresql:///db?password=pw", True),
        ("file:///tmp/x", False),
        ("s3://bucket/prefix", False),
    ],
)
def test_urls_with_passwords_are_recognised(url: str, secret: bool) -> None:
    assert carries_secret(url) is secret


def test_an_argument_that_is_not_utf8_is_refused_naming_the_parameter(application: Application) -> None:
    """CH-08: the byte 0xFF arrives as a lone surrogate."""
    with pytest.raises(UserError, match="'name'"):
        check_overrides(application.master(SWEEPER, "name='\udcff'"))
