"""`Database.run`: one statement, its time, no session state."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from sweeper.ledger.database import Database

THEN = datetime(2031, 5, 4, 3, 2, 1, tzinfo=UTC)
TIME = sa.text("SELECT coalesce(:now, statement_timestamp())")
NAMED = sa.text("SELECT count(*) AS named FROM pg_class WHERE relname = :name")
PREPARED = sa.text("SELECT count(*) FROM pg_prepared_statements")


def test_time_is_the_databases_own_unless_given(fresh_database: str) -> None:
    with Database(fresh_database) as database, Database(fresh_database, now=lambda: THEN) as earlier:
        assert database.now is None
        assert database.run(TIME)[0][0] < THEN
        assert earlier.now == THEN
        assert earlier.run(TIME) == [(THEN,)]


def test_now_is_bound_in_core_statements_too(fresh_database: str) -> None:
    table = sa.table("t", sa.column("at", sa.DateTime(timezone=True)), sa.column("x", sa.Integer))
    now = sa.bindparam("now", type_=sa.DateTime(timezone=True))
    with Database(fresh_database, now=lambda: THEN) as database:
        assert database.run(sa.text("CREATE TABLE t (at timestamptz, x int)")) == ()
        insert = sa.insert(table).values(at=now, x=sa.bindparam("given")).returning(table.c.x)
        assert database.run(insert, {"given": 7}) == [(7,)]
        database.run(sa.update(table).values(x=8).where(table.c.at == now))
        assert database.run(sa.select(table.c.at, table.c.x)) == [(THEN, 8)]


def test_a_short_command_prepares_nothing_and_leaves_no_transaction_open(fresh_database: str) -> None:
    with Database(fresh_database, "watched") as database, Database(fresh_database) as other:
        for _ in range(15):
            database.run(NAMED, {"name": "x"})
        assert database.run(PREPARED) == [(0,)]
        assert other.run(sa.text("SELECT state FROM pg_stat_activity WHERE application_name = 'watched'")) == [
            ("idle",)
        ]


def test_a_busy_connection_that_leads_to_the_server_keeps_plans(fresh_database: str) -> None:
    with Database(fresh_database) as database:
        for _ in range(40):
            assert database.run(NAMED, {"name": "x"})[0].named == 0
        assert database.run(PREPARED) == [(1,)]
        assert database.run(sa.text("SHOW enable_seqscan")) == [("off",)]


def test_a_new_connection_begins_without_plans(fresh_database: str) -> None:
    with Database(fresh_database) as database:
        for _ in range(40):
            database.run(NAMED, {"name": "x"})
        database.close()
        assert database.run(PREPARED) == [(0,)]
        for _ in range(40):
            database.run(NAMED, {"name": "x"})


def test_a_parameter_that_is_missing_is_a_bug(fresh_database: str) -> None:
    with Database(fresh_database) as database, pytest.raises(KeyError, match="name"):
        database.run(NAMED)
