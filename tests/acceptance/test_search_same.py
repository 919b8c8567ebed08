"""SAME: a search that was killed at random moments proposes, prunes, runs and ends as one that was not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.multirun import Bench
from tests.acceptance.searching import SAMPLERS, arguments, run_with_kills, search_bench, story

pytestmark = pytest.mark.slow

TRIALS, KILLS = 16, 3
"""`python -m tests.acceptance.same` does it for every sampler, with 60 trials, 20 kills and any number of workers."""


@pytest.mark.parametrize("sampler", ["random", "tpe-median"])
def test_a_killed_sequential_search_is_the_same_as_an_undisturbed_one(
    sampler: str, tmp_path: Path, shared_home: Path
) -> None:
    """SAME, ONCE: the same configs in the same order, the same values bit for bit, the same best trial."""
    calm, struck = search_bench(tmp_path / "calm", shared_home), search_bench(tmp_path / "struck", shared_home)
    more = SAMPLERS[sampler]
    assert calm.finish(*arguments(f"calm {sampler}", *more, n_trials=TRIALS)) == 0, calm.printed()
    hits = run_with_kills(
        struck, arguments(f"struck {sampler}", *more, n_trials=TRIALS), kills=KILLS, seed=len(sampler)
    )
    assert hits == KILLS
    told = story(struck, f"struck {sampler}")
    assert told == story(calm, f"calm {sampler}")
    assert [number for number, *_ in told] == list(range(TRIALS))
    check_each_attempt_completes_once(struck, f"struck {sampler}")


def check_each_attempt_completes_once(bench: Bench, name: str) -> None:
    for trial in bench.trials(name):
        outcomes = [attempt["outcome"] for attempt in trial["attempts"]]
        assert outcomes.count("completed") + outcomes.count("pruned") == 1, trial
