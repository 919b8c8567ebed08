"""A search on a ledger of its own whose database has Optuna's tables already: that is quicker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sweeper.ledger.database import Database
from tests.conftest import _database
from tests.mirror.world import SearchWorld


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
