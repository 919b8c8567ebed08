"""Behind a transaction pooler (PG-05): pgbouncer, five server connections, twenty clients."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from faults.postgres_servers import by_loopback, server_port
from psycopg.conninfo import conninfo_to_dict

from sweeper.errors import LedgerUnavailable
from sweeper.ledger.database import Database, open_database

pytestmark = pytest.mark.slow

PGBOUNCER = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


@pytest.fixture
def pooled_url(fresh_database: str) -> Iterator[str]:
    """The fresh database by way of pgbouncer in transaction mode with a pool of five."""
    if PGBOUNCER is None:
        pytest.skip("pgbouncer is not installed (Debian package pgbouncer; `make test` installs it)")
    server = conninfo_to_dict(fresh_database)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="pgbouncer-") as name:
        config = Path(name) / "pgbouncer.ini"
        config.write_text(
            f"[databases]\n{server['dbname']} = host=127.0.0.1 port={server_port(fresh_database)} "
            f"user={server['user']} password={server['password']}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
            "pool_mode = transaction\ndefault_pool_size = 5\nmax_client_conn = 200\nquery_wait_timeout = 20\n"
        )
        process = subprocess.Popen([PGBOUNCER, "-q", str(config)], **_not_as_root(Path(name), config))
        try:
            url = by_loopback(fresh_database, port)
            _wait_for(url, process)
            yield url
        finally:
            process.terminate()
            process.wait(20)


def _not_as_root(*owned: Path) -> dict[str, object]:
    quiet: dict[str, object] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if os.geteuid() != 0:
        return quiet
    nobody = pwd.getpwnam("nobody")
    for path in owned:
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    return {**quiet, "user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(1000):
        assert process.poll() is None
        try:
            psycopg.connect(url, connect_timeout=5).close()
        except psycopg.OperationalError:
            continue
        return
    raise AssertionError("pgbouncer does not answer")


def test_twenty_clients_share_five_connections(pooled_url: str) -> None:
    open_database(pooled_url).close()  # the tables are made through the pooler as well
    count = sa.text("SELECT count(*) FROM sweeper.trials WHERE config_hash <> :hash")
    with Database(pooled_url) as database:
        database.run(sa.text("CREATE TABLE marks (client int, turn int, PRIMARY KEY (client, turn))"))

    def work(client: int) -> int:
        with Database(pooled_url) as database:
            for turn in range(15):
                assert database.run(count, {"hash": "x"}) == [(0,)]
                database.run(sa.text("INSERT INTO marks VALUES (:client, :turn)"), {"client": client, "turn": turn})
        return client

    with ThreadPoolExecutor(20) as threads:
        assert list(threads.map(work, range(20))) == list(range(20))
    with Database(pooled_url) as database:
        assert database.run(sa.text("SELECT count(*) FROM marks")) == [(300,)]
        idle = sa.text("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'")
        assert database.run(idle) == [(0,)]


def test_a_failed_or_hanging_statement_leaves_the_pool_clean(pooled_url: str) -> None:
    with Database(pooled_url, statement_s=0.4) as database:
        for _ in range(6):
            with pytest.raises(sa.exc.ProgrammingError):
                database.run(sa.text("SELECT nothing_like_it"))
            with pytest.raises(LedgerUnavailable):
                database.run(sa.text("SELECT pg_sleep(60)"))
        assert database.run(sa.text("SELECT 1")) == [(1,)]


def test_nothing_rests_on_one_server_session(pooled_url: str) -> None:
    """A busy client of a pooler asks no session to remember anything: the next statement may reach another one."""
    relations = sa.text("SELECT count(*) AS named FROM pg_class WHERE relname = :name")

    def work(client: int) -> None:
        with Database(pooled_url) as database:
            for _ in range(60):
                assert database.run(relations, {"name": f"none-{client}"})[0].named == 0
            assert database.run(sa.text("SELECT count(*) FROM pg_prepared_statements")) == [(0,)]
            assert database.run(sa.text("SHOW enable_seqscan")) == [("on",)]

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
