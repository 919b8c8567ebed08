"""A search on a ledger of its own whose database has Optuna's tables already: that is quicker."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from faults.postgres_servers import with_database

from sweeper.ledger.database import Database
from sweeper.ledger.mirror_access import MirrorAccess
from sweeper.search.mirror_study import open_storage
from tests.conftest import _database
from tests.mirror.world import SearchWorld


@pytest.fixture(scope="session")
def mirror_template(postgres_server: str, ledger_template: str) -> str:
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE mirror_template TEMPLATE {ledger_template}")
    storage = open_storage(MirrorAccess(with_database(postgres_server, "mirror_template")))
    storage.remove_session()
    storage.engine.dispose()
    return "mirror_template"


@pytest.fixture
def mirror_url(postgres_server: str, mirror_template: str) -> Iterator[str]:
    """URL of a new database with the ledger's tables and Optuna's, and no rows of any sweep."""
    yield from _database(postgres_server, template=mirror_template)


@pytest.fixture
def world(mirror_url: str) -> Iterator[SearchWorld]:
    """A search named digits, without trials."""
    with Database(mirror_url, "test") as database:
        world = SearchWorld.build(database, mirror_url)
        yield world
        world.close()
