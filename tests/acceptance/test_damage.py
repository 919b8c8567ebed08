"""CK-03, FALLBACK: children killed while they save, and the newest checkpoints damaged by hand in between."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import OverridesFor
from tests.acceptance.multirun import COUNTED, Bench, Multirun, send

Damages: dict[str, Callable[[bytes, random.Random], bytes | None]] = {
    "truncated": lambda data, rng: data[: rng.randrange(len(data))],
    "one byte short": lambda data, rng: data[:-1],
    "emptied": lambda data, rng: b"",
    "a bit flipped": lambda data, rng: _flipped(data, rng.randrange(8 * len(data))),
    "deleted": lambda data, rng: None,
}


def _flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def damage(path: Path, rng: random.Random) -> str | None:
    """Damage one object if it is still there; give how."""
    how = rng.choice(list(Damages))
    try:
        data = Damages[how](path.read_bytes(), rng)
        path.unlink()
    except FileNotFoundError:  # retired meanwhile
        return None
    if data is not None:
        path.write_bytes(data)
    return how


def saved(store: Path) -> list[Path]:
    """Objects of checkpoints, the newest last."""
    found = [(path.stat().st_mtime_ns, path) for path in store.glob("sweeps/*/trials/*/*/*/*") if path.is_file()]
    return [path for _, path in sorted(found)]


def wait_for_training(bench: Bench, multirun: Multirun, steps: int) -> None:
    """Wait until that many more steps were trained, or the command has ended."""
    goal = _trained(bench) + steps
    for _ in range(1000):
        if _trained(bench) >= goal or multirun.process.poll() is not None:
            return
        time.sleep(0.02)


def _trained(bench: Bench) -> int:
    return sum(len(steps) for attempts in bench.counted().values() for steps in attempts.values())


@pytest.mark.slow
@pytest.mark.parametrize("script", [COUNTED])  # its checkpoints have several objects
@pytest.mark.parametrize("strikes", [4, pytest.param(8, marks=pytest.mark.soak)])
def test_damaged_checkpoints_are_passed_over_reported_and_fail_no_trial(
    strikes: int,
    tmp_path: Path,
    shared_home: Path,
    script: Path,
    overrides: OverridesFor,
    sweep_name: str,
    undisturbed: Mapping[str, Any],
) -> None:
    rng = random.Random(1)
    store = tmp_path / "store"
    bench = Bench(root=tmp_path / "bench", home=shared_home, script=script)
    bench.environ["SWEEPER_STORE_URL"] = store.as_uri()
    multirun = bench.start(*overrides(every_s=0.1))
    done: list[str] = []
    try:
        for _ in range(strikes):
            wait_for_training(bench, multirun, rng.randrange(4, 10))
            for child in multirun.at_depth("child")[: rng.choice([1, 2])]:
                send(child, signal.SIGKILL)
            time.sleep(rng.uniform(0.0, 0.05))
            done += [how for path in saved(store)[-rng.choice([1, 2, 4]) :] if (how := damage(path, rng))]
        assert multirun.process.wait(120) == 0, bench.printed()
    finally:
        multirun.kill_everything()
    assert bench.values(sweep_name) == undisturbed
    assert {trial["state"] for trial in bench.trials(sweep_name)} == {"completed"}
    assert len(done) > strikes // 2
    assert "checkpoint is bad, using the previous one" in bench.printed()
