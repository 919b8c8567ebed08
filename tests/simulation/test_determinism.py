"""A seed is a history: the same one twice, step by step, or a replay would prove nothing."""

from __future__ import annotations

import pytest

from .scenario import Scenario

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [4, 17])
def test_a_seed_gives_the_same_history_twice(ledger_url: str, seed: int) -> None:
    """Same statements, faults, messages and ends, in the same order at the same virtual times."""
    first = Scenario(ledger_url, seed)
    report = first.run()
    second = Scenario(ledger_url, seed)
    assert second.run() == report
    assert second.world.trace == first.world.trace


def test_seeds_give_different_histories(ledger_url: str) -> None:
    """Else forty seeds would be one."""
    assert Scenario(ledger_url, 4).run().digest != Scenario(ledger_url, 5).run().digest
