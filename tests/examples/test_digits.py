"""The example: plainly, as a Hydra single run, as a sweep given twice, and killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRAIN = ROOT / "examples/digits/train.py"


def run(*command: str, home: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("SWEEPER_")}
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=environ | {"SWEEPER_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [(), ("lr=0.1",)], ids=["plainly", "as a Hydra single run"])
def test_the_script_runs_without_a_sweep_and_leaves_nothing_of_ours(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    done = run(str(TRAIN), "epochs=1", *overrides, home=tmp_path / "home", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "epoch 0: validation loss" in done.stdout
    assert not (tmp_path / "home").exists()


@pytest.mark.slow
def test_the_demo_given_twice_trains_nothing_the_second_time_and_says_so(tmp_path: Path) -> None:
    small = ["epochs=1", "lr=0.03,0.1", "width=8", f"hydra.sweep.dir={tmp_path}/multirun"]
    first, second = (run("scripts/demo.py", *small, home=tmp_path / "home", cwd=ROOT) for _ in range(2))
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert first.stderr.count(" completed at step ") == 4
    assert "running" not in second.stderr
    assert "all 4 trials of sweep 'digits' are done already: nothing to train" in second.stderr
    table = [line.split() for line in second.stdout.splitlines()]
    assert [row[2] for row in table if row and row[0] in ("0", "1", "2", "3")] == ["completed"] * 4
    assert "stopped the server" in second.stdout


@pytest.mark.slow
@pytest.mark.soak
def test_the_killed_sweep_ends_with_the_undisturbed_ones_values(tmp_path: Path) -> None:
    """RESUME, ONCE: the example's own proof, on a smaller grid."""
    chaos = str(ROOT / "examples/digits/chaos.py")
    done = run(chaos, "--kills", "1", "lr=0.03,0.1", "width=32", home=tmp_path / "home", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal the undisturbed sweep's, bit for bit" in done.stdout
