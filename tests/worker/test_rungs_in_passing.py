"""With several workers only reports at rungs wait for their decision, and not for long."""

from __future__ import annotations

import pytest

from sweeper.model.search import SearchSpec
from sweeper.model.states import TrialState

from .bench import STEPS
from .searching import MakeBench, at, go_on, step_of

pytestmark = pytest.mark.slow

RUNGS = SearchSpec(scheduler={"kind": "asha", "min_resource": 3, "max_resource": STEPS}, deterministic=False)
"""The rungs are 3 and 9."""


def test_a_trial_that_pauses_at_a_rung_has_not_trained_beyond(make_bench: MakeBench) -> None:
    """However short its steps are, and however long the decision takes within a coordinator's turn."""
    bench = make_bench(RUNGS)
    bench.lead(at(9, "pause"), every_s=1.5)
    bench.worker()
    bench.run_to(TrialState.PAUSED)
    assert (bench.children[0].step, bench.reports()) == (9, list(range(1, 10)))
    assert bench.trial().head is not None


def test_reports_between_rungs_wait_for_nobody_and_those_at_rungs_not_for_long(make_bench: MakeBench) -> None:
    """BLIND: no coordinator is needed to go on; who waited in vain once does not wait again."""
    bench = make_bench(RUNGS)
    begun: dict[int, float] = {}
    bench.reports_at = lambda step: begun.setdefault(step, bench.world.now_s) > 0
    bench.worker()
    bench.run_to(TrialState.COMPLETED)
    assert bench.trial().result == bench.value()
    pauses = {step: begun[step + 1] - begun[step] for step in range(1, STEPS)}
    # A step takes half a second to three; at 2, three steps have been trained, if they are counted from zero.
    assert pauses.pop(2) > 2.5
    assert max(pauses.values()) < 3.1


def test_a_ledger_that_is_away_holds_a_report_at_a_rung_no_longer(make_bench: MakeBench) -> None:
    bench = make_bench(RUNGS)
    bench.lead(go_on)
    bench.worker()
    bench.run(60, until=lambda: step_of(bench) == 2)
    bench.weather.database_away_until_s = bench.world.now_s + 60
    bench.run(30)
    assert step_of(bench) > 4
    bench.run_to(TrialState.COMPLETED)
    assert bench.trial().result == bench.value()
