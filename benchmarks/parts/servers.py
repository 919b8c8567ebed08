"""A new embedded Postgres with the product's own durable settings, and databases on it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

from sweeper.ledger.embedded import ensure_server, stop_server


@contextmanager
def new_server() -> Iterator[str]:
    """Give the URL of a server that nobody else uses; it is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        home = Path(name)
        try:
            yield ensure_server(home, idle_s=600.0)
        finally:
            stop_server(home)


def new_database(server: str, name: str) -> str:
    """Make an empty database; give its URL. One of that name that is there already is dropped."""
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        admin.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
    return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))


def optuna_url(url: str) -> str:
    """The same for Optuna's storage."""
    return "postgresql+psycopg" + url.removeprefix("postgresql")
