"""A worker that sleeps past its lease and wakes: another has finished its trial, and it changes nothing (FENCE)."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from typing import Any

import pytest

from tests.acceptance.conftest import OverridesFor
from tests.acceptance.multirun import Bench, send
from tests.acceptance.promises import check_promises


def ends(listing: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give all that is recorded of the trials; whether somebody still asks for them is not part of their end."""
    return [{key: value for key, value in trial.items() if key != "requested"} for trial in listing]


@pytest.mark.slow
def test_a_sleeper_past_its_lease_changes_nothing(
    bench: Bench, overrides: OverridesFor, sweep_name: str, undisturbed: Mapping[str, Any]
) -> None:
    multirun = bench.start(*overrides("hydra.launcher.lease_s=6", "hydra.launcher.heartbeat_s=1"))
    try:
        multirun.wait_for("child")
        time.sleep(1.0)
        worker = multirun.at_depth("worker")[0]
        sleepers = [worker, *worker.children(recursive=True)]
        for process in sleepers:
            send(process, signal.SIGSTOP)
        deadline = time.monotonic() + 90
        while any(trial["state"] != "completed" for trial in bench.trials(sweep_name)):
            assert time.monotonic() < deadline, bench.printed()
            time.sleep(0.5)
        before = ends(bench.trials(sweep_name))
        for process in sleepers:
            send(process, signal.SIGCONT)
        assert multirun.process.wait(60) == 0, bench.printed()
    finally:
        for process in multirun.everything():
            send(process, signal.SIGCONT)
        multirun.kill_everything()
    after = check_promises(bench, sweep_name, trials=4)
    assert ends(after) == before
    assert sorted(a["outcome"] for t in after for a in t["attempts"]).count("lost") == 1
    assert bench.values(sweep_name) == undisturbed


@pytest.mark.slow
def test_two_coordinators_at_once_are_never_wrong(
    bench: Bench, overrides: OverridesFor, sweep_name: str, undisturbed: Mapping[str, Any]
) -> None:
    """RECONCILE. PR-08: two starts of the same command at the same moment."""
    first, second = bench.start(*overrides()), bench.start(*overrides())
    try:
        assert first.process.wait(120) == 0, bench.printed()
        assert second.process.wait(120) == 0, bench.printed()
    finally:
        first.kill_everything()
        second.kill_everything()
    listing = check_promises(bench, sweep_name, trials=4)
    assert all(len(trial["attempts"]) == 1 for trial in listing), "nobody was disturbed"
    assert bench.values(sweep_name) == undisturbed
