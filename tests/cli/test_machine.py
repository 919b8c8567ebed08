"""Commands about this machine: roles, doctor, db."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command

SHOW_ROLE = "import os, sys; print(os.environ['SWEEPER_ROLE'], os.environ.get('SWEEPER_SWEEP'), sys.argv[1:])"


def sweeper(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sweeper.cli.app", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_worker_becomes_the_command_that_it_is_given_in_its_role(tmp_path: Path) -> None:
    """SAFE: what runs comes from whoever starts it."""
    done = sweeper(
        "worker", "--sweep", "digits", "--", sys.executable, "-c", SHOW_ROLE, "-m", "--x", "lr=0.1,1", cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "worker digits ['-m', '--x', 'lr=0.1,1']\n"


def test_coordinate_becomes_the_command_that_it_is_given_in_its_role(tmp_path: Path) -> None:
    done = sweeper("coordinate", "--", sys.executable, "-c", SHOW_ROLE, "-m", cwd=tmp_path)
    assert done.stdout == "coordinator None ['-m']\n"


def test_the_commands_own_status_is_kept(tmp_path: Path) -> None:
    assert sweeper("worker", "--", sys.executable, "-c", "raise SystemExit(75)", cwd=tmp_path).returncode == 75


def test_check_runs_the_script_as_a_sweep_of_one(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SHOW_ROLE)
    done = sweeper("check", "train.py", "lr=0.1", "+x=2", cwd=tmp_path)
    assert done.stdout == "check None ['--multirun', 'lr=0.1', '+x=2', 'hydra/launcher=sweeper']\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("worker",), "there is no command to run"),
        (("coordinate", "--"), "there is no command to run"),
        (("worker", "--", "no-such-program"), "there is no program 'no-such-program'"),
        (("check", "no-such-script.py"), "there is no script 'no-such-script.py'"),
    ],
)
def test_a_command_that_cannot_be_run_is_refused(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    done = sweeper(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr


def test_doctor_finds_a_healthy_machine_healthy(command: Command) -> None:
    status, out, _ = command("doctor", "--json")
    findings = {finding["name"]: finding for finding in json.loads(out)}
    assert status == 0, out
    assert {name for name, finding in findings.items() if finding["ok"]} >= {
        "home",
        "database",
        "store",
        "hydra plugin",
    }


def test_doctor_names_what_is_wrong_and_ends_with_1(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPER_STORE_URL", "nonsense://somewhere")
    status, out, _ = command("doctor")
    assert status == 1
    (line,) = [line for line in out.splitlines() if "FAIL" in line]
    assert "store" in line


def test_db_status_tells_the_url_without_its_password(command: Command, ledger_url: str) -> None:
    record = json.loads(command("db", "status", "--json")[1])
    assert record["embedded"] is False
    assert record["schema_version"]
    password = ledger_url.partition("://")[2].partition("@")[0].partition(":")[2]
    assert not password or password not in json.dumps(record)


def test_db_status_starts_nothing(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SWEEPER_DATABASE_URL")
    record = json.loads(command("db", "status", "--json")[1])
    assert (record["embedded"], record["running"]) == (True, False)
    assert not (tmp_path / "home" / "postgres" / "data").exists()


def test_db_stop_refuses_a_server_that_is_not_ours(command: Command) -> None:
    status, _, err = command("db", "stop")
    assert status == 2
    assert "SWEEPER_DATABASE_URL" in err


def test_db_stop_without_a_server_says_so(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWEEPER_DATABASE_URL")
    status, out, _ = command("db", "stop")
    assert status == 0
    assert "no server is running" in out


def test_db_upgrade_brings_an_empty_database_up_to_date(
    command: Command, fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEPER_DATABASE_URL", fresh_database)
    assert command("db", "upgrade")[0] == 0
    assert json.loads(command("db", "status", "--json")[1])["schema_version"]
    assert command("status")[1].strip() == "no sweeps yet"


def test_help_lists_every_command(tmp_path: Path) -> None:
    done = sweeper("--help", cwd=tmp_path)
    for name in ["status", "trials", "show", "watch", "retry", "cancel", "worker", "coordinate", "check", "doctor"]:
        assert name in done.stdout


def test_what_a_terminal_cannot_show_is_escaped() -> None:
    """A trial may return half of a surrogate pair; listing it must not end the command."""
    program = "from sweeper.cli import app; app.app = lambda: print('\\ud800x'); app.main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "\\ud800x\n"), done.stderr
