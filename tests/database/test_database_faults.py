"""`Database` on a network and a server that misbehave (PG-06, PG-07, PG-10): bounded, sorted, and usable again."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from faults.postgres_servers import QUICK_NOT_DURABLE
from faults.tcp_proxy import TcpProxy

from sweeper.errors import LedgerUnavailable
from sweeper.ledger.embedded import ensure_server, stop_server
from sweeper.ledger.statements import MAX_CONNECTIONS, Database

pytestmark = pytest.mark.slow

ByPort = Callable[..., str]
BACKEND = sa.text("SELECT pg_backend_pid()")


def elapsed_s(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def fails(database: Database, statement: str = "SELECT 1") -> LedgerUnavailable:
    with pytest.raises(LedgerUnavailable) as caught:
        database.run(sa.text(statement))
    return caught.value


def works(database: Database) -> bool:
    return database.run(sa.text("SELECT 1"))[0][0] == 1


def test_a_black_hole_is_left_within_the_bound(proxy: TcpProxy, by_port: ByPort) -> None:
    with Database(by_port(proxy.port, connect_timeout=2), statement_s=0.5) as database:
        assert works(database)
        proxy.black_hole()
        assert elapsed_s(lambda: fails(database)) < 4
        assert 1.5 < elapsed_s(lambda: fails(database)) < 4  # now a new connection, which gets no answer either
        proxy.pass_on()
        assert works(database)


def test_a_slow_network_is_no_failure(proxy: TcpProxy, by_port: ByPort) -> None:
    with Database(by_port(proxy.port)) as database:
        proxy.delay(0.05)
        assert works(database)


def test_a_statement_that_hangs_is_cancelled_on_the_server_too(fresh_database: str) -> None:
    with Database(fresh_database, "hanger", statement_s=0.4) as database, Database(fresh_database) as other:
        assert "no answer within 0.4 s" in str(fails(database, "SELECT pg_sleep(60)"))
        asleep = sa.text("SELECT pid FROM pg_stat_activity WHERE application_name = 'hanger' AND state = 'active'")
        deadline = time.perf_counter() + 5
        while other.run(asleep):
            assert time.perf_counter() < deadline
        assert works(database)


def test_a_cut_network_is_reported_and_healed(proxy: TcpProxy, by_port: ByPort) -> None:
    with Database(by_port(proxy.port)) as database:
        assert works(database)
        proxy.cut()
        assert f"127.0.0.1:{proxy.port}" in str(fails(database))
        proxy.pass_on()
        assert works(database)


def test_an_idle_connection_that_was_reset_is_replaced_unnoticed(proxy: TcpProxy, by_port: ByPort) -> None:
    with Database(by_port(proxy.port)) as database:
        for _ in range(3):
            assert works(database)
            proxy.reset()
        assert works(database)


def test_after_a_lost_reply_the_statement_was_done(proxy: TcpProxy, by_port: ByPort, fresh_database: str) -> None:
    with Database(by_port(proxy.port)) as database, Database(fresh_database) as other:
        database.run(sa.text("CREATE TABLE seen (x int)"))
        proxy.lose_reply()
        fails(database, "INSERT INTO seen VALUES (1)")
        proxy.pass_on()
        assert other.run(sa.text("SELECT x FROM seen")) == [(1,)]
        assert works(database)


def test_terminated_backends_while_idle_are_not_noticed(fresh_database: str) -> None:
    with Database(fresh_database) as database, Database(fresh_database) as admin:
        for _ in range(3):
            backend = database.run(BACKEND)[0][0]
            admin.run(sa.text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": backend})
            assert database.run(BACKEND)[0][0] != backend


def test_a_backend_terminated_in_mid_statement_names_the_cause(fresh_database: str) -> None:
    with Database(fresh_database, "victim") as database, Database(fresh_database) as admin:
        find = sa.text("SELECT pid FROM pg_stat_activity WHERE application_name = 'victim' AND query LIKE '%pg_sleep%'")
        with ThreadPoolExecutor(1) as threads:
            running = threads.submit(fails, database, "SELECT pg_sleep(30)")
            while not (rows := admin.run(find)):
                pass
            admin.run(sa.text("SELECT pg_terminate_backend(:pid)"), {"pid": rows[0][0]})
            assert "57P01" in str(running.result(10))
        assert works(database)


@pytest.mark.parametrize(
    "state", ["40001", "40P01", "53300", "53100", "57014", "57P01", "57P03", "25006", "55P03", "08006", "58030"]
)
def test_what_may_go_better_later_is_unavailable(fresh_database: str, state: str) -> None:
    with Database(fresh_database) as database:
        assert state in str(fails(database, f"DO $$ BEGIN RAISE EXCEPTION 'as told' USING ERRCODE = '{state}'; END $$"))
        assert works(database)


@pytest.mark.parametrize("state", ["23505", "23514", "42601", "42P01", "42501", "22003", "XX000", "P0001"])
def test_what_is_a_bug_passes_through(fresh_database: str, state: str) -> None:
    with Database(fresh_database) as database:
        with pytest.raises(sa.exc.DBAPIError):
            database.run(sa.text(f"DO $$ BEGIN RAISE EXCEPTION 'as told' USING ERRCODE = '{state}'; END $$"))
        assert works(database)


def test_a_violated_constraint_shows_no_parameters(fresh_database: str) -> None:
    with Database(fresh_database) as database:
        database.run(sa.text("CREATE TABLE t (x text CHECK (x = 'a'), y text)"))
        with pytest.raises(sa.exc.IntegrityError) as caught:
            database.run(sa.text("INSERT INTO t VALUES ('a', :y), ('b', '')"), {"y": "token-in-a-config"})
        assert "token-in-a-config" not in str(caught.value)


def test_a_deadlock_is_unavailable_for_one_and_nothing_for_the_other(fresh_database: str) -> None:
    with Database(fresh_database) as one, Database(fresh_database) as two:
        one.run(sa.text("CREATE TABLE pair AS SELECT x, 0 AS n FROM generate_series(1, 2) AS x"))

        def cross(database: Database, first: int) -> str:
            update = "UPDATE pair SET n = n + 1 WHERE x = {}; "
            body = update.format(first) + "PERFORM pg_sleep(0.3); " + update.format(3 - first)
            try:
                database.run(sa.text(f"DO $$ BEGIN {body} END $$"))
            except LedgerUnavailable as error:
                return str(error)
            return "done"

        with ThreadPoolExecutor(2) as threads:
            answers = sorted(threads.map(cross, (one, two), (1, 2)))
        assert answers[1] == "done"
        assert "40P01" in answers[0]


def test_too_many_connections_are_unavailable_and_named(fresh_database: str) -> None:
    with psycopg.connect(fresh_database, autocommit=True) as admin:
        admin.execute("CREATE ROLE crowd LOGIN PASSWORD 'crowd-secret' CONNECTION LIMIT 1")
        try:
            url = fresh_database.replace(f"//{admin.info.user}:{admin.info.password}@", "//crowd:crowd-secret@")
            with Database(url) as first, Database(url) as second:
                assert works(first)
                error = str(fails(second))
                assert "too many connections" in error
                assert "crowd-secret" not in error
                first.close()
                assert works(second)
        finally:
            admin.execute("DROP ROLE crowd")


def test_a_process_never_has_more_connections_than_stated(fresh_database: str) -> None:
    with Database(fresh_database, "crowd") as database, Database(fresh_database) as admin:
        begin = threading.Barrier(8)

        def work(_: int) -> int:
            begin.wait()
            for _ in range(30):
                works(database)
            count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'crowd'"
            return int(database.run(sa.text(count))[0][0])

        with ThreadPoolExecutor(8) as threads:
            assert max(threads.map(work, range(8))) <= MAX_CONNECTIONS
        idle = "SELECT DISTINCT state FROM pg_stat_activity WHERE application_name = 'crowd'"
        assert admin.run(sa.text(idle)) == [("idle",)]


def test_all_connections_busy_is_unavailable(fresh_database: str) -> None:
    with Database(fresh_database, statement_s=0.5) as database, ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: fails(database, "SELECT pg_sleep(20)"), range(4)))
        assert all("0.5 s" in str(answer) or "busy" in str(answer) for answer in answers)
        assert works(database)


def test_a_forked_child_uses_no_connection_of_its_parent(fresh_database: str) -> None:
    """PG-10."""
    with Database(fresh_database) as database:
        mine = database.run(BACKEND)[0][0]
        for _ in range(20):
            child = os.fork()
            if child == 0:  # pragma: no cover
                theirs = database.run(BACKEND)[0][0]
                database.close()
                os._exit(0 if theirs != mine else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert database.run(BACKEND)[0][0] == mine


@pytest.fixture
def twin(tmp_path: Path, postgres_server: str) -> Iterator[tuple[str, str]]:
    """Admin URLs of two servers with the same role and table; the first can be demoted."""
    first = ensure_server(tmp_path, idle_s=30.0, options=QUICK_NOT_DURABLE)
    for url in (first, postgres_server):
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute("CREATE ROLE twin LOGIN PASSWORD 'twin-secret'")
            admin.execute("CREATE TABLE public.twin (x int)")
            admin.execute("GRANT ALL ON public.twin TO twin")
    yield first, postgres_server
    stop_server(tmp_path)
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute("DROP TABLE public.twin")
        admin.execute("DROP ROLE twin")


def test_a_demoted_primary_is_left_for_the_writable_one(twin: tuple[str, str]) -> None:
    """PG-06."""
    demoted, writable = twin
    with psycopg.connect(demoted) as one, psycopg.connect(writable) as two:
        ports = f"{one.info.port},{two.info.port}"
    url = f"postgresql://twin:twin-secret@/postgres?host=127.0.0.1,127.0.0.1&port={ports}"
    write = "INSERT INTO public.twin VALUES (1)"
    with Database(url) as database, psycopg.connect(demoted, autocommit=True) as admin:
        database.run(sa.text(write))
        admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        admin.execute("SELECT pg_reload_conf()")
        errors = []
        for _ in range(50):
            try:
                database.run(sa.text(write))
            except LedgerUnavailable as error:
                errors.append(str(error))
                break
        assert "25006" in errors[0]
        assert "twin-secret" not in errors[0]
        database.run(sa.text(write))
        with psycopg.connect(writable) as other:
            assert other.execute("SELECT count(*) FROM public.twin").fetchone() == (1,)
