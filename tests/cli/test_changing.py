"""Commands that steer, on a real ledger."""

from __future__ import annotations

import pytest

from sweeper.ledger.reads import trials
from sweeper.ledger.sweeps import find_sweep
from sweeper.model.states import SweepState, TrialState
from tests.cli.conftest import Command, Sweeping


def states(sweeping: Sweeping) -> list[TrialState]:
    listing = trials(sweeping.database, sweeping.sweep.sweep_id)
    return [trial.state for trial in sorted(listing, key=lambda trial: trial.number)]


def test_retry_sets_a_failed_trial_back_to_pending(command: Command, sweeping: Sweeping) -> None:
    status, out, _ = command("retry", "digits", "1")
    assert status == 0
    assert "trial 1 is pending again and starts from zero" in out
    assert states(sweeping)[1] is TrialState.PENDING


def test_retry_without_trials_takes_all_failed_ones_and_leaves_the_rest(command: Command, sweeping: Sweeping) -> None:
    command("retry", "digits")
    assert states(sweeping) == [TrialState.COMPLETED, TrialState.PENDING, TrialState.RUNNING, TrialState.PENDING]
    assert "has no failed or cancelled trials" in command("retry", "digits")[1]


@pytest.mark.parametrize(("trial", "state"), [("0", "completed"), ("2", "running"), ("3", "pending")])
def test_retry_of_a_trial_that_has_not_failed_is_refused_and_changes_nothing(
    command: Command, sweeping: Sweeping, trial: str, state: str
) -> None:
    before = states(sweeping)
    status, _, err = command("retry", "digits", "1", trial)
    assert status == 2
    assert f"trial {trial} is {state} and cannot be retried" in err
    assert states(sweeping) == before


def test_retry_from_zero_gives_up_what_a_trial_has(command: Command, sweeping: Sweeping) -> None:
    status, out, _ = command("retry", "digits", "0", "--from-zero")
    assert status == 0
    assert "starts from zero" in out
    (trial,) = [t for t in trials(sweeping.database, sweeping.sweep.sweep_id) if t.number == 0]
    assert (trial.state, trial.lineage, trial.head, trial.result) == (TrialState.PENDING, 1, None, None)


def test_cancel_takes_numbers_and_hashes(command: Command, sweeping: Sweeping) -> None:
    status, out, _ = command("cancel", "digits", "2", "ab03")
    assert status == 0
    assert out.splitlines() == ["trial 2 is cancelled", "trial 3 is cancelled"]
    assert states(sweeping)[2:] == [TrialState.CANCELLED] * 2


def test_cancel_of_a_trial_that_is_over_is_refused(command: Command, sweeping: Sweeping) -> None:
    status, _, err = command("cancel", "digits", "0")
    assert status == 2
    assert "trial 0 is completed and cannot be cancelled" in err
    assert "only trials that are pending, running or paused can be cancelled" in err


def test_cancel_without_trials_cancels_the_sweep_and_keeps_its_results(command: Command, sweeping: Sweeping) -> None:
    status, out, _ = command("cancel", "digits")
    assert status == 0
    assert "sweep 'digits' is cancelled" in out
    sweep = find_sweep(sweeping.database, "digits")
    assert sweep is not None
    assert sweep.state is SweepState.CANCELLED
    assert states(sweeping) == [TrialState.COMPLETED, TrialState.FAILED, TrialState.CANCELLED, TrialState.CANCELLED]
