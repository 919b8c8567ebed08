"""A ledger under virtual time, and a sweep on it. One database for all, emptied between tests: that is quicker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from sweeper.ledger.database import Database
from tests.conftest import _database
from tests.ledger.search_world import SearchWorld
from tests.ledger.two_sessions import Databases
from tests.ledger.world import Clock, World


@pytest.fixture(scope="session")
def shared_ledger_url(postgres_server: str, ledger_template: str) -> Iterator[str]:
    yield from _database(postgres_server, template=ledger_template)


@pytest.fixture(scope="module")
def databases(postgres_server: str, ledger_template: str) -> Iterator[Databases]:
    for url in _database(postgres_server, template=ledger_template):
        clock = Clock()
        with (
            Database(url, "main", clock) as db,
            Database(url, "first", clock) as first,
            Database(url, "second", clock) as second,
        ):
            yield clock, db, first, second


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def empty_url(shared_ledger_url: str) -> str:
    """URL of a ledger without sweeps, whose pulse has not begun."""
    with Database(shared_ledger_url, "cleaner") as database:
        for cleaning in (
            "DELETE FROM sweeper.sweeps",
            "UPDATE sweeper.pulse SET last_seen_at = 'epoch', awake_since = 'epoch'",
            "UPDATE sweeper.ledger SET min_code = 1",
        ):
            database.run(sa.text(cleaning))
    return shared_ledger_url


@pytest.fixture
def db(empty_url: str, clock: Clock) -> Iterator[Database]:
    with Database(empty_url, "test", clock) as database:
        yield database


@pytest.fixture
def world(db: Database, clock: Clock) -> World:
    return World.build(db, clock)


@pytest.fixture
def search(db: Database, clock: Clock) -> SearchWorld:
    """A search whose coordinator is the test."""
    return SearchWorld.begin(db, clock)
