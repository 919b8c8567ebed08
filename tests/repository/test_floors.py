"""Who may import whom, and what must stay cheap to import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = (
    "torch",
    "numpy",
    "sqlalchemy",
    "psycopg",
    "alembic",
    "fsspec",
    "hydra",
    "omegaconf",
    "optuna",
    "rich",
    "typer",
)


def loaded_by(module: str) -> set[str]:
    """Give the heavy packages that importing a module in a new interpreter loads."""
    code = f"import sys, json, {module}; print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(json.loads(done.stdout))


def test_the_floors_hold() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports"))], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("module", ["sweeper", "sweeper.errors", "sweeper.settings", "sweeper.model.messages"])
def test_importing_sweeper_in_a_training_script_costs_nothing(module: str) -> None:
    assert loaded_by(module) == set()


@pytest.mark.parametrize(
    "module", ["sweeper.cli.app", "sweeper.wiring", "sweeper.worker.program", "sweeper.plain.sweeping"]
)
def test_the_command_line_and_the_worker_import_neither_torch_nor_hydra(module: str) -> None:
    assert not loaded_by(module) & {"torch", "numpy", "hydra", "omegaconf", "optuna"}


def test_hydra_finding_our_plugin_loads_no_database_and_no_torch() -> None:
    """Hydra imports every plugin at each start, also of scripts that never sweep."""
    assert not loaded_by("hydra_plugins.sweeper_plugin.launcher") & {
        "torch",
        "numpy",
        "sqlalchemy",
        "psycopg",
        "fsspec",
    }


def test_every_public_name_can_be_imported() -> None:
    code = "import sweeper; print([getattr(sweeper, name) for name in sweeper.__all__])"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=ROOT)
