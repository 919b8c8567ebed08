"""SAME: a search that was killed at random moments proposes, prunes, runs and ends as one that was not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.multirun import Bench
from tests.acceptance.searching import SAMPLERS, arguments, run_with_kills, search_bench, story, unhurried

pytestmark = pytest.mark.slow

TRIALS, KILLS = 12, 2
"""`python -m tests.acceptance.same` does it for every sampler, with 60 trials, 20 kills and any number of workers."""


@pytest.mark.parametrize(("sampler", "workers"), [("tpe-median", 1), ("tpe", 4)])
def test_a_killed_search_is_the_same_as_an_undisturbed_one(
    sampler: str, workers: int, tmp_path: Path, shared_home: Path
) -> None:
    """SAME, ONCE: the same configs in the same order, the same values bit for bit, the same best trial."""
    calm, struck = (search_bench(tmp_path / name, shared_home) for name in ("calm", "struck"))
    name = f"{sampler} {workers}"
    more = (*SAMPLERS[sampler], unhurried(workers))
    quiet, killed = (
        arguments(f"{bench.root.name} {name}", *more, n_trials=TRIALS, workers=workers) for bench in (calm, struck)
    )
    assert calm.finish(*quiet) == 0, calm.printed()
    assert run_with_kills(struck, killed, kills=KILLS, seed=workers, most_s=2.0) == KILLS
    told = story(struck, f"struck {name}")
    assert told == story(calm, f"calm {name}")
    assert [number for number, *_ in told] == list(range(TRIALS))
    check_each_attempt_completes_once(struck, f"struck {name}")


def check_each_attempt_completes_once(bench: Bench, name: str) -> None:
    for trial in bench.trials(name):
        outcomes = [attempt["outcome"] for attempt in trial["attempts"]]
        assert outcomes.count("completed") + outcomes.count("pruned") == 1, trial
