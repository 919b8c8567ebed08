"""Giving a search's command again: nothing is repeated, nothing is left running, the budget is a total."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.acceptance.multirun import Bench
from tests.acceptance.searching import SAMPLERS, arguments, search_bench, story

pytestmark = pytest.mark.slow


@pytest.fixture
def search(tmp_path: Path, shared_home: Path) -> Bench:
    return search_bench(tmp_path / "bench", shared_home)


def test_a_search_of_six_killed_at_its_third_trial_ends_with_six(search: Bench, sweep_name: str) -> None:
    """OP-05, OP-11: six trials in all, no duplicate, no directory written twice, none left running."""
    sweep_dir = search.root / "out"
    command = arguments(
        sweep_name, *SAMPLERS["tpe"], f"hydra.sweep.dir={sweep_dir}", "pause_s=0.2", n_trials=6, workers=1
    )
    multirun = search.start(*command)
    wait_until_trained(search, number=2)
    multirun.kill_everything()
    assert search.finish(*command) == 0, search.printed()

    listing = search.trials(sweep_name)
    assert [(trial["number"], trial["state"]) for trial in listing] == [(n, "completed") for n in range(6)]
    assert len({trial["config_hash"] for trial in listing}) == 6
    assert sorted(path.name for path in sweep_dir.iterdir() if path.is_dir()) == [str(n) for n in range(6)]
    outcomes = [[attempt["outcome"] for attempt in trial["attempts"]] for trial in listing]
    assert outcomes == [["completed"], ["completed"], ["lost", "completed"], *[["completed"]] * 3]


def test_the_same_command_again_trains_nothing_and_a_larger_total_trains_the_rest(
    search: Bench, sweep_name: str
) -> None:
    """OP-05: the budget is a total, and a second start proposes nothing that was proposed before."""
    assert search.finish(*arguments(sweep_name, *SAMPLERS["random"], n_trials=4)) == 0, search.printed()
    first, trained = story(search, sweep_name), search.counter.read_text()
    assert search.finish(*arguments(sweep_name, *SAMPLERS["random"], n_trials=4)) == 0, search.printed()
    assert (story(search, sweep_name), search.counter.read_text()) == (first, trained)
    assert search.finish(*arguments(sweep_name, *SAMPLERS["random"], n_trials=8)) == 0, search.printed()
    longer = story(search, sweep_name)
    assert longer[:4] == first
    assert len({config_hash for _, config_hash, *_ in longer}) == len(longer) == 8


def test_a_space_of_three_configs_is_trained_three_times_whatever_the_budget(search: Bench, sweep_name: str) -> None:
    """ONCE: repeats are answered from the stored value, and a used-up space ends the sweep."""
    command = arguments(sweep_name, "hydra/sweeper/sampler=tpe", "kind=plain,wavy,odd", n_trials=10)
    assert search.finish(*command) == 0, search.printed()
    listing = search.trials(sweep_name)
    assert sorted(trial["params"]["kind"] for trial in listing) == ["odd", "plain", "wavy"]
    assert all(steps == {1: [1, 2, 3, 4]} for steps in search.counted().values())


def test_workers_and_the_coordinator_killed_leave_no_trial_running(search: Bench, sweep_name: str) -> None:
    """OP-11: three of five workers and the command killed; every trial ends under its own hash, once."""
    command = arguments(sweep_name, *SAMPLERS["tpe"], "pause_s=0.3", n_trials=10, workers=5)
    multirun = search.start(*command)
    wait_until_trained(search, number=4)
    for worker in multirun.at_depth("worker")[:3]:
        worker.kill()
    multirun.process.kill()
    multirun.kill_everything()
    assert search.finish(*command) == 0, search.printed()
    listing = search.trials(sweep_name)
    assert Counter(trial["state"] for trial in listing) == {"completed": 10}
    status = json.loads(search.sweeper("status", sweep_name, "--json").stdout)
    assert "running" not in json.dumps(status.get("counts", status)) or _running(status) == 0


def _running(status: object) -> int:
    return int(status.get("counts", {}).get("running", 0)) if isinstance(status, dict) else 0


def wait_until_trained(bench: Bench, *, number: int, timeout_s: float = 90) -> None:
    """Wait until the trial of that number has taken a step."""
    deadline = time.monotonic() + timeout_s
    while number not in bench.counted():
        assert time.monotonic() < deadline, f"trial {number} never began:\n{bench.printed()[-3000:]}"
        time.sleep(0.02)
