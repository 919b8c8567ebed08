"""ONCE, FENCE, RESUME, FALLBACK, RECONCILE, BLIND, FAIR under virtual time and seeded faults."""

from __future__ import annotations

import pytest

from .promises import Broken
from .scenario import Scenario

SEEDS = range(40)
AT_EACH_CHANGE = 8
"""Seeds of the quick suite; the others run with everything."""


@pytest.mark.parametrize(
    "seed", [pytest.param(s, marks=pytest.mark.slow if s >= AT_EACH_CHANGE else ()) for s in SEEDS]
)
def test_promises_hold_whatever_fails(ledger_url: str, seed: int) -> None:
    """The promises hold after every step, and once the faults are over everything is finished."""
    try:
        report = Scenario(ledger_url, seed).run()
    except Broken as broken:
        pytest.fail(f"seed {seed}: {broken}\nreplay: python -m tests.simulation {seed}")
    assert all(state in ("completed", "failed") for state in report.states)
