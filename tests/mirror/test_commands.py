"""`sweeper url`, `sweeper rebuild --mirror` and what `sweeper dashboard` refuses."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import optuna
import psycopg
import pytest

from sweeper.cli.app import main
from sweeper.ledger.mirror_access import storage_url
from sweeper.ledger.urls import normalise_url, redact
from tests.mirror.world import SearchWorld

pytestmark = pytest.mark.slow

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(
    world: SearchWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Command:
    """Run the command line in this process; gives status, output and error stream."""
    monkeypatch.setenv("SWEEPER_DATABASE_URL", world.url)
    monkeypatch.setenv("SWEEPER_HOME", str(tmp_path / "home"))

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["sweeper", *arguments])
        capfd.readouterr()
        try:
            main()
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        out, err = capfd.readouterr()
        return status, out, err

    return run


def test_the_url_of_a_database_that_was_named_hides_its_password(world: SearchWorld, command: Command) -> None:
    """SAFE: not even on a screen, unless asked for."""
    password = str(psycopg.conninfo.conninfo_to_dict(world.url)["password"])
    for options in ([], ["--optuna"]):
        status, out, err = command("url", *options)
        assert status == 0
        assert password not in out + err
        assert ":***@" in out
        assert "--show-password" in err
    status, out, err = command("url", "--show-password")
    assert (status, out.strip(), err) == (0, normalise_url(world.url), "")


@pytest.mark.parametrize("has_tables", [True, False])
def test_plain_optuna_loads_the_study_with_the_storage_url(
    world: SearchWorld, command: Command, has_tables: bool
) -> None:
    if not has_tables:
        world.sql("DROP SCHEMA optuna CASCADE")
    else:
        world.complete(world.start(lr=0.1, layers=3, act=None), 0.5)
        world.show()
    status, out, _ = command("url", "--optuna", "--show-password")
    assert status == 0
    storage = optuna.storages.RDBStorage(out.strip())
    try:
        if has_tables:
            study = optuna.load_study(study_name="digits", storage=storage)
            assert study.best_params == {"lr": 0.1, "layers": 3, "act": None}
        else:
            assert storage.get_all_studies() == []
        assert world.sql("SELECT to_regclass('public.trials') AS found")[0].found is None
    finally:
        storage.remove_session()
        storage.engine.dispose()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgres://u:p%40ss@h/d", "postgresql+psycopg://u:p%40ss@h/d?options=-csearch_path%3Doptuna"),
        (
            "postgresql://u@h:5/d?options=-cstatement_timeout%3D5000&sslmode=require",
            "postgresql+psycopg://u@h:5/d?sslmode=require"
            f"&options={quote('-cstatement_timeout=5000 -csearch_path=optuna')}",
        ),
    ],
)
def test_the_storage_url_keeps_what_the_url_says(url: str, expected: str) -> None:
    assert storage_url(url) == expected


def test_a_storage_urls_password_can_be_hidden() -> None:
    assert redact(storage_url("postgresql://u:secret@h/d")) == "postgresql+psycopg://u:***@h/d?" + (
        "options=-csearch_path%3Doptuna"
    )


def test_rebuild_writes_the_study_anew_and_says_what_it_shows(world: SearchWorld, command: Command) -> None:
    world.complete(world.start(lr=0.1, layers=3, act=None), 0.5)
    assert world.lag == 1
    status, out, _ = command("rebuild", "digits", "--mirror")
    assert (status, out) == (0, "study 'digits' shows 1 trials\n")
    assert world.lag == 0
    assert len(world.study().get_trials()) == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(("rebuild", "digits"), "--mirror"), (("rebuild", "nothing", "--mirror"), "digits")],
)
def test_rebuild_names_what_is_missing(command: Command, arguments: tuple[str, ...], named: str) -> None:
    status, _, err = command(*arguments)
    assert status == 2
    assert named in err


def test_a_dashboard_that_is_not_installed_says_what_to_install(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLEAR: it is an extra."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    status, _, err = command("dashboard", "--port", "0")
    assert status == 2
    assert "sweeper[dashboard]" in err


def test_a_port_that_is_taken_is_named_with_the_way_out(command: Command) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, _, err = command("dashboard", "--port", str(port))
    assert status == 2
    assert str(port) in err
    assert "--port 0" in err
