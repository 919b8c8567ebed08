"""The tables' version: made in an empty database, checked at every start, raised only by `sweeper db upgrade`."""

from __future__ import annotations

import threading
from pathlib import Path

import psycopg
import sqlalchemy as sa

from sweeper.clock import SystemClock
from sweeper.errors import LedgerUnavailable, UserError
from sweeper.ledger.first_contact import insist
from sweeper.ledger.statements import Database, Statements

SCHEMA_VERSION = "0003"
"""Newest revision in `migrations/versions`: four digits, in order (a test compares them)."""
MIGRATION_LOCK = 0x5357_4545_5045_5221
"""Key of the advisory lock that migrations hold to the end of their transaction (never for a session: poolers)."""
MIGRATION_S = 120.0

_VERSION = sa.text("SELECT version_num FROM sweeper.alembic_version")
_NO_SUCH_TABLE = frozenset({"3F000", "42P01"})
_NO_PERMISSION = "42501"
_one_migration = threading.Lock()
"""Alembic keeps its context in a module; threads of one process take turns."""


def schema_version(db: Statements) -> str | None:
    """Revision of the tables, None in a database without them. One statement."""
    try:
        rows = db.run(_VERSION)
    except sa.exc.DBAPIError as error:
        if isinstance(error.orig, psycopg.Error) and error.orig.sqlstate in _NO_SUCH_TABLE:
            return None
        raise
    return str(rows[0][0]) if rows else None


def prepare_schema(database: Database) -> None:
    """Make the tables in an empty database; refuse any version but ours. One statement when all is well.

    Raises:
        UserError: older tables (naming `sweeper db upgrade`), newer ones, or no permission to make them.
        LedgerUnavailable: as any call.
    """
    version = schema_version(database)
    if version is None:
        upgrade(database.url)
        version = schema_version(database)
    if version is None or version < SCHEMA_VERSION:
        raise UserError(
            f"the tables in database {database.where} have version {version}, this sweeper needs {SCHEMA_VERSION}",
            remedy="Run `sweeper db upgrade` (running workers of the old version finish what they hold).",
        )
    if version > SCHEMA_VERSION:
        raise UserError(
            f"the tables in database {database.where} have version {version}, made by a newer sweeper than this one, "
            f"which knows {SCHEMA_VERSION}",
            remedy="Upgrade the package here: `pip install --upgrade sweeper`.",
        )


def upgrade(url: str, *, wait_s: float = 60.0) -> None:
    """Bring the tables to `SCHEMA_VERSION`, from nothing or from an older version; does nothing if they are there.

    One transaction under an advisory lock, so that any number may call it at once; waits for locks 5 s at a time, so
    that workers are never blocked for longer, and tries again for `wait_s`.

    Raises:
        UserError: the database cannot be used, or no permission to make tables.
        LedgerUnavailable: it went away, or the tables stayed locked.
    """
    with Database(url, "sweeper upgrade") as database:
        insist(database, lambda: schema_version(database), patience_s=2.0)
    database = Database(url, "sweeper upgrade", statement_s=MIGRATION_S)
    clock, pause = SystemClock(), threading.Event()
    deadline_s = clock.monotonic_s() + wait_s
    while True:
        try:
            with _one_migration:
                _migrate(database)
            return
        except LedgerUnavailable:
            if clock.monotonic_s() > deadline_s:
                raise
            pause.wait(0.5)
        except sa.exc.DBAPIError as error:
            if isinstance(error.orig, psycopg.Error) and error.orig.sqlstate == _NO_PERMISSION:
                raise UserError(
                    f"no permission to make tables in database {database.where}: {error.orig.diag.message_primary}",
                    remedy="Grant the user CREATE on the database, or have its owner run `sweeper db upgrade`.",
                ) from error.orig
            raise


def _migrate(database: Database) -> None:
    from alembic import command  # 150 ms that a start with tables in place does not pay
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    with database.transaction() as connection:
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
