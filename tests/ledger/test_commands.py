"""Retry and cancel."""

from __future__ import annotations

import pytest

from sweeper.errors import LeaseLost
from sweeper.ledger.commands import cancel_sweep, cancel_trials, retry_trials
from sweeper.ledger.leases import renew_lease
from sweeper.ledger.reads import begun_configs, checkpoints_of, reports_of, trials
from sweeper.ledger.requests import list_askers, retire_asker
from sweeper.ledger.results import record_reports
from sweeper.ledger.sweeps import find_sweep
from sweeper.model.states import AttemptOutcome, SweepState, TrialState
from sweeper.model.trial import Report, Trial
from tests.ledger.world import LEASE_S, World


def fail(world: World) -> None:
    for _ in range(3):
        world.release(world.lease().lease, AttemptOutcome.CRASHED, error="boom")
        world.clock.advance(200)


def retry(world: World, numbers: list[int] | None = None, *, from_zero: bool = False) -> list[int]:
    return [trial.number for trial in retry_trials(world.db, world.sweep_id, numbers, from_zero=from_zero)]


def test_a_failed_trial_goes_on_from_its_head_with_fresh_counters(world: World) -> None:
    world.add(1)
    grant = world.lease()
    ref = world.save(grant, 1, 10)
    record_reports(world.db, grant.lease, [Report(step=1, at_step=5, value=0.5)], lease_s=LEASE_S)
    world.release(grant.lease)
    fail(world)
    assert world.trial().state is TrialState.FAILED
    assert retry(world) == [0]
    assert retry(world) == [], "a replay changes nothing"
    trial = world.trial()
    assert (trial.state, trial.crashes, trial.no_progress, trial.lineage) == (TrialState.PENDING, 0, 0, 0)
    assert world.row().finished_at is None
    grant = world.lease()
    assert (grant.head, grant.lease.fence, grant.attempt) == (ref, 5, 5)
    assert len(reports_of(world.db, trial.trial_id)) == 1


@pytest.mark.parametrize("final", [TrialState.COMPLETED, TrialState.FAILED, TrialState.CANCELLED])
def test_from_zero_cuts_the_history_of_any_final_trial(world: World, final: TrialState) -> None:
    world.add(1)
    grant = world.lease()
    world.save(grant, 1, 10)
    record_reports(world.db, grant.lease, [Report(step=1, at_step=5, value=0.5)], lease_s=LEASE_S)
    match final:
        case TrialState.COMPLETED:
            world.complete(grant.lease)
        case TrialState.FAILED:
            world.release(grant.lease)
            fail(world)
        case _:
            cancel_trials(world.db, world.sweep_id, [0])
    (begun,) = begun_configs(world.db, world.sweep_id, most=4)
    assert retry(world, [0], from_zero=True) == [0]
    trial = world.trial()
    assert (trial.state, trial.lineage, trial.head, trial.step) == (TrialState.PENDING, 1, None, 0)
    assert (trial.result, trial.outcome_key, trial.outcome_stored, trial.error) == (None, None, False, None)
    assert reports_of(world.db, trial.trial_id) == []
    assert [ref.state for ref in checkpoints_of(world.db, trial.trial_id)] == ["retired"]
    grant = world.lease()
    assert (grant.lineage, grant.head, grant.config_text) == (1, None, begun.config_text)
    assert grant.lease.fence > 1, "fences rise over all lineages"
    assert grant.threads is None, "the first attempt of this lineage"


def test_completed_trials_are_run_again_only_when_named_and_from_zero(world: World) -> None:
    """ONCE."""
    world.add(1)
    world.complete(world.lease().lease)
    assert retry(world) == []
    assert retry(world, [0]) == []
    assert retry(world, None, from_zero=True) == []
    assert world.trial().state is TrialState.COMPLETED


def test_unfinished_trials_are_not_retried(world: World) -> None:
    world.add(2)
    world.lease()
    assert retry(world, [0, 1], from_zero=True) == []


def test_an_alias_names_its_trial(world: World) -> None:
    world.add(1)
    world.sql(
        "INSERT INTO sweeper.numbers (sweep_id, number, trial_id) VALUES (:s, 7, :t)",
        s=world.sweep_id,
        t=world.trial().trial_id,
    )
    assert [trial.number for trial in trials(world.db, world.sweep_id, [7, 0])] == [0]
    assert [trial.number for trial in cancel_trials(world.db, world.sweep_id, [7])] == [0]
    assert retry(world, [7]) == [0]


def test_a_retried_trial_is_asked_for_without_any_command(world: World) -> None:
    """The standing asker."""
    world.add(2)
    cancel_trials(world.db, world.sweep_id, None)
    retire_asker(world.db, world.asker_id)
    assert retry(world, [1]) == [1]
    assert [trial.requested for trial in trials(world.db, world.sweep_id)] == [False, True]
    assert list_askers(world.db, world.sweep_id) == []
    assert world.lease().number == 1


def test_the_crashing_hosts_ban_ends_with_a_retry(world: World) -> None:
    world.add(1)
    fail(world)
    retry(world)
    assert (world.row().crash_host, world.trial().available_at) == (None, None)


def test_cancelling_ends_whatever_is_not_final(world: World) -> None:
    world.add(4)
    world.complete(world.lease().lease)
    world.release(world.lease().lease, AttemptOutcome.PAUSED)
    running = world.lease()

    def by_number(found: list[Trial]) -> list[int]:
        return [trial.number for trial in found]

    assert by_number(cancel_trials(world.db, world.sweep_id, None)) == [1, 2, 3]
    assert by_number(cancel_trials(world.db, world.sweep_id, None)) == []
    assert [trial.state.value for trial in trials(world.db, world.sweep_id)] == ["completed", *["cancelled"] * 3]
    with pytest.raises(LeaseLost) as lost:
        renew_lease(world.db, running.lease, lease_s=LEASE_S)
    assert lost.value.cancelled
    sweep = find_sweep(world.db, "digits")
    assert sweep is not None
    assert sweep.state is SweepState.ACTIVE


def test_cancelling_the_sweep_cancels_it_all(world: World) -> None:
    world.add(2)
    world.lease()
    for _ in range(2):
        cancel_sweep(world.db, world.sweep_id)
        sweep = find_sweep(world.db, "digits")
        assert sweep is not None
        assert sweep.state is SweepState.CANCELLED
    assert [trial.state.value for trial in trials(world.db, world.sweep_id)] == ["cancelled", "cancelled"]


def test_cancelling_a_sweep_without_trials_is_possible(world: World) -> None:
    assert cancel_sweep(world.db, world.sweep_id) == []
    sweep = find_sweep(world.db, "digits")
    assert sweep is not None
    assert sweep.state is SweepState.CANCELLED


def test_a_cancelled_trial_keeps_its_head_for_a_retry(world: World) -> None:
    world.add(1)
    grant = world.lease()
    ref = world.save(grant, 1, 10)
    cancel_trials(world.db, world.sweep_id, [0])
    retry(world, [0])
    assert world.lease().head == ref
