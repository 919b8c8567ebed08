"""The pause between two turns."""

from __future__ import annotations

import itertools

from sweeper.coordinator.pacing import Pace

FIRST_S = 0.02


def _pauses(pace: Pace, for_s: float) -> list[float]:
    """The pauses of that long a quiet time."""
    pauses: list[float] = []
    while sum(pauses) < for_s:
        pauses.append(pace.next_s())
    return pauses


def test_a_search_is_never_late_by_more_than_a_small_part_of_a_trial() -> None:
    """Whatever the length of a trial, the turn after its end comes within a twentieth of it (or the first pause)."""
    for trial_s in (0.05, 0.5, 2.0, 10.0):
        pauses = _pauses(Pace(first_s=FIRST_S, most_s=0.5, steady=True), trial_s)
        assert pauses[-1] <= max(2 * FIRST_S, trial_s * 0.05 + FIRST_S)


def test_a_long_trial_costs_the_ledger_no_more_than_the_longest_pause_allows() -> None:
    pauses = _pauses(Pace(first_s=FIRST_S, most_s=0.5, steady=True), 600.0)
    assert len(pauses) < 600 / 0.5 + 100
    assert all(earlier <= later for earlier, later in itertools.pairwise(pauses))


def test_news_make_the_pauses_short_again() -> None:
    pace = Pace(first_s=FIRST_S, most_s=0.5, steady=True)
    _pauses(pace, 30.0)
    pace.moved()
    assert pace.next_s() == FIRST_S
