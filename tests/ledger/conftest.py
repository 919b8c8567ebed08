"""A ledger under virtual time, and a sweep on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sweeper.ledger.database import Database
from tests.ledger.world import Clock, World


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def db(ledger_url: str, clock: Clock) -> Iterator[Database]:
    with Database(ledger_url, "test", clock) as database:
        yield database


@pytest.fixture
def world(db: Database, clock: Clock) -> World:
    return World.build(db, clock)
