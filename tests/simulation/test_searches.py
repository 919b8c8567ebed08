"""SAME under virtual time and seeded faults: crashes of coordinators and workers, lost replies, evictions, outages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from sweeper.coordinator import places, searching
from sweeper.model.search import SearchSpec

from .promises import Broken
from .searching import SearchScenario, search_shape_of, undisturbed

SEEDS = range(4)
"""One of each kind; `python -m tests.simulation search SEED` runs any other."""
FEW = 8

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_search_proposes_and_decides_the_same_whatever_fails(ledger_url: str, seed: int) -> None:
    """SAME, ONCE: the promises of any sweep, each number once, and the undisturbed search's sequence and end."""
    shape = search_shape_of(seed)
    expected = undisturbed(ledger_url, seed, shape)
    assert len(expected) == shape.spec.n_trials
    try:
        report = SearchScenario(ledger_url, seed, shape, expected=expected).run()
    except Broken as broken:
        pytest.fail(f"seed {seed}: {broken}\nreplay: python -m tests.simulation search {seed}")
    assert set(report.states) <= {"completed", "pruned"}


def _caught(url: str, plant: Any, seeds: Iterable[int]) -> str:
    """Run seeds until a promise is seen broken; give what was said."""
    for seed in seeds:
        shape = search_shape_of(seed)
        with pytest.MonkeyPatch.context() as patch:
            expected = undisturbed(url, seed, shape)
            plant(patch)
            try:
                SearchScenario(url, seed, shape, expected=expected).run()
            except Broken as broken:
                return str(broken)
    pytest.fail("no seed caught it")


def test_look_ahead_of_one_in_a_sequential_search_is_caught(ledger_url: str) -> None:
    """SAME: a proposal that does not wait for the trial before it is another proposal."""
    honest = places.free_places

    def hasty(spec: SearchSpec, *args: Any, **rest: Any) -> int:
        return honest(replace(spec, lag=spec.lag + 1), *args, **rest)

    assert "SAME" in _caught(
        ledger_url, lambda patch: patch.setattr(searching, "free_places", hasty), range(0, 4 * FEW, 4)
    )


@pytest.mark.parametrize("kind", [1, 2], ids=["pruner", "rungs"])
def test_a_decision_asked_again_after_a_restart_is_caught(ledger_url: str, kind: int) -> None:
    """SAME: what was decided is a row; a memory that is built anew without those rows decides otherwise."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(searching, "decisions", lambda *args, **rest: [])

    assert "SAME" in _caught(ledger_url, plant, range(kind, 4 * FEW, 4))
