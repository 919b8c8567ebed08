"""CLEAR: bad input gets one message that names the thing and the remedy, status 2, and no row exists."""

from __future__ import annotations

import os
import subprocess
import sys
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from tests.hydra.running import Desk, Ended, script

pytestmark = pytest.mark.slow


def refused(ended: Ended, *parts: str) -> None:
    assert ended.status == 2, ended.printed
    assert "Traceback" not in ended.printed, ended.printed
    assert ended.stderr.count("sweeper: error:") == 1, ended.printed
    for part in parts:
        assert part in ended.stderr, ended.printed


def test_a_missing_value(desk: Desk) -> None:
    """HY-03."""
    desk.write(script(fields='x: int = 0\npath: str = "???"'))
    refused(desk.run("x=1,2"), "job #0 (x=1)", "'path'", "path=")
    assert desk.rows() == 0
    assert desk.counted() == []


def test_another_task_under_the_same_name(desk: Desk) -> None:
    assert desk.run("x=1", "hydra.launcher.name=mine").status == 0
    rows = desk.rows()
    desk.write(script(), "other.py")
    refused(desk.run("x=2", "hydra.launcher.name=mine", name="other.py"), "'mine'", "app:main", "other:main")
    assert desk.rows() == rows


@pytest.mark.parametrize("way", ["-", "-c"])
def test_a_task_that_no_other_process_can_import(desk: Desk, way: str) -> None:
    text = script()
    arguments = ["-m", "hydra/launcher=sweeper", "x=1,2"]
    command = [sys.executable, "-", *arguments] if way == "-" else [sys.executable, "-c", text, *arguments]
    done = subprocess.run(
        command, cwd=desk.root, env=desk.environment(), input=text, capture_output=True, text=True, check=False
    )
    refused(Ended(done.returncode, done.stdout, done.stderr), "not defined in a file", "python train.py")
    assert desk.rows() == 0


def test_a_database_that_does_not_answer(desk: Desk) -> None:
    refused(desk.run("x=1", SWEEPER_DATABASE_URL="postgresql://127.0.0.1:1/nothing"), "127.0.0.1")


def test_a_wrong_password(desk: Desk, fresh_database: str) -> None:
    with psycopg.connect(fresh_database, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS stranger")
        admin.execute("CREATE ROLE stranger LOGIN PASSWORD 'right'")
        port = admin.info.port
    parts = urlsplit(fresh_database)
    url = urlunsplit(parts._replace(scheme="postgresql", netloc=f"stranger:hunter2@127.0.0.1:{port}", query=""))
    ended = desk.run("x=1", SWEEPER_DATABASE_URL=url)
    refused(ended, "stranger")
    assert "hunter2" not in ended.printed


def test_a_store_that_cannot_be_written(desk: Desk) -> None:
    (desk.root / "file").write_text("")
    refused(desk.run("x=1", f"hydra.launcher.store=file://{desk.root}/file/store"), "store")
    assert desk.rows() == 0


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("hydra.launcher.database=postgresql://me:hunter2@host/db", "SWEEPER_DATABASE_URL"),
        ("hydra.launcher.store=s3://key:hunter2@bucket/x", "SWEEPER_STORE_URL"),
        (f"hydra.launcher.name={'n' * 201}", "too long"),
        ("hydra.launcher.name='a\tb'", "hydra.launcher.name"),
        ("hydra.launcher.engine=slurmm", "slurmm"),
        ("+hydra.launcher.worker=3", "there is no 'worker' in hydra.launcher"),
        ("+hydra.launcher.retry.max_crash=3", "did you mean max_crashes?"),
    ],
)
def test_settings(desk: Desk, override: str, part: str) -> None:
    ended = desk.run("x=1", override)
    refused(ended, part)
    assert "hunter2" not in ended.printed
    assert desk.rows() == 0
    assert not (desk.root / "multirun").exists(), "nothing was written"


def test_bytes_that_are_not_text(desk: Desk) -> None:
    """CH-08."""
    desk.write(script(fields='s: str = "a"'))
    refused(desk.run(b"s='a\xff'"), "'s'", "UTF-8")
    assert desk.rows() == 0


def test_an_override_that_fits_only_some_groups(desk: Desk) -> None:
    """HY-03: Hydra's own refusal keeps its status 1, and says which job and what to write."""
    for name, text in {"apache": "port: 80", "plain": "kind: plain"}.items():
        desk.write(text, f"conf/server/{name}.yaml")
    desk.write("defaults: [_self_, {server: apache}]\nlr: 1\n", "conf/config.yaml")
    desk.write(
        "import hydra\n@hydra.main(version_base=None, config_path='conf', config_name='config')\n"
        "def main(cfg): return 1\nif __name__ == '__main__': main()\n"
    )
    ended = desk.run("server=apache,plain", "server.port=8081")
    assert ended.status == 1
    assert "Traceback" not in ended.printed
    for part in ("job #1 (server=plain server.port=8081)", "'server.port'", "++server.port=8081"):
        assert part in ended.stderr
    assert desk.rows() == 0
    deleted = desk.run("server=apache,plain", "~server.port")
    assert deleted.status == 1
    assert "job #1 (server=plain ~server.port=null)" in deleted.stderr
    assert desk.rows() == 0
    assert desk.run("server=apache,plain", "++server.port=8081").status == 0


def test_unquoted_text_outside_ascii_tells_how_to_quote(desk: Desk) -> None:
    """CH-08."""
    desk.write(script(fields='s: str = "a"'))
    ended = desk.run("s=李明")
    assert ended.status == 1
    assert "\"s='李明'\"" in ended.stderr
    assert desk.rows() == 0


def test_tracebacks_on_request(desk: Desk) -> None:
    ended = desk.run("x=1", "hydra.launcher.engine=slurmm", HYDRA_FULL_ERROR="1")
    assert ended.status == 1
    assert "UserError" in ended.stderr
    assert os.environ.get("HYDRA_FULL_ERROR") is None
