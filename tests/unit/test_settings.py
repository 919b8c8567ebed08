"""Explicit beats environment beats default."""

from __future__ import annotations

from pathlib import Path

from sweeper.settings import resolve_places


def test_without_anything_all_is_below_the_users_home() -> None:
    places = resolve_places(environ={})
    assert places.home == Path("~/.sweeper").expanduser()
    assert places.database_url is None
    assert places.store_url == (places.home / "store").as_uri()


def test_the_environment_beats_the_defaults() -> None:
    environ = {
        "SWEEPER_HOME": "/data/sweeper",
        "SWEEPER_DATABASE_URL": "postgresql://db/x",
        "SWEEPER_STORE_URL": "s3://b",
    }
    places = resolve_places(environ=environ)
    assert places.home == Path("/data/sweeper")
    assert places.database_url == "postgresql://db/x"
    assert places.store_url == "s3://b"


def test_explicit_settings_beat_the_environment() -> None:
    environ = {"SWEEPER_DATABASE_URL": "postgresql://db/x", "SWEEPER_STORE_URL": "s3://b"}
    places = resolve_places(database="postgresql://other/y", store="file:///z", environ=environ)
    assert places.database_url == "postgresql://other/y"
    assert places.store_url == "file:///z"


def test_a_newline_from_a_secret_file_is_stripped() -> None:
    """PG-04."""
    places = resolve_places(environ={"SWEEPER_DATABASE_URL": "postgresql://db/x\n", "SWEEPER_STORE_URL": " s3://b \n"})
    assert places.database_url == "postgresql://db/x"
    assert places.store_url == "s3://b"


def test_an_empty_variable_counts_as_unset() -> None:
    places = resolve_places(environ={"SWEEPER_HOME": "", "SWEEPER_DATABASE_URL": "  ", "SWEEPER_STORE_URL": ""})
    assert places == resolve_places(environ={})


def test_a_relative_home_is_made_absolute_at_once() -> None:
    places = resolve_places(environ={"SWEEPER_HOME": "here"})
    assert places.home == Path.cwd() / "here"
    assert places.store_url == (Path.cwd() / "here" / "store").as_uri()
