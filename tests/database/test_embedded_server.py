"""The embedded server: started once, shared, survives its starter, comes back after a kill, stops when unused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from faults.postgres_servers import QUICK_NOT_DURABLE, server_port

from sweeper.errors import UserError
from sweeper.ledger import server_cluster
from sweeper.ledger.embedded import ensure_server, release_server, server_status, stop_server
from sweeper.ledger.file_locks import is_locked

USE = """
import sys
from pathlib import Path
from sweeper.ledger.file_locks import is_locked
from sweeper.ledger.embedded import ensure_server
home, idle_s = Path(sys.argv[1]), float(sys.argv[2])
print(ensure_server(home, idle_s=idle_s, options={"fsync": "off"}), flush=True)
"""
HOLD = USE + "sys.stdin.read()\n"
FORK_AND_HOLD = USE + (
    "import os\n"
    "pid = os.fork() or os.getpid()\n"
    "os.write(1, f'{pid}\\n'.encode())  # in one piece: two processes write into this pipe\n"
    "sys.stdin.read()\n"
)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose server was started once and stopped: copies of it start without `initdb`."""
    home = tmp_path_factory.mktemp("cluster")
    start(home)
    stop_server(home)
    release_server(home)
    return home


@pytest.fixture
def home(empty_home: Path, cluster: Path) -> Path:
    """A `SWEEPER_HOME` with an empty database; whatever runs there is stopped afterwards."""
    (empty_home / "postgres").mkdir(mode=0o700, parents=True)
    for name in ("data", "password"):
        subprocess.run(["cp", "-a", str(cluster / "postgres" / name), str(empty_home / "postgres")], check=True)
    return empty_home


@pytest.fixture
def empty_home(tmp_path: Path) -> Iterator[Path]:
    """A new `SWEEPER_HOME`; whatever runs there is stopped afterwards."""
    yield tmp_path / "home"
    release_server(tmp_path / "home")
    stop_server(tmp_path / "home")


def begin(script: str, home: Path, idle_s: float = 30.0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, str(home), str(idle_s)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=60)
    assert process.returncode == 0


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=60)


def start(home: Path, **settings: float) -> str:
    return ensure_server(home, options=QUICK_NOT_DURABLE, **settings)


def postmaster(home: Path) -> int:
    return int((home / "postgres/data/postmaster.pid").read_text().split()[0])


def keeper(home: Path) -> int:
    return int((home / "postgres/keeper.lock").read_text())


def kill_keeper(home: Path) -> None:
    os.kill(keeper(home), signal.SIGKILL)
    soon(lambda: not is_locked(home / "postgres/keeper.lock"))


def answers(url: str) -> bool:
    try:
        with psycopg.connect(url, connect_timeout=5) as connection:
            return connection.execute("SELECT 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


def soon(condition: Callable[[], bool], within_s: float = 20.0) -> None:
    deadline = time.perf_counter() + within_s
    while not condition():
        assert time.perf_counter() < deadline
        threading.Event().wait(0.02)


def test_a_start_takes_seconds_and_an_attach_milliseconds(empty_home: Path) -> None:
    begun = time.perf_counter()
    url = start(empty_home)
    started = time.perf_counter()
    assert start(empty_home) == url
    attached = time.perf_counter()
    assert started - begun < 20
    assert attached - started < 0.5
    assert answers(url)
    assert answers(url.replace(str(empty_home / "postgres/data") + ",", "").rpartition(",")[0])  # loopback alone


def test_files_are_private_and_the_password_lies_in_one_place(empty_home: Path) -> None:
    before = stat.S_IMODE(empty_home.parent.stat().st_mode)
    url = start(empty_home)
    folder = empty_home / "postgres"
    password = (folder / "password").read_text()
    assert password in url
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "password").stat().st_mode) == 0o600
    assert stat.S_IMODE(empty_home.parent.stat().st_mode) == before
    assert (folder / "data").stat().st_uid != 0
    for name in ("server.json", "server.log", "data/postgresql.conf", "data/pg_hba.conf"):
        assert password not in (folder / name).read_text()
    record = json.loads((folder / "server.json").read_text())
    assert record["host"] == socket.gethostname()


def test_a_wrong_password_is_refused_on_socket_and_loopback(home: Path) -> None:
    url = start(home)
    password = (home / "postgres/password").read_text()
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(url.replace(password, "guess"))


def test_the_server_survives_the_sigkill_of_its_starter(home: Path) -> None:
    starter = begin(HOLD, home)
    url = said(starter)
    kill(starter)
    assert answers(url)
    assert start(home) == url


@pytest.mark.slow
def test_ten_processes_start_one_server(empty_home: Path) -> None:
    processes = [begin(HOLD, empty_home) for _ in range(10)]
    urls = {said(process) for process in processes}
    assert len(urls) == 1
    assert answers(urls.pop())
    for process in processes:
        end(process)


@pytest.mark.slow
def test_a_starter_killed_at_any_moment_leaves_a_startable_home(empty_home: Path) -> None:
    for delay_s in (0.2, 0.4, 0.6):
        starter = begin(HOLD, empty_home)
        with pytest.raises(subprocess.TimeoutExpired):
            starter.communicate(timeout=delay_s)
        kill(starter)
    assert answers(start(empty_home))


def test_a_killed_server_comes_back_at_the_same_url(home: Path) -> None:
    url = start(home)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS x")
    os.kill(postmaster(home), signal.SIGKILL)
    assert start(home) == url
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT x FROM kept").fetchone() == (42,)


@pytest.mark.slow
def test_a_killed_server_comes_back_by_itself(home: Path) -> None:
    url = start(home)
    first = postmaster(home)
    os.kill(first, signal.SIGKILL)
    soon(lambda: answers(url))
    assert postmaster(home) != first


@pytest.mark.slow
def test_server_and_keeper_both_killed(home: Path) -> None:
    url = start(home)
    os.kill(keeper(home), signal.SIGKILL)
    os.kill(postmaster(home), signal.SIGKILL)
    assert start(home) == url
    assert answers(url)


@pytest.mark.slow
def test_a_server_whose_keeper_was_killed_gets_a_new_one(home: Path) -> None:
    url = start(home)
    server, first = postmaster(home), keeper(home)
    kill_keeper(home)
    assert start(home) == url
    soon(lambda: keeper(home) != first)
    assert postmaster(home) == server
    assert stop_server(home)
    assert not answers(url)


@pytest.mark.slow
def test_stop_works_without_a_keeper(home: Path) -> None:
    url = start(home)
    kill_keeper(home)
    assert stop_server(home)
    assert not answers(url)
    assert not server_status(home).running


@pytest.mark.slow
def test_a_stale_pid_file_that_names_a_living_process_is_no_obstacle(home: Path) -> None:
    start(home)
    kill_keeper(home)
    server = postmaster(home)
    text = (home / "postgres/data/postmaster.pid").read_text()
    os.kill(server, signal.SIGKILL)
    soon(lambda: not server_status(home).running)
    stale = home / "postgres/data/postmaster.pid"
    stale.write_text(text.replace(str(server), str(os.getpid()), 1))
    assert answers(start(home))


@pytest.mark.slow
def test_an_unused_server_stops_by_itself_and_starts_again(home: Path) -> None:
    user = begin(HOLD, home, idle_s=0.3)
    url = said(user)
    threading.Event().wait(1.5)
    assert server_status(home).in_use
    assert answers(url)  # as long as it is used it runs
    end(user)
    soon(lambda: not server_status(home).running)
    assert start(home) == url


@pytest.mark.slow
def test_a_forked_child_does_not_count_as_a_user(home: Path) -> None:
    parent = begin(FORK_AND_HOLD, home, idle_s=0.3)
    said(parent)
    pids = {int(said(parent)), int(said(parent))}
    child = (pids - {parent.pid}).pop()
    parent.kill()
    parent.wait(60)
    os.kill(child, 0)
    soon(lambda: not server_status(home).running)
    os.kill(child, signal.SIGKILL)
    parent.communicate(timeout=60)


@pytest.mark.slow
def test_starts_and_stops_at_once_always_end_in_a_server_that_answers(home: Path) -> None:
    start(home)
    for _ in range(4):
        stopper = threading.Thread(target=stop_server, args=[home])
        stopper.start()
        url = start(home)
        stopper.join()
        if not answers(url):  # the stop came second
            assert answers(start(home))


@pytest.mark.slow
def test_attaching_while_an_idle_stop_is_under_way(home: Path) -> None:
    for _ in range(4):
        url = start(home, idle_s=0.05)
        release_server(home)
        threading.Event().wait(0.28)
        assert start(home, idle_s=0.05) == url
        assert answers(url)
        release_server(home)


@pytest.mark.slow
def test_two_homes_are_two_servers(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    one, two = start(home), start(other)
    assert one != two
    assert answers(one)
    assert stop_server(other)
    assert answers(one)
    release_server(other)


@pytest.mark.slow
def test_a_taken_port_is_avoided(home: Path) -> None:
    port = server_port(start(home))
    stop_server(home)
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.1", port))
        squatter.listen()
        url = start(home)
        assert server_port(url) != port
        assert answers(url)


@pytest.mark.slow
def test_a_path_too_long_for_a_socket_gets_one_in_the_temp_folder(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 20)
    url = start(home)
    record = json.loads((home / "postgres/server.json").read_text())
    folder = Path(record["socket_dir"])
    assert len(record["socket_dir"]) < 80
    assert record["socket_dir"] in url
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert answers(url.replace(",127.0.0.1", "").split(",")[0])
    stop_server(home)
    release_server(home)
    folder.rmdir()


def test_another_machines_directory_is_refused(empty_home: Path) -> None:
    facts = {"host": "elsewhere", "boot_id": "another", "port": 1, "data_dir": "", "socket_dir": ""}
    (empty_home / "postgres").mkdir(parents=True)
    record = empty_home / "postgres/server.json"
    record.write_text(json.dumps({**facts, "command": [], "run_as": None, "idle_s": 1.0}))
    for action in (ensure_server, stop_server):
        with pytest.raises(UserError, match=r"'elsewhere'(.|\n)*SWEEPER_DATABASE_URL"):
            action(empty_home)
    record.unlink()


@pytest.mark.slow
def test_a_server_that_cannot_start_says_why(home: Path) -> None:
    with pytest.raises(UserError, match="no_such_setting"):
        ensure_server(home, options={"no_such_setting": "1"})
    assert not server_status(home).running
    assert answers(start(home))


def test_without_a_wheel_for_the_platform_a_url_is_asked_for(empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_cluster, "WHEEL", "no_such_wheel_anywhere")
    with pytest.raises(UserError, match="SWEEPER_DATABASE_URL"):
        ensure_server(empty_home)


def test_programs_that_the_servers_user_cannot_reach_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (run_as := server_cluster.choose_user(tmp_path / "data")) is None:
        pytest.skip("only root drops to another user")
    install = server_cluster.find_install(tmp_path / "data")
    assert server_cluster.reachable_install(install, run_as) == install
    closed = tmp_path / "closed"  # pytest's folders are 0700
    (closed / "bin").mkdir(parents=True)
    (closed / "bin/postgres").write_text("#!/bin/sh\n")
    (closed / "bin/postgres").chmod(0o755)
    monkeypatch.setattr(server_cluster, "SHARED_INSTALL", tmp_path / "shared")
    copy = server_cluster.reachable_install(closed, run_as)
    assert copy.parent == tmp_path / "shared"
    assert (copy / "bin/postgres").read_text() == "#!/bin/sh\n"
    assert server_cluster.reachable_install(closed, run_as) == copy


def test_status_of_a_home_without_a_server(tmp_path: Path) -> None:
    status = server_status(tmp_path)
    assert not status.running
    assert status.host is None
    assert not stop_server(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_was_deleted_under_an_attached_process_is_made_anew(home: Path) -> None:
    start(home)
    stop_server(home)
    shutil.rmtree(home)
    assert answers(start(home))
    assert server_status(home).in_use
