"""Promotion ASHA on the example: the best config of full training, for a third of the epochs, whatever is killed.

A long test of its own: python -m pytest tests/acceptance/promotion.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweeper.results.loading import load
from sweeper.results.records import SweepResult
from tests.acceptance.multirun import Bench
from tests.acceptance.searching import PATIENT, run_with_kills, story

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TRAIN = Path(__file__).resolve().parents[2] / "examples" / "digits" / "train.py"
TRIALS, EPOCHS = 27, 9


def bench_at(root: Path, home: Path) -> Bench:
    return Bench(root=root, home=home, script=TRAIN, options=("--config-name=digits_search",))


def command(name: str, *more: str, workers: int) -> list[str]:
    return [
        f"hydra.launcher.name='{name}'",
        f"hydra.launcher.workers={workers}",
        "hydra.launcher.threads=1",
        "hydra.sweeper.params.width=8",
        "batch_size=256",
        *PATIENT,
        *more,
    ]


def epochs_of(result: SweepResult) -> int:
    """Count epochs: each ends with one report, and a report made again replaces the one before it."""
    return sum(len(trial.reports) for trial in result.trials)


def rung_decisions(bench: Bench, name: str) -> list[tuple[Any, ...]]:
    """Give every decision of a search in the order in which it was made, without what names rows of one database."""
    from sweeper.ledger.database import open_database
    from sweeper.ledger.decisions import decisions
    from sweeper.ledger.embedded import ensure_server
    from sweeper.ledger.sweeps import require_sweep
    from sweeper.model.search import DecisionKind

    with open_database(ensure_server(bench.home)) as database:
        sweep = require_sweep(database, name)
        made = decisions(database, sweep.sweep_id, kinds=tuple(DecisionKind))
    return [(row.number, row.kind, row.step, row.action, row.value, dict(row.facts)) for row in made]


def test_promotion_finds_the_best_of_full_training_and_decides_the_same_after_kills(
    tmp_path: Path, shared_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SAME, RESUME, ONCE: a rung counts each trial once, and a promoted trial goes on where it paused."""
    monkeypatch.setenv("SWEEPER_HOME", str(shared_home))
    full, calm, struck = (bench_at(tmp_path / name, shared_home) for name in ("full", "calm", "struck"))
    everything = command("in full", "hydra/sweeper/scheduler=none", "~hydra.sweeper.scheduler.max_resource", workers=2)
    assert full.finish(*everything, timeout_s=600) == 0, full.printed()[-3000:]
    assert calm.finish(*command("by rungs", workers=1), timeout_s=600) == 0, calm.printed()[-3000:]

    wanted, found = load("in full"), load("by rungs")
    assert epochs_of(wanted) == TRIALS * EPOCHS
    assert wanted.best is not None
    assert found.best is not None
    assert (found.best.config_hash, found.best.values) == (wanted.best.config_hash, wanted.best.values)
    assert len(found.best.reports) == EPOCHS
    assert epochs_of(found) * 3 <= epochs_of(wanted), f"{epochs_of(found)} epochs"

    assert run_with_kills(struck, command("struck", workers=1), kills=5, seed=3, most_s=8.0) == 5
    assert rung_decisions(struck, "struck") == rung_decisions(calm, "by rungs")
    assert story(struck, "struck") == story(calm, "by rungs")
