"""The example without Hydra: as a plain script, and as the file says."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweeper.plain.file import request_from_file

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples/plain"


def run(*command: str, cwd: Path, database_url: str) -> subprocess.CompletedProcess[str]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("SWEEPER_")}
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=environ | {"SWEEPER_HOME": str(cwd / "home"), "SWEEPER_DATABASE_URL": database_url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )


def test_the_file_reads_and_its_objective_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    request = request_from_file(FOLDER / "softmax.yaml")
    assert request.task.name == "softmax:train"
    assert list(request.plan.spec.space) == ["optimizer.lr", "optimizer.momentum", "batch_size"]


def test_the_file_given_twice_trains_sixteen_models_once(tmp_path: Path, fresh_database: str) -> None:
    """ONCE, through `sweeper run`."""
    command = ("-m", "sweeper.cli.app", "run", str(FOLDER / "softmax.yaml"))
    first = run(*command, cwd=tmp_path, database_url=fresh_database)
    assert first.returncode == 0, first.stderr
    results = tmp_path / "sweeps/softmax/results.csv"
    with results.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 16
    assert min(float(row["value"]) for row in rows) < 0.5
    before = results.read_text()
    again = run(*command, cwd=tmp_path, database_url=fresh_database)
    assert again.returncode == 0, again.stderr
    assert "nothing to train" in again.stderr
    assert results.read_text() == before


def test_the_script_runs_without_a_sweep(tmp_path: Path, fresh_database: str) -> None:
    done = run(str(FOLDER / "softmax.py"), cwd=tmp_path, database_url=fresh_database)
    assert done.returncode == 0, done.stderr
    assert 0 < float(done.stdout) < 1
