"""When a search's stop is to be obeyed, and which reports a history ends with: pure rules (SAME)."""

from __future__ import annotations

import pytest

from sweeper.model.states import SearchStopKind
from sweeper.model.trial import Report, SearchStop
from sweeper.worker.stopping import history_to, holds

REPORTS = [
    Report(step=3, at_step=30, value=0.3),
    Report(step=1, at_step=10, value=0.1),
    Report(step=2, at_step=20, value=0.2),
]


def stop(kind: SearchStopKind, step: int) -> SearchStop:
    return SearchStop(kind=kind, step=step)


def test_a_history_ends_at_the_report_that_decided_it_in_the_order_of_training() -> None:
    assert [report.step for report in history_to(REPORTS, 2)] == [1, 2]
    assert [report.step for report in history_to(REPORTS, None)] == [1, 2, 3]
    assert history_to([], 2) == ()


def test_reports_of_a_script_without_loops_are_told_apart_by_their_own_step() -> None:
    """They are all made at training step 0."""
    flat = [Report(step=step, at_step=0, value=0.0) for step in (4, 2, 3, 1)]
    assert [report.step for report in history_to(flat, 3)] == [1, 2, 3]


def test_a_prune_holds_as_soon_as_its_report_is_in_the_ledger_whatever_was_saved() -> None:
    assert holds(stop(SearchStopKind.PRUNE, 2), REPORTS, trained_to=-1)
    assert not holds(stop(SearchStopKind.PRUNE, 4), REPORTS, trained_to=1000)


@pytest.mark.parametrize(("trained_to", "expected"), [(-1, False), (19, False), (20, True), (float("inf"), True)])
def test_a_pause_holds_once_training_has_come_to_its_report(trained_to: float, *, expected: bool) -> None:
    assert holds(stop(SearchStopKind.PAUSE, 2), REPORTS, trained_to=trained_to) is expected


def test_nothing_was_made_yet() -> None:
    assert not holds(stop(SearchStopKind.PAUSE, 2), [], trained_to=float("inf"))
