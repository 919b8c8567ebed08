"""`Database.run`: one statement, its time, no session state."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from sweeper.errors import LedgerUnavailable
from sweeper.ledger.database import Database
from sweeper.ledger.sql import statement

THEN = datetime(2031, 5, 4, 3, 2, 1, tzinfo=UTC)
TIME = sa.text("SELECT coalesce(:now, statement_timestamp())")
NAMED = statement("SELECT count(*) AS named FROM pg_class WHERE relname = :name")
ECHO = statement("""
SELECT :reason AS reason, :trial_id AS trial_id, :lease_s AS lease_s, :from_zero AS from_zero, :result AS result,
       :now AS now, :texts AS texts, :steps AS steps, :values AS values
""")
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


AWKWARD = [
    "", "NULL", "null", "{}", 'a"b', "a\\b", "\\", "a,b", " ", "\n\t", "Ünïcødé 🙂", "'; --", "{a,\"b\"}", "%s $1 :x"
]  # fmt: skip


@pytest.mark.parametrize("times", [1, 40], ids=["sent whole", "kept plan"])
def test_parameters_arrive_as_they_were_given(fresh_database: str, times: int) -> None:
    given = {
        "reason": AWKWARD[4], "trial_id": 2**63 - 1, "lease_s": 1e-300, "from_zero": False,
        "result": {"text": AWKWARD, "n": [1, None, 1.0]}, "texts": [*AWKWARD, None], "steps": [-(2**63), 0, None],
        "values": [-0.0, 0.1, 1e300, math.inf, -math.inf, None],
    }  # fmt: skip
    with Database(fresh_database, now=lambda: THEN) as database:
        for _ in range(times):
            rows = database.run(ECHO, given)
    assert dict(rows[0]._mapping) == {**given, "now": THEN}
    assert math.copysign(1, rows[0].values[0]) == -1


def test_no_value_is_null_for_every_type(fresh_database: str) -> None:
    names = ("reason", "trial_id", "lease_s", "from_zero", "result", "texts", "steps", "values")
    with Database(fresh_database) as database:
        assert set(database.run(ECHO, dict.fromkeys(names))[0]) == {None}
        given = {**dict.fromkeys(names), "values": [], "lease_s": math.nan}
        row = database.run(ECHO, given)[0]
        assert row.values == []
        assert math.isnan(row.lease_s)


@pytest.mark.parametrize("given", [{"reason": "a\0b"}, {"texts": ["a\0b"]}], ids=["text", "array"])
def test_text_is_never_cut_at_a_nul(fresh_database: str, given: dict[str, Any]) -> None:
    """The protocol between client and server ends a text there, without a word."""
    names = ("reason", "trial_id", "lease_s", "from_zero", "result", "texts", "steps", "values")
    with Database(fresh_database) as database, pytest.raises(sa.exc.DataError, match="NUL"):
        database.run(ECHO, {**dict.fromkeys(names), **given})


def test_errors_of_the_server_are_sorted_by_its_state(fresh_database: str) -> None:
    divided = statement("SELECT 1 / :trial_id AS x")
    with Database(fresh_database) as database:
        for _ in range(40):
            with pytest.raises(sa.exc.DataError, match="division by zero"):
                database.run(divided, {"trial_id": 0})
        assert database.run(divided, {"trial_id": 1})[0].x == 1


@pytest.mark.parametrize("where", ["environment", "url"])
def test_text_is_utf_8_whatever_encoding_clients_are_told_to_use(
    fresh_database: str, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    url = fresh_database
    if where == "environment":
        monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    else:
        url += f"{'&' if '?' in url else '?'}client_encoding=LATIN1"
    echo = statement("SELECT :reason AS reason, char_length(:reason) AS characters")
    with Database(url) as database:
        row = database.run(echo, {"reason": "é🙂"})[0]
        assert (row.reason, row.characters) == ("é🙂", 2)


def test_a_database_of_another_encoding_holds_what_it_can(fresh_database: str) -> None:
    with Database(fresh_database) as database:
        database.run(sa.text("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"))
    echo = statement("SELECT :reason AS reason, char_length(:reason) AS characters")
    url = sa.make_url(fresh_database).set(database="latin").render_as_string(hide_password=False)
    try:
        with Database(url) as database:
            assert tuple(database.run(echo, {"reason": "é"})[0]) == ("é", 1)
            with pytest.raises(sa.exc.DataError, match="encoding"):
                database.run(echo, {"reason": "🙂"})
    finally:
        with Database(fresh_database) as database:
            database.run(sa.text("DROP DATABASE latin"))


def test_a_plan_that_could_not_be_made_anew_is_made_later(fresh_database: str) -> None:
    """A lock_timeout of the administrator's ends the statement that would keep it, and the connection lives on."""
    things = statement("SELECT count(*) AS named FROM things WHERE name = :name")
    with Database(fresh_database) as database, psycopg.connect(fresh_database) as other:
        database.run(sa.text("CREATE TABLE things (name text)"))
        for _ in range(29):
            database.run(things, {"name": "x"})
        database.run(sa.text("SET lock_timeout = '50ms'"))
        for _ in range(40):  # within which the plan is due to be made anew, by a statement that is refused
            other.execute("LOCK TABLE things IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(LedgerUnavailable):
                database.run(things, {"name": "x"})
            other.rollback()
            assert database.run(things, {"name": "x"})[0].named == 0


def test_plans_that_somebody_discarded_are_made_again(fresh_database: str) -> None:
    with Database(fresh_database) as database:
        for _ in range(30):
            database.run(NAMED, {"name": "pg_class"})
        database.run(sa.text("DISCARD ALL"))
        with pytest.raises(LedgerUnavailable):
            database.run(NAMED, {"name": "pg_class"})
        assert database.run(NAMED, {"name": "pg_class"})[0].named == 1
