"""Promotion and inheritance between trials, without Hydra: other parameters arrive in the same trial's next attempt."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sweeper.model.states import TrialState
from tests.plain.desk import Desk, kill_at, result_of

pytestmark = pytest.mark.slow
TRAINS = """
def train(config):
    run = sweeper.resume()
    run.state.setdefault("score", 0.0)
    for epoch in run.epochs(6):
        count(f"{config['rate']!r} {epoch}")
        time.sleep(config.get("pause_s", 0.0))
        run.state["score"] += config["rate"]
        run.report(run.state["score"], step=epoch + 1)
    return run.state["score"]
"""


@pytest.fixture
def reporting(desk: Desk) -> Desk:
    """A desk whose function reports, and is the better the higher its rate."""
    desk.write("training_code.py", (desk.root / "training_code.py").read_text() + TRAINS)
    desk.script(space='{"rate": sweeper.Float(0, 1)}')
    return desk


def test_the_best_are_promoted_and_go_on_from_where_they_paused(reporting: Desk) -> None:
    scheduler: dict[str, Any] = {"kind": "asha", "max_resource": 6, "reduction_factor": 2}
    ended = reporting.sweep(direction="maximize", scheduler=scheduler, n_trials=6, sampler="random")
    found = result_of(ended)
    states = [trial.state for trial in reporting.trials()]
    assert set(states) == {TrialState.COMPLETED, TrialState.PRUNED}
    assert set(reporting.counted().values()) == {1}  # no epoch twice
    assert sum(reporting.counted().values()) < 6 * 6
    best = max(params["rate"] for params in found["params"])
    assert found["params"][found["best"][0]]["rate"] == best


def test_an_heir_trains_on_with_other_parameters_also_after_a_kill(reporting: Desk) -> None:
    keywords: dict[str, Any] = {
        "direction": "maximize",
        "scheduler": {"kind": "pbt", "interval": 2, "max_resource": 6, "quantile": 0.5},
        "n_trials": 4,
        "sampler": "random",
        "base": {"pause_s": 0.02},
    }
    kill_at(reporting, reporting.start("python", "search.py", json.dumps(keywords)), steps=10)
    assert result_of(reporting.sweep(**keywords))["best"] is not None
    trials = reporting.trials()
    assert [trial.state for trial in trials] == [TrialState.COMPLETED] * 4
    heirs = [trial for trial in trials if trial.lineage]
    assert heirs
    trained = {float(rate) for rate, _ in reporting.counted()}
    assert all(trial.params["rate"] in trained for trial in trials)
    assert len(trained) > 4
