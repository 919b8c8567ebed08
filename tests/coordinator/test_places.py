"""How many trials wait for workers that are still busy."""

from __future__ import annotations

from sweeper.coordinator.places import TURNS, Demand


def test_long_trials_that_end_at_once_by_chance_make_nobody_propose_ahead() -> None:
    """What is proposed early does not know what is running now."""
    demand = Demand()
    for _ in range(TURNS):
        assert demand.turn(0) == 0
    assert demand.turn(2) == 0
    assert demand.turn(4) == 0


def test_of_short_trials_more_wait_than_usually_end_in_a_turn() -> None:
    """Nobody starves when a few more end than usual."""
    demand = Demand()
    for _ in range(TURNS):
        demand.turn(10)
    assert demand.turn(10) == 30


def test_as_many_wait_as_end_lately_from_the_first_turns_on() -> None:
    demand = Demand()
    assert demand.turn(0) == 0
    assert demand.turn(4) == 6
    assert demand.turn(8) == 12
    for _ in range(TURNS):
        last = demand.turn(0)
    assert last == 0
