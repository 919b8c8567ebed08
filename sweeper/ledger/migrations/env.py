"""How Alembic reaches the ledger: on the open connection that the caller puts into `config.attributes["connection"]`.

The version table lies inside schema `sweeper`, which is made here when it is missing; nothing outside it is compared
or touched. The caller decides about locks, timeouts and when to commit.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context

from sweeper.ledger.search_tables import SCHEMA, metadata


def _ours(name: str | None, kind: str, parents: object) -> bool:
    return kind != "schema" or name == SCHEMA


def run(connection: sa.Connection) -> None:
    """Run the migrations that were asked for, inside the caller's transaction."""
    connection.execute(sa.text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
    context.configure(
        connection=connection,
        target_metadata=metadata,
        version_table="alembic_version",
        version_table_schema=SCHEMA,
        include_schemas=True,
        include_name=_ours,
        compare_type=True,
        compare_server_default=True,
    )
    with context.begin_transaction():
        context.run_migrations()


run(context.config.attributes["connection"])
