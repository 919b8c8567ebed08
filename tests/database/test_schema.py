"""Tables appear in an empty database exactly once, and only our own version of them is used."""

from __future__ import annotations

import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from faults.postgres_servers import with_database
from faults.tcp_proxy import TcpProxy

from sweeper.errors import UserError
from sweeper.ledger.database import Database, open_database
from sweeper.ledger.schema import MIGRATION_LOCK, SCHEMA_VERSION, prepare_schema, upgrade

OPEN = """
import sys
from sweeper.ledger.database import open_database
for url in sys.stdin:
    with open_database(url) as database:
        print("alembic" in sys.modules, flush=True)
"""


def open_at_once(urls: Sequence[str], processes: int) -> list[str]:
    """In each process open one URL after the other; returns each process's last answer."""
    started = [
        subprocess.Popen([sys.executable, "-c", OPEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    answers = []
    for url in urls:
        for process in started:
            assert process.stdin is not None
            process.stdin.write(url + "\n")
            process.stdin.flush()
        answers = [process.stdout.readline() for process in started if process.stdout is not None]
        assert all(answers)
    for process in started:
        process.communicate(timeout=60)
    assert [process.returncode for process in started] == [0] * processes
    return answers


def ledgers(url: str) -> list[str]:
    with Database(url) as database:
        return [row[0] for row in database.run(sa.text("SELECT ledger_id FROM sweeper.ledger"))]


def test_processes_open_an_empty_database_at_once(fresh_database: str) -> None:
    open_at_once([fresh_database], 3)
    assert len(ledgers(fresh_database)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("turns", [3, pytest.param(20, marks=pytest.mark.soak)])
def test_ten_processes_open_an_empty_database_at_once_again_and_again(turns: int, postgres_server: str) -> None:
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        for turn in range(turns):
            admin.execute(f"CREATE DATABASE turn_{turn} TEMPLATE template0")
        urls = [with_database(postgres_server, f"turn_{turn}") for turn in range(turns)]
        open_at_once(urls, 10)
        assert [len(ledgers(url)) for url in urls] == [1] * turns
        for turn in range(turns):
            admin.execute(f"DROP DATABASE turn_{turn} WITH (FORCE)")


def test_threads_of_one_process_open_an_empty_database_at_once(fresh_database: str) -> None:
    with ThreadPoolExecutor(6) as threads:
        for database in threads.map(open_database, [fresh_database] * 6):
            database.close()
    assert len(ledgers(fresh_database)) == 1


class Counting(Database):
    """Counts what it is asked to run."""

    statements = 0

    def run(self, statement: sa.Executable, parameters: Mapping[str, Any] = {}) -> Sequence[sa.Row[Any]]:
        self.statements += 1
        return super().run(statement, parameters)


def test_tables_in_place_cost_one_statement_and_no_alembic(ledger_url: str) -> None:
    assert open_at_once([ledger_url], 1) == ["False\n"]
    with Counting(ledger_url) as database:
        prepare_schema(database)
    assert database.statements == 1


def test_an_older_ledger_is_refused_until_upgraded(ledger_url: str) -> None:
    with Database(ledger_url) as database:
        database.run(sa.text("UPDATE sweeper.alembic_version SET version_num = '0000'"))
    with pytest.raises(UserError, match="`sweeper db upgrade`"):
        open_database(ledger_url)


def test_a_newer_ledger_asks_for_a_newer_package(ledger_url: str) -> None:
    with Database(ledger_url) as database:
        database.run(sa.text("UPDATE sweeper.alembic_version SET version_num = '9999'"))
    with pytest.raises(UserError, match=r"9999(.|\n)*.*pip install --upgrade sweeper"):
        open_database(ledger_url)


def test_upgrade_of_an_up_to_date_ledger_changes_nothing(ledger_url: str) -> None:
    before = ledgers(ledger_url)
    upgrade(ledger_url)
    assert ledgers(ledger_url) == before


def test_every_ledger_has_an_id_of_its_own(fresh_database: str, ledger_url: str) -> None:
    open_database(fresh_database).close()
    (one,), (other,) = ledgers(fresh_database), ledgers(ledger_url)
    assert len(one) == len(other) == 32
    assert one != other


@pytest.mark.slow
def test_a_first_start_waits_for_one_that_is_stuck(fresh_database: str) -> None:
    with psycopg.connect(fresh_database) as stuck:
        stuck.execute("SELECT pg_advisory_xact_lock(%s)", [MIGRATION_LOCK])
        freed = threading.Timer(6.0, stuck.rollback)  # longer than one wait for a lock
        freed.start()
        open_database(fresh_database).close()
        freed.join()


def test_the_version_is_the_newest_migration() -> None:
    import sweeper.ledger.migrations

    versions = Path(sweeper.ledger.migrations.__file__).parent / "versions"
    assert max(path.name[:4] for path in versions.glob("[0-9]*.py")) == SCHEMA_VERSION


def test_a_user_who_may_not_make_tables_is_told_so(fresh_database: str) -> None:
    with psycopg.connect(fresh_database, autocommit=True) as admin:
        admin.execute("CREATE ROLE guest LOGIN PASSWORD 'guest-secret'")
        url = fresh_database.replace(f"//{admin.info.user}:{admin.info.password}@", "//guest:guest-secret@")
        with pytest.raises(UserError, match="no permission") as caught:
            open_database(url)
        admin.execute("DROP ROLE guest")
    assert "guest-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "cause", "advice"),
    [
        ({"password": "wrong-secret"}, "password authentication failed", "user, password and database"),
        ({"database": "nowhere"}, '"nowhere" does not exist', "user, password and database"),
        ({"port": 1}, "refused", "host and port"),
        ({"host": "no-such-host.invalid"}, "no-such-host.invalid", "host and port"),
        ({"query": "?sslmode=require"}, "SSL", "sslmode=require"),
    ],
)
def test_a_database_that_cannot_be_used_gets_one_message(
    fresh_database: str, change: dict[str, object], cause: str, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    with psycopg.connect(fresh_database) as known:
        facts = {"password": known.info.password, "port": known.info.port, "database": known.info.dbname} | change
    host, query = facts.get("host", "127.0.0.1"), facts.get("query", "")
    url = f"postgres://sweeper:{facts['password']}@{host}:{facts['port']}/{facts['database']}{query}"
    with caplog.at_level("DEBUG"), pytest.raises(UserError) as caught:
        open_database(url, patience_s=0.3)
    assert cause in str(caught.value)
    assert advice in str(caught.value)
    assert str(facts["password"]) not in caplog.text + "".join(traceback.format_exception(caught.value))


def test_a_server_that_is_away_for_a_moment_is_waited_for(proxy: TcpProxy, by_port: Callable[..., str]) -> None:
    proxy.cut()
    back = threading.Timer(0.6, proxy.pass_on)
    back.start()
    open_database(by_port(proxy.port), patience_s=10.0).close()
    back.join()
