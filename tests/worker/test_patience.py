"""Backoff, blindness and the drain's deadline, as plain arithmetic."""

from __future__ import annotations

from sweeper.errors import LedgerUnavailable
from sweeper.model.waits import Notice
from sweeper.worker.draining import Drain
from sweeper.worker.patience import Backoff, LedgerLine


def test_delays_double_up_to_a_bound_and_are_spread() -> None:
    low, high = Backoff(lambda: 0.999), Backoff(lambda: 0.0)
    highest = [high.next_s() for _ in range(9)]
    assert highest == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0]
    assert all(low.next_s() > 0.5 * delay_s for delay_s in highest)


def test_blindness_is_counted_from_the_first_unanswered_call() -> None:
    line = LedgerLine(Backoff(lambda: 0.0))
    assert line.open(0.0)
    line.refused(10.0, LedgerUnavailable("gone"))
    assert not line.open(10.1)
    assert line.open(10.2)
    line.refused(11.0, LedgerUnavailable("gone"))
    assert line.blind_for_s(70.0) == 60.0
    line.answered(70.0)
    assert line.blind_for_s(80.0) == 0.0


def test_the_first_notice_begins_the_drain_and_later_ones_only_shorten_it() -> None:
    """PR-06."""
    drain = Drain(grace_s=30.0)
    drain.take((Notice(source="signal", reason="SIGTERM"),), 100.0)
    assert (drain.deadline_s, drain.reason) == (130.0, "signal: SIGTERM")
    drain.take((Notice(source="signal", reason="SIGINT"),), 103.0)
    assert drain.deadline_s == 112.0
    assert drain.reason == "signal: SIGTERM"
    drain.take((Notice(source="cloud", reason="spot", deadline_s=500.0),), 104.0)
    assert drain.deadline_s == 112.0
    drain.take((Notice(source="cloud", reason="spot", deadline_s=108.0),), 104.0)
    assert drain.deadline_s == 108.0


def test_one_eviction_told_by_two_sources_keeps_its_whole_grace() -> None:
    """PR-05: a signal to every process reaches the worker, and the command that then asks it to leave and goes."""
    drain = Drain(grace_s=30.0)
    drain.take((Notice(source="signal", reason="SIGTERM"), Notice(source="command", reason="asked to leave")), 100.0)
    drain.take((Notice(source="parent", reason="gone"),), 101.0)
    assert drain.deadline_s == 130.0
    drain.take((Notice(source="command", reason="asked to leave"),), 103.0)
    assert drain.deadline_s == 112.0
