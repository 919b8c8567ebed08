"""`sweeper check` on real scripts: one that resumes exactly, and what it says of those that do not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import hydra
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import sweeper


@hydra.main(version_base="1.3", config_path=None, config_name=None)
def train(cfg):
    torch.manual_seed(3)
    data = TensorDataset(torch.randn(40, 4), torch.randn(40, 1))
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    run = sweeper.resume(model=model, optimizer=optimizer)
    total = 0.0
    for epoch in run.epochs(3):
        for x, y in run.batches(DataLoader(data, batch_size=4, shuffle=True)):
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            run.state["total"] = run.state.get("total", 0.0) + loss.item()
        run.report(loss.item())
    return RESULT


if __name__ == "__main__":
    train()
"""

WITHOUT_TORCH = """
import random

import hydra

import sweeper


@hydra.main(version_base="1.3", config_path=None, config_name=None)
def train(cfg):
    run = sweeper.resume()
    total = 0.0
    for epoch in run.epochs(3):
        for x in run.batches(range(10)):
            loss = random.random()
            total += loss
        run.report(loss)
    return RESULT


if __name__ == "__main__":
    train()
"""


def check(folder: Path, script: str, *overrides: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(script)
    environ = {key: value for key, value in os.environ.items() if not key.startswith("SWEEPER_")}
    return subprocess.run(
        [sys.executable, "-m", "sweeper.cli.app", "check", "train.py", *overrides],
        cwd=folder,
        env=environ | {"SWEEPER_HOME": str(folder / "home")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


@pytest.mark.soak  # the quickstart's script is, in the documentation's tests
def test_a_script_that_keeps_its_state_in_run_is_proven_exact(tmp_path: Path) -> None:
    done = check(tmp_path, SCRIPT.replace("RESULT", 'run.state["total"]'), "+lr=1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bit for bit" in done.stdout
    assert not (tmp_path / "home").exists()


def test_a_local_variable_that_matters_is_found_by_the_result(tmp_path: Path) -> None:
    done = check(tmp_path, WITHOUT_TORCH.replace("RESULT", "total"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the result differs" in done.stdout
    assert "a local variable?" in done.stdout


def test_state_that_was_not_registered_is_found_with_its_step_and_place(tmp_path: Path) -> None:
    script = SCRIPT.replace("RESULT", "loss.item()").replace("model=model, optimizer=optimizer", "model=model")
    done = check(tmp_path, script)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the state after step" in done.stdout
    assert "registered.objects.model.state" in done.stdout


def test_a_script_that_differs_by_itself_is_told_so(tmp_path: Path) -> None:
    script = WITHOUT_TORCH.replace("RESULT", "loss + time.time()").replace(
        "import random\n", "import random\nimport time\n"
    )
    done = check(tmp_path, script)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "two undisturbed runs differ as well" in done.stdout


def test_a_script_that_never_saves_is_told_that_it_restarts_from_zero(tmp_path: Path) -> None:
    script = "import hydra\n@hydra.main(version_base='1.3', config_path=None)\ndef f(cfg):\n    return 1\nf()\n"
    done = check(tmp_path, script)
    assert done.returncode == 1
    assert "restarts from zero" in done.stdout


def test_a_script_that_fails_shows_its_own_traceback(tmp_path: Path) -> None:
    script = "import hydra\n@hydra.main(version_base='1.3', config_path=None)\ndef f(cfg):\n    return 1 / 0\nf()\n"
    done = check(tmp_path, script)
    assert done.returncode == 1
    assert "ZeroDivisionError: division by zero" in done.stdout
