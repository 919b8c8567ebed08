"""Signals as schedulers send them: to the outer process only, to every process, twice, at bad moments, other ones."""

from __future__ import annotations

import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import psutil
import pytest

from tests.acceptance.conftest import OverridesFor
from tests.acceptance.multirun import COUNTED, Bench, Multirun, send
from tests.acceptance.promises import check_promises, repeated_steps

GRACE_S = 30


def steps_begin(bench: Bench, multirun: Multirun, *, more_than: int = 3) -> None:
    """Wait until that many steps were trained."""
    deadline = time.monotonic() + 60
    while multirun.process.poll() is None:
        if bench.counter.exists() and len(bench.counter.read_text().splitlines()) > more_than:
            return
        assert time.monotonic() < deadline, bench.printed()
        time.sleep(0.02)


def assert_evicted_and_whole(bench: Bench, sweep: str) -> None:
    """No lease is left, nothing crashed; what was trained is in the head."""
    listing = bench.trials(sweep)
    assert {trial["state"] for trial in listing} <= {"pending", "completed"}
    assert {a["outcome"] for trial in listing for a in trial["attempts"]} <= {"evicted", "completed"}


def start_under_a_shell(bench: Bench, *overrides: str) -> Multirun:
    """Start the command by a script that does something afterwards and passes no signal on."""
    command = shlex.join([sys.executable, str(bench.script), "-m", "hydra/launcher=sweeper", *overrides])
    with bench.output.open("ab") as sink:
        process = subprocess.Popen(
            ["/bin/sh", "-c", f"{command}; echo after"], cwd=bench.root, env=bench.environment(),
            stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    return Multirun(process=process)


@pytest.mark.slow
def test_a_shell_that_dies_of_the_signal_alone_is_noticed_and_nothing_is_lost(
    bench: Bench, overrides: OverridesFor, sweep_name: str, undisturbed: Mapping[str, Any]
) -> None:
    """PR-04: the training process went on as an orphan."""
    multirun = start_under_a_shell(bench, *overrides(every_s=300))
    try:
        steps_begin(bench, multirun)
        processes = multirun.everything()
        multirun.process.send_signal(signal.SIGTERM)
        assert multirun.process.wait(10) == -signal.SIGTERM
        _, alive = psutil.wait_procs(processes, timeout=GRACE_S)
        assert alive == [], bench.printed()
    finally:
        multirun.kill_everything()
    assert_evicted_and_whole(bench, sweep_name)
    assert bench.finish(*overrides(every_s=300)) == 0, bench.printed()
    check_promises(bench, sweep_name, trials=4)
    assert repeated_steps(bench) == 0
    assert bench.values(sweep_name) == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("script", [COUNTED])
def test_a_signal_to_every_process_evicts_and_nobody_else_saves_or_crashes(
    bench: Bench, overrides: OverridesFor, sweep_name: str
) -> None:
    """PR-05: command, warm parents, workers, children and their loader workers, all at once."""
    command = overrides("loaders=4", every_s=300)
    multirun = bench.start(*command)
    try:
        steps_begin(bench, multirun)
        processes = multirun.everything()
        assert len(processes) >= 10, processes
        for process in processes:
            send(process, signal.SIGTERM)
        assert multirun.process.wait(GRACE_S) == 75, bench.printed()
        _, alive = psutil.wait_procs(processes, timeout=5)
        assert alive == [], bench.printed()
    finally:
        multirun.kill_everything()
    assert_evicted_and_whole(bench, sweep_name)
    assert bench.finish(*command) == 0, bench.printed()
    check_promises(bench, sweep_name, trials=4)
    assert repeated_steps(bench) == 0


@pytest.mark.slow
@pytest.mark.parametrize("turns", [2, pytest.param(8, marks=pytest.mark.soak)])
def test_signals_at_any_moment_and_twice_leave_no_lease_and_no_crash(
    turns: int, bench: Bench, overrides: OverridesFor, sweep_name: str, undisturbed: Mapping[str, Any]
) -> None:
    """PR-06: during imports, before the first step, between leases, during a save; a second one right after."""
    rng = random.Random(6)
    command = overrides("hydra.launcher.lease_s=3600", "hydra.launcher.heartbeat_s=1", every_s=0.1)
    statuses: list[int] = []
    for turn in range(turns):
        multirun = bench.start(*command)
        try:
            if turn % 2:
                multirun.wait_for("worker")
            time.sleep(rng.uniform(0.0, 1.5))
            for _ in range(2):
                if multirun.process.poll() is None:
                    multirun.process.send_signal(signal.SIGTERM)
                time.sleep(rng.choice([0.0, 0.05, 0.5]))
            statuses.append(multirun.process.wait(GRACE_S + 15))
        finally:
            multirun.kill_everything()
        assert statuses[-1] in (0, 75, -signal.SIGTERM), bench.printed()
        listing = bench.sweeper("trials", sweep_name, "--json")
        if listing.returncode == 0:
            assert_evicted_and_whole(bench, sweep_name)
    assert 75 in statuses
    assert bench.finish(*command) == 0, bench.printed()
    check_promises(bench, sweep_name, trials=4)
    assert bench.values(sweep_name) == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [signal.SIGUSR1, *(pytest.param(other, marks=pytest.mark.soak) for other in (signal.SIGUSR2, signal.SIGHUP))],
)
def test_other_signals_by_setting_evict_and_continue_cancels_nothing(
    number: signal.Signals, bench: Bench, overrides: OverridesFor, sweep_name: str
) -> None:
    """PR-07: what a scheduler sends differs; Slurm sends CONT with it, to every process of the step."""
    command = overrides(f"hydra.launcher.signals=[TERM,INT,{number.name}]", every_s=300)
    multirun = bench.start(*command)
    try:
        steps_begin(bench, multirun)
        processes = multirun.everything()
        for process in processes:
            send(process, number)
        for process in processes:
            send(process, signal.SIGCONT)
        assert multirun.process.wait(GRACE_S) == 75, bench.printed()
        _, alive = psutil.wait_procs(processes, timeout=10)
        assert alive == []
    finally:
        multirun.kill_everything()
    assert_evicted_and_whole(bench, sweep_name)
    assert f"(signal: {number.name})" in bench.printed()
    listing = bench.trials(sweep_name)
    assert {a["outcome"] for trial in listing for a in trial["attempts"]} == {"evicted"}
    assert all(trial["checkpoint"]["step"] == trial["step"] > 0 for trial in listing if trial["attempts"])
