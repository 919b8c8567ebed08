"""Everybody starts at the same instant against a database with no tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.multirun import SCRIPTS, Bench


def start_worker(bench: Bench, argv: list[str], output: Path) -> subprocess.Popen[bytes]:
    with output.open("wb") as sink:
        return subprocess.Popen(
            [sys.executable, "-m", "sweeper.cli.app", "worker", "--sweep", "together", "--", *argv],
            cwd=bench.root,
            env=bench.environment(),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )


@pytest.mark.slow
def test_ten_workers_and_a_multirun_start_together_on_an_empty_database(tmp_path: Path, fresh_database: str) -> None:
    """OP-10's kind for the ledger: all get going, none exits, each trial is trained once."""
    bench = Bench(root=tmp_path / "bench", home=tmp_path / "home", script=SCRIPTS / "trivial.py")
    bench.environ |= {"SWEEPER_DATABASE_URL": fresh_database}
    values = ",".join(map(str, range(30)))
    command = [f"x={values}", "hydra.launcher.name=together", "hydra.launcher.workers=1"]
    argv = [sys.executable, str(bench.script), "-m", "hydra/launcher=sweeper", *command]
    workers = [start_worker(bench, argv, bench.root / f"worker-{index}.txt") for index in range(10)]
    try:
        assert bench.finish(*command, timeout_s=180) == 0, bench.printed()
        statuses = [worker.wait(90) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert statuses == [0] * 10, [(bench.root / f"worker-{i}.txt").read_text()[-2000:] for i in range(10)]
    assert [trial["values"] for trial in bench.trials("together")] == [[x * 1.5] for x in range(30)]
    assert sorted(bench.counted()) == list(range(30))
    assert all(attempts == {1: [1]} for attempts in bench.counted().values())
