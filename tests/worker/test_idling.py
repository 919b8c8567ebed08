"""How often an idle worker asks, and how dearly."""

from __future__ import annotations

import pytest

from sweeper.worker.idling import LOOK_AFTER_S, Idling


def idling(jitter: float = 0.0) -> Idling:
    return Idling(lambda: jitter, first_s=0.02, most_s=1.0)


def test_pauses_grow_with_the_time_without_a_trial() -> None:
    idle = idling()
    idle.found_none(100.0)
    assert idle.next_s(100.0) == 0.02
    assert idle.next_s(102.0) == pytest.approx(0.2)
    assert idle.next_s(150.0) == 1.0
    idle.found()
    idle.found_none(200.0)
    assert idle.next_s(200.0) == 0.02


def test_crowds_spread_out() -> None:
    idle = idling(jitter=1.0)
    idle.found_none(0.0)
    assert idle.next_s(0.0) == 0.01


def test_a_moment_without_a_trial_is_no_reason_to_look_around() -> None:
    idle = idling()
    assert not idle.found_none(0.0)
    assert not idle.found_none(LOOK_AFTER_S / 2)
    assert idle.found_none(LOOK_AFTER_S)
    assert not idle.found_none(LOOK_AFTER_S + 0.5)
    assert idle.found_none(LOOK_AFTER_S + 1.0)
    idle.found()
    assert not idle.found_none(2.0)


def test_trials_are_scarce_for_who_had_to_wait_for_the_last_one() -> None:
    idle = idling()
    assert not idle.scarce
    idle.found_none(0.0)
    assert idle.scarce
    idle.found()
    assert idle.scarce, "so the next one will probably be waited for too"
    idle.found()
    assert not idle.scarce


def test_after_each_look_around_it_asks_in_earnest_once() -> None:
    """Only so is it seen by those who count workers."""
    idle = idling()
    asked = []
    for tenth in range(25):
        idle.found_none(tenth / 10)
        asked.append(not idle.scarce)
    assert [tenth for tenth, earnest in enumerate(asked) if earnest] == [1, 11, 21]
