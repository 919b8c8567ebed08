"""`tables.py` and the migrations describe one schema."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from sweeper.ledger.database import Database
from sweeper.ledger.search_tables import SCHEMA, metadata

CATALOG = {
    "constraints": (
        "SELECT conrelid::regclass::text AS owner, conname, pg_get_constraintdef(oid) AS definition FROM pg_constraint"
        " WHERE connamespace = 'sweeper'::regnamespace"
        " AND conrelid <> 'sweeper.alembic_version'::regclass ORDER BY 1, 2"
    ),
    "indexes": (
        "SELECT tablename, indexname, indexdef FROM pg_indexes"
        " WHERE schemaname = 'sweeper' AND tablename <> 'alembic_version' ORDER BY 1, 2"
    ),
    "columns": (
        "SELECT table_name, column_name, data_type, is_nullable, column_default, is_identity"
        " FROM information_schema.columns"
        " WHERE table_schema = 'sweeper' AND table_name <> 'alembic_version' ORDER BY 1, 2"
    ),
    "functions": (
        "SELECT proname, pg_get_functiondef(oid) AS definition FROM pg_proc"
        " WHERE pronamespace = 'sweeper'::regnamespace ORDER BY 1"
    ),
    "triggers": (
        "SELECT tgname, pg_get_triggerdef(oid) AS definition FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1"
    ),
    "storage": (
        "SELECT relname, reloptions FROM pg_class WHERE relnamespace = 'sweeper'::regnamespace AND relkind = 'r'"
        " AND relname <> 'alembic_version' ORDER BY 1"
    ),
}


def catalog(connection: sa.Connection) -> dict[str, list[tuple[Any, ...]]]:
    return {name: [tuple(row) for row in connection.execute(sa.text(query))] for name, query in CATALOG.items()}


def test_autogenerate_finds_no_difference(empty_url: str) -> None:
    with Database(empty_url, "test").transaction() as connection:
        # The test server's user is called like our schema, which would make it the default one, compared as no schema.
        connection.dialect.default_schema_name = "public"
        context = MigrationContext.configure(
            connection,
            opts={
                "include_schemas": True,
                "include_name": lambda name, kind, parents: kind != "schema" or name == SCHEMA,
                "version_table_schema": SCHEMA,
                "compare_type": True,
                "compare_server_default": True,
            },
        )
        assert compare_metadata(context, metadata) == []


def test_checks_keys_indexes_and_storage_are_those_of_the_tables(empty_url: str, fresh_database: str) -> None:
    """Which autogenerate does not compare."""
    with Database(empty_url, "test").transaction() as connection:
        migrated = catalog(connection)
    with Database(fresh_database, "test").transaction() as connection:
        connection.execute(sa.text("CREATE SCHEMA sweeper"))
        connection.execute(sa.text("CREATE TABLE sweeper.alembic_version (version_num text)"))
        metadata.create_all(connection)
        declared = catalog(connection)
    for name in CATALOG:
        assert migrated[name] == declared[name], name


def test_nothing_indexes_when_a_lease_expires(empty_url: str) -> None:
    """Heartbeats would never be HOT."""
    with Database(empty_url, "test").transaction() as connection:
        definitions = [row[2] for row in catalog(connection)["indexes"]]
    assert not [text for text in definitions if "lease_expires_at" in text]
