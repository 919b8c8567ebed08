"""SAME: a search that was killed at random moments proposes, prunes, runs and ends as one that was not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.multirun import Bench
from tests.acceptance.searching import SAMPLERS, arguments, run_with_kills, search_bench, story

pytestmark = pytest.mark.slow

KILLS = {"tpe": 8}
"""How often each is killed here; `python -m tests.acceptance.same` does it with 60 trials and 20 kills each."""


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_killed_sequential_search_is_the_same_as_an_undisturbed_one(
    sampler: str, tmp_path: Path, shared_home: Path
) -> None:
    """SAME, ONCE: the same configs in the same order, the same values bit for bit, the same best trial."""
    calm, struck = search_bench(tmp_path / "calm", shared_home), search_bench(tmp_path / "struck", shared_home)
    n_trials, kills = (30, KILLS[sampler]) if sampler in KILLS else (16, 3)
    more = SAMPLERS[sampler]
    assert calm.finish(*arguments(f"calm {sampler}", *more, n_trials=n_trials)) == 0, calm.printed()
    hits = run_with_kills(
        struck, arguments(f"struck {sampler}", *more, n_trials=n_trials), kills=kills, seed=len(sampler)
    )
    assert hits == kills
    told = story(struck, f"struck {sampler}")
    assert told == story(calm, f"calm {sampler}")
    assert [number for number, *_ in told] == list(range(n_trials))
    check_each_attempt_completes_once(struck, f"struck {sampler}")


@pytest.mark.parametrize("sampler", ["tpe", "tpe-median"])
def test_a_deterministic_search_with_four_workers_is_the_same_after_kills(
    sampler: str, tmp_path: Path, shared_home: Path
) -> None:
    """SAME with `deterministic: true`: proposal n sees exactly the trials up to n - 4 as finished."""
    calm, struck = search_bench(tmp_path / "calm", shared_home), search_bench(tmp_path / "struck", shared_home)
    more = ["hydra.sweeper.deterministic=true", *SAMPLERS[sampler]]
    assert calm.finish(*arguments(f"calm4 {sampler}", *more, n_trials=24, workers=4)) == 0, calm.printed()
    command = arguments(f"struck4 {sampler}", *more, n_trials=24, workers=4)
    assert run_with_kills(struck, command, kills=3, seed=4) == 3
    assert story(struck, f"struck4 {sampler}") == story(calm, f"calm4 {sampler}")


def check_each_attempt_completes_once(bench: Bench, name: str) -> None:
    for trial in bench.trials(name):
        outcomes = [attempt["outcome"] for attempt in trial["attempts"]]
        assert outcomes.count("completed") + outcomes.count("pruned") == 1, trial
