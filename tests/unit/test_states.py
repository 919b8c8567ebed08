"""The one table of transitions between states of a trial."""

from __future__ import annotations

import pytest

from sweeper.model.states import FINAL_STATES, TRANSITIONS, TrialState


def reachable(start: TrialState) -> set[TrialState]:
    found, todo = {start}, [start]
    while todo:
        for state in TRANSITIONS[todo.pop()]:
            if state not in found:
                found.add(state)
                todo.append(state)
    return found


def test_the_table_has_a_row_for_every_state_and_names_no_other() -> None:
    assert set(TRANSITIONS) == set(TrialState)
    assert all(target in TrialState for row in TRANSITIONS.values() for target in row)


def test_every_state_can_be_reached_from_pending() -> None:
    assert reachable(TrialState.PENDING) == set(TrialState)


def test_every_state_that_is_not_final_leads_to_a_final_one() -> None:
    for state in set(TrialState) - FINAL_STATES:
        assert reachable(state) & FINAL_STATES


def test_a_completed_or_pruned_trial_never_goes_anywhere() -> None:
    """ONCE."""
    assert TRANSITIONS[TrialState.COMPLETED] == {}
    assert TRANSITIONS[TrialState.PRUNED] == {}


def test_only_a_retry_leads_out_of_failed_and_cancelled() -> None:
    for state in (TrialState.FAILED, TrialState.CANCELLED):
        assert TRANSITIONS[state] == {TrialState.PENDING: "retry_trials"}


def test_running_is_entered_by_a_lease_only() -> None:
    ways = {statement for row in TRANSITIONS.values() for target, statement in row.items() if target == "running"}
    assert ways == {"lease_trial"}


@pytest.mark.parametrize("state", TrialState)
def test_final_says_what_the_set_says(state: TrialState) -> None:
    assert state.final == (state in FINAL_STATES)
