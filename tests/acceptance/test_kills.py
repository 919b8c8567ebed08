"""SIGKILL at random moments: every config completes once, repeats only what no commit covered, and ends bit for bit."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sweeper.ledger.embedded import ensure_server
from tests.acceptance.conftest import OverridesFor
from tests.acceptance.multirun import COUNTED, DRAWN, Bench, Multirun, send
from tests.acceptance.promises import check_promises

KILLS, SOAK_KILLS = 2, 6


def run_under_fire(bench: Bench, command: list[str], strike: Any, *, seed: int, kills: int) -> int:
    """Give the command again until it succeeds, striking at random moments; give how many strikes hit.

    `strike(multirun, rng)` kills something and says whether it found it.
    """
    rng = random.Random(seed)
    hits = 0
    for _ in range(kills + 12):
        multirun = bench.start(*command)
        try:
            while hits < kills and multirun.wait_for("child"):
                time.sleep(rng.uniform(0.05, 0.5))
                hits += strike(multirun, rng)
                if multirun.process.poll() is not None:
                    break
            if multirun.process.wait(120) == 0:
                return hits
        finally:
            multirun.kill_everything()
    raise AssertionError(f"not finished after {kills} kills:\n{bench.printed()}")


def strike_one(role: str) -> Any:
    def strike(multirun: Multirun, rng: random.Random) -> bool:
        found = multirun.at_depth(role)
        if found:
            send(rng.choice(found), signal.SIGKILL)
        return bool(found)

    return strike


def strike_coordinator(multirun: Multirun, rng: random.Random) -> bool:
    multirun.everything()
    alive = multirun.process.poll() is None
    multirun.process.kill()
    multirun.process.wait()
    return alive


def strike_everything(multirun: Multirun, rng: random.Random) -> bool:
    return multirun.kill_everything() > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "strike", "kills", "script"),
    [
        # One each: then workers start fresh interpreters.
        pytest.param("warm-parent", strike_one("worker's warm parent"), 2, DRAWN, id="warm-parent"),
        pytest.param("child", strike_one("child"), KILLS, DRAWN, id="child"),
        pytest.param("worker", strike_one("worker"), KILLS, DRAWN, id="worker"),
        pytest.param("coordinator", strike_coordinator, KILLS, DRAWN, id="coordinator"),
        pytest.param("everything", strike_everything, KILLS, COUNTED, id="everything"),
        *(
            pytest.param(target, strike, SOAK_KILLS, COUNTED, marks=pytest.mark.soak, id=f"{target}-{SOAK_KILLS}")
            for target, strike in (
                ("child", strike_one("child")),
                ("worker", strike_one("worker")),
                ("coordinator", strike_coordinator),
                ("everything", strike_everything),
            )
        ),
    ],
)
def test_sigkill_at_random_moments_loses_and_repeats_nothing_committed(
    target: str,
    strike: Any,
    kills: int,
    bench: Bench,
    overrides: OverridesFor,
    sweep_name: str,
    undisturbed: Mapping[str, Any],
) -> None:
    """ONCE, RESUME, FAIR. PR-08: the coordinator killed at any moment, the same command given again."""
    hits = run_under_fire(bench, overrides(), strike, seed=len(target), kills=kills)
    check_promises(bench, sweep_name, trials=4)
    assert bench.values(sweep_name) == undisturbed
    assert hits == kills


@pytest.mark.slow
@pytest.mark.parametrize("kills", [KILLS, pytest.param(3, marks=pytest.mark.soak)])
def test_postgres_killed_and_restarted_stops_no_training(
    kills: int,
    tmp_path: Path,
    private_home: Path,
    overrides: OverridesFor,
    sweep_name: str,
    script: Path,
) -> None:
    """BLIND: the database goes away and comes back; no trial changes owner and no step is trained twice."""
    bench = Bench(root=tmp_path / "bench", home=private_home, script=script)

    def strike(multirun: Multirun, rng: random.Random) -> bool:
        pid = int(next(private_home.glob("postgres/**/postmaster.pid")).read_text().splitlines()[0])
        os.kill(pid, signal.SIGKILL)
        time.sleep(rng.uniform(0.0, 1.0))
        ensure_server(private_home)
        return True

    run_under_fire(bench, overrides("pause_s=0.2"), strike, seed=5, kills=kills)
    listing = check_promises(bench, sweep_name, trials=4)
    assert [len(trial["attempts"]) for trial in listing] == [1, 1, 1, 1]
