"""A real Postgres for every test session: our own embedded server, one per pytest process (so one per xdist worker)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import psycopg
import pytest
from faults.postgres_servers import QUICK_NOT_DURABLE, with_database
from hypothesis import settings

from sweeper.ledger.database import Database
from sweeper.ledger.embedded import ensure_server, stop_server
from sweeper.ledger.mirror_access import MirrorAccess
from sweeper.ledger.schema import upgrade

# Nothing here depends on how fast a machine is, nor on luck: what one run tries, every run tries.
settings.register_profile("sweeper", deadline=None, derandomize=True)
settings.load_profile("sweeper")


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a running server (superuser, database `postgres`); stopped at the end of the session."""
    home = tmp_path_factory.mktemp("pg")
    yield ensure_server(home, idle_s=30.0, options=QUICK_NOT_DURABLE)
    stop_server(home)


@pytest.fixture(scope="session")
def postgres_url(postgres_server: str) -> str:
    """Another name of `postgres_server`."""
    return postgres_server


@pytest.fixture(scope="session")
def ledger_template(postgres_server: str) -> str:
    """Name of a database with our tables, copied by `ledger_database` (quicker than migrating each time)."""
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute("CREATE DATABASE ledger_template TEMPLATE template0")
    upgrade(with_database(postgres_server, "ledger_template"))
    return "ledger_template"


@pytest.fixture(scope="session")
def mirror_template(postgres_server: str, ledger_template: str) -> str:
    """Name of a database with our tables and Optuna's (one fixture here: two would both create it)."""
    from sweeper.search.mirror_study import open_storage  # Optuna: most tests have no use for its import

    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE mirror_template TEMPLATE {ledger_template}")
    storage = open_storage(MirrorAccess(with_database(postgres_server, "mirror_template")))
    storage.remove_session()
    storage.engine.dispose()
    return "mirror_template"


@pytest.fixture
def ledger_url(postgres_server: str, ledger_template: str) -> Iterator[str]:
    """URL of a new database that has our tables and no rows of any sweep; dropped afterwards."""
    for url in _database(postgres_server, template=ledger_template):
        with psycopg.connect(url, autocommit=True) as session:
            # a ledger of its own, not the template's twin
            session.execute("UPDATE sweeper.ledger SET ledger_id = md5(random()::text)")
        yield url


@pytest.fixture
def ledger_database(ledger_url: str) -> Iterator[Database]:
    """An open `Database` on tables of its own."""
    with Database(ledger_url, "test") as database:
        yield database


@pytest.fixture
def fresh_database(postgres_server: str) -> Iterator[str]:
    """URL of a new empty database, dropped afterwards whoever is still connected."""
    yield from _database(postgres_server, template="template0")


def _database(server: str, *, template: str) -> Iterator[str]:
    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    yield with_database(server, name)
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
