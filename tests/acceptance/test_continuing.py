"""The same command again, one value more, an interrupt, another store: what a user does from day to day."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from typing import Any

import pytest

from sweeper.ledger.database import Database
from sweeper.ledger.embedded import ensure_server
from sweeper.ledger.reads import trials as read_trials
from sweeper.ledger.sweeps import require_sweep
from sweeper.model.states import TrialState
from tests.acceptance.conftest import GRID, OverridesFor
from tests.acceptance.multirun import Bench
from tests.acceptance.promises import check_promises, repeated_steps

pytest_plugins = ["tests.s3_server"]


def saved_and_running(bench: Bench, sweep: str) -> bool:
    """Whether a trial that runs has a checkpoint. Asked of the database: a command takes as long as a short trial."""
    with Database(ensure_server(bench.home), "test") as database:
        trials = read_trials(database, require_sweep(database, sweep).sweep_id)
    return any(trial.state is TrialState.RUNNING and trial.head is not None for trial in trials)


@pytest.mark.slow
def test_the_same_command_again_trains_nothing_and_one_more_value_trains_one(
    bench: Bench, overrides: OverridesFor, sweep_name: str
) -> None:
    quick = overrides("epochs=1", "pause_s=0")
    assert bench.finish(*quick) == 0, bench.printed()
    trained = bench.counter.read_text()
    assert bench.finish(*quick) == 0, bench.printed()
    assert bench.counter.read_text() == trained
    assert bench.finish(GRID + ",0.003", *quick[1:]) == 0, bench.printed()
    assert sorted(bench.counted()) == [0, 1, 2, 3, 4]
    check_promises(bench, sweep_name, trials=5)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)])
def test_an_interrupt_drains_and_the_same_command_goes_on(
    number: int, bench: Bench, overrides: OverridesFor, sweep_name: str, undisturbed: Mapping[str, Any]
) -> None:
    """Children save, leases are released, exit 75; then no step is trained twice."""
    multirun = bench.start(*overrides(every_s=300))
    try:
        multirun.wait_for("child")
        time.sleep(1.0)
        multirun.process.send_signal(number)
        assert multirun.process.wait(60) == 75, bench.printed()
        assert multirun.everything() == []
    finally:
        multirun.kill_everything()
    assert "same command" in bench.printed()
    stopped = bench.trials(sweep_name)
    assert {trial["state"] for trial in stopped} <= {"pending", "completed"}
    assert {a["outcome"] for trial in stopped for a in trial["attempts"]} <= {"evicted", "completed"}
    assert bench.finish(*overrides(every_s=300)) == 0, bench.printed()
    check_promises(bench, sweep_name, trials=4)
    assert repeated_steps(bench) == 0
    assert bench.values(sweep_name) == undisturbed


@pytest.mark.slow
def test_an_s3_store_carries_a_sweep_through_a_kill(
    bench: Bench, overrides: OverridesFor, sweep_name: str, s3_store_url: str, undisturbed: Mapping[str, Any]
) -> None:
    """RESUME over a real S3 protocol server."""
    bench.environ["SWEEPER_STORE_URL"] = s3_store_url
    multirun = bench.start(*overrides(every_s=0.5))
    try:
        multirun.wait_for("child")
        deadline = time.monotonic() + 60
        while not saved_and_running(bench, sweep_name):
            assert time.monotonic() < deadline, bench.printed()
            time.sleep(0.1)
        assert multirun.kill_everything() > 0
    finally:
        multirun.kill_everything()
    assert bench.finish(*overrides(every_s=0.5)) == 0, bench.printed()
    listing = check_promises(bench, sweep_name, trials=4)
    assert any(attempt["first_step"] > 0 for trial in listing for attempt in trial["attempts"]), "resumed from S3"
    assert bench.values(sweep_name) == undisturbed
