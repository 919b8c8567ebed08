"""Leasing, renewing, releasing: one worker at a time, and no writes by anyone else."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sweeper.errors import LeaseLost
from sweeper.ids import LeaseId
from sweeper.ledger.checkpoints import commit_checkpoint
from sweeper.ledger.commands import cancel_sweep, cancel_trials
from sweeper.ledger.highwater import note_rollback
from sweeper.ledger.leases import expire_dead_holder, release_trial, renew_lease, retire_worker, running_holders
from sweeper.ledger.requests import request_trials, retire_asker
from sweeper.ledger.results import record_reports
from sweeper.model.retry import RetryPolicy
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.trial import Lease, Report
from tests.ledger.world import LEASE_S, START, World, checkpoint, hex_id, new_trial


def test_a_grant_says_all_that_the_worker_needs(world: World) -> None:
    world.add(2)
    grant = world.lease()
    trial = world.trial(0)
    assert (grant.number, grant.config_hash, grant.lineage) == (0, trial.config_hash, 0)
    assert grant.lease == Lease(trial_id=trial.trial_id, fence=1, lease_id=grant.lease.lease_id)
    assert (grant.config_text, grant.overrides) == ('{"x":"c0"}', ("x=c0",))
    assert (grant.head, grant.attempt, grant.crashes, grant.threads) == (None, 1, 0, None)
    assert not grant.look_for_evidence
    assert trial.state is TrialState.RUNNING
    (attempt,) = world.attempts()
    assert (attempt.fence, attempt.first_step, attempt.ended_at) == (1, 0, None)


@pytest.mark.parametrize("scarce", [False, True], ids=["plenty", "scarce"])
def test_trials_are_leased_in_the_order_of_priority_and_number(world: World, scarce: bool) -> None:
    world.add(4)
    world.sql("UPDATE sweeper.trials SET priority = 1 WHERE number = 2")
    world.sql("UPDATE sweeper.trials SET priority = -1 WHERE number = 0")
    assert [world.lease(scarce=scarce).number for _ in range(4)] == [2, 1, 3, 0]
    assert world.try_lease(scarce=scarce) is None


@pytest.mark.parametrize("scarce", [False, True], ids=["plenty", "scarce"])
def test_the_floor_is_only_a_preference(world: World, scarce: bool) -> None:
    world.add(3)
    assert [world.lease(floor=1, scarce=scarce).number for _ in range(3)] == [1, 2, 0]
    assert world.try_lease(floor=1, scarce=scarce) is None


def test_who_only_looks_takes_nothing_and_is_not_seen(world: World) -> None:
    """A trial that may not be taken yet is none; one that nobody asks for is looked at in earnest, and left alone."""
    worker = world.worker()
    seen_at = world.sql("SELECT seen_at FROM sweeper.workers")[0].seen_at
    world.clock.advance(60)
    assert world.try_lease(worker, floor=1, scarce=True) is None
    world.add(1)
    world.sql("UPDATE sweeper.trials SET available_at = :later", later=world.clock.now + timedelta(seconds=30))
    assert world.try_lease(worker, floor=1, scarce=True) is None
    assert world.sql("SELECT seen_at FROM sweeper.workers")[0].seen_at == seen_at
    world.clock.advance(31)
    world.sql("DELETE FROM sweeper.requests")
    assert world.try_lease(worker, floor=1, scarce=True) is None
    assert world.trial(0).state is TrialState.PENDING
    assert world.sql("SELECT seen_at FROM sweeper.workers")[0].seen_at > seen_at


@pytest.mark.parametrize("trials", [1, 2])
@pytest.mark.parametrize("scarce", [False, True], ids=["plenty", "scarce"])
def test_a_repeated_lease_id_gets_the_same_grant(world: World, scarce: bool, trials: int) -> None:
    """A lost reply: the claim is repeated with the same id, also where nothing else is left."""
    world.add(trials)
    worker, lease_id = world.worker(), hex_id()
    first = world.lease(worker, lease_id=lease_id, scarce=scarce)
    assert world.lease(worker, lease_id=lease_id, floor=1, scarce=scarce) == first
    assert [world.trial(n).state for n in range(1, trials)] == [TrialState.PENDING] * (trials - 1)
    world.release(first.lease)
    assert world.try_lease(worker, lease_id=lease_id, scarce=scarce) is None
    assert len(world.attempts()) == 1


def test_only_requested_trials_are_leased(world: World) -> None:
    world.add(1)
    retire_asker(world.db, world.asker_id)
    assert world.try_lease() is None
    assert not world.trial().requested


def test_a_trial_that_must_wait_is_not_leased_before(world: World) -> None:
    world.add(1)
    world.release(world.lease().lease, AttemptOutcome.CRASHED)
    assert world.trial().available_at == START + timedelta(seconds=1)
    assert world.try_lease() is None
    world.clock.advance(1)
    assert world.lease().lease.fence == 2


def test_nothing_of_a_cancelled_sweep_is_leased(world: World) -> None:
    world.add(1)
    cancel_sweep(world.db, world.sweep_id)
    world.add(1, "late")
    assert world.try_lease() is None


def test_older_code_is_given_nothing_but_finishes_what_it_holds(world: World) -> None:
    world.add(2)
    grant = world.lease()
    world.sql("UPDATE sweeper.ledger SET min_code = 3")
    assert world.try_lease() is None
    world.complete(grant.lease)


def test_a_second_attempt_goes_on_from_the_head(world: World) -> None:
    world.add(1)
    first = world.lease(threads=3)
    ref = world.save(first, 1, 40)
    world.release(first.lease)
    second = world.lease(threads=5)
    assert (second.head, second.attempt, second.lease.fence) == (ref, 2, 2)
    assert second.threads == 3, "fixed by the first attempt"
    assert second.look_for_evidence
    assert world.trial().step == 40
    assert world.attempts()[1].first_step == 40


def test_a_ledger_that_was_behind_the_store_grants_fences_above_all_seen_and_looks_for_evidence(world: World) -> None:
    """ONCE: after a rollback even a first grant may be of a trial that has finished."""
    world.add(2)
    world.release(world.lease().lease)
    note_rollback(world.db, world.sweep_id, seen_fence=5)
    note_rollback(world.db, world.sweep_id, seen_fence=3)
    first, second = world.lease(), world.lease()
    assert [(grant.number, grant.lease.fence, grant.seen_fence) for grant in (first, second)] == [(0, 6, 5), (1, 6, 5)]
    assert first.look_for_evidence
    assert second.look_for_evidence
    world.release(first.lease)
    assert world.lease().lease.fence == 7


def test_a_grant_carries_what_the_overrides_set(world: World) -> None:
    request_trials(world.db, world.sweep_id, world.asker_id, [new_trial("p", lr=0.1, layers=3)])
    assert world.lease().params == {"lr": 0.1, "layers": 3}


def test_a_crashed_trial_prefers_another_host_for_one_lease_time(world: World) -> None:
    world.add(1)
    here, there = world.worker("here"), world.worker("there")
    world.release(world.lease(here).lease, AttemptOutcome.CRASHED)
    world.clock.advance(10)
    assert world.try_lease(here) is None
    assert world.lease(there).number == 0


def test_a_crashed_trial_stays_when_no_other_host_is_looking(world: World) -> None:
    world.add(1)
    here, there = world.worker("here"), world.worker("there")
    world.release(world.lease(here).lease, AttemptOutcome.CRASHED)
    retire_worker(world.db, there, reason="drained")
    world.clock.advance(10)
    assert world.lease(here).number == 0


def test_a_crashed_trial_stays_while_the_other_hosts_train(world: World) -> None:
    """A worker that took a trial a moment ago is not looking for one: waiting for it would leave this host idle."""
    world.add(2)
    here, there = world.worker("here"), world.worker("there")
    grant = world.lease(here)
    world.lease(there)
    world.release(grant.lease, AttemptOutcome.CRASHED)
    world.clock.advance(10)
    assert world.lease(here).number == grant.number


def test_a_crashed_trial_comes_back_to_its_host_after_one_lease_time(world: World) -> None:
    world.add(1)
    here, there = world.worker("here"), world.worker("there")
    world.release(world.lease(here).lease, AttemptOutcome.CRASHED)
    world.clock.advance(LEASE_S + 1)
    world.sql("UPDATE sweeper.workers SET seen_at = :now WHERE worker_id = :w", now=world.clock.now, w=there)
    assert world.lease(here).number == 0


def test_renewing_extends_the_lease_from_now(world: World) -> None:
    world.add(1)
    grant = world.lease()
    world.clock.advance(20)
    renew_lease(world.db, grant.lease, lease_s=LEASE_S, step=7)
    assert world.row().lease_expires_at == START + timedelta(seconds=20 + LEASE_S)
    assert world.trial().step == 7
    assert not world.row().child_started
    renew_lease(world.db, grant.lease, lease_s=LEASE_S, child_started=True)
    renew_lease(world.db, grant.lease, lease_s=LEASE_S)
    assert world.row().child_started
    assert world.trial().step == 7


def test_a_lease_follows_a_clock_that_was_set_back(world: World) -> None:
    world.add(1)
    grant = world.lease()
    world.clock.advance(-3600)
    renew_lease(world.db, grant.lease, lease_s=LEASE_S)
    assert world.row().lease_expires_at == world.clock.now + timedelta(seconds=LEASE_S)


def test_holding_never_looks_at_the_clock(world: World) -> None:
    """A worker back from an outage that nobody took over goes on."""
    world.add(1)
    grant = world.lease()
    world.clock.advance(86400)
    renew_lease(world.db, grant.lease, lease_s=LEASE_S)
    world.clock.advance(86400)
    world.complete(grant.lease)


def test_an_ended_lease_is_refused_everywhere_and_says_how_it_ended(world: World) -> None:
    world.add(1)
    grant = world.lease()
    world.release(grant.lease)
    with pytest.raises(LeaseLost, match="evicted") as refused:
        renew_lease(world.db, grant.lease, lease_s=LEASE_S)
    assert not refused.value.cancelled


def test_a_cancelled_holder_reads_it_at_its_next_heartbeat(world: World) -> None:
    world.add(1)
    grant = world.lease()
    assert [trial.number for trial in cancel_trials(world.db, world.sweep_id, [0])] == [0]
    for refused in (
        lambda: renew_lease(world.db, grant.lease, lease_s=LEASE_S),
        lambda: record_reports(world.db, grant.lease, [Report(step=1, at_step=1, value=1.0)], lease_s=LEASE_S),
        lambda: world.save(grant, 1, 1),
        lambda: world.release(grant.lease),
        lambda: world.complete(grant.lease),
    ):
        with pytest.raises(LeaseLost) as lost:
            refused()
        assert lost.value.cancelled
    assert world.attempts()[0].outcome is AttemptOutcome.CANCELLED


def test_releasing_twice_is_answered_as_the_first_time(world: World) -> None:
    world.add(1)
    grant = world.lease()
    assert world.release(grant.lease) is TrialState.PENDING
    successor = world.lease()
    assert world.release(grant.lease) is TrialState.PENDING
    assert world.trial().lease_id == successor.lease.lease_id
    with pytest.raises(LeaseLost):
        world.release(grant.lease, AttemptOutcome.CRASHED)


def test_the_third_crash_fails_the_trial_and_keeps_its_traceback(world: World) -> None:
    world.add(1)
    states = []
    for attempt in range(3):
        states.append(world.release(world.lease().lease, AttemptOutcome.CRASHED, error=f"trace {attempt}", exit_code=1))
        world.clock.advance(LEASE_S + 61)
    assert states == [TrialState.PENDING, TrialState.PENDING, TrialState.FAILED]
    trial = world.trial()
    assert (trial.error, trial.crashes) == ("trace 2", 3)
    assert world.row().reason == "crashed 3 times"
    assert [attempt.exit_code for attempt in world.attempts()] == [1, 1, 1]


def test_evictions_never_count_as_crashes_but_ten_without_progress_fail(world: World) -> None:
    """FAIR."""
    world.add(1)
    states = [world.release(world.lease().lease) for _ in range(10)]
    assert states == [TrialState.PENDING] * 9 + [TrialState.FAILED]
    assert world.trial().crashes == 0
    assert world.trial().error == "10 attempts in a row without a new checkpoint"


def test_attempts_that_never_reached_user_code_are_no_evidence_of_a_stuck_trial(world: World) -> None:
    world.add(1)
    for _ in range(15):
        state = world.release(world.lease().lease, AttemptOutcome.ENVIRONMENT, child_started=False)
        assert state is TrialState.PENDING
    assert world.trial().no_progress == 0


def test_a_committed_checkpoint_is_progress(world: World) -> None:
    world.add(1)
    for step in range(1, 25):
        grant = world.lease()
        if step % 5 == 0:
            world.save(grant, 1, step)
        assert world.release(grant.lease) is TrialState.PENDING


def test_a_paused_trial_waits_for_a_decision(world: World) -> None:
    world.add(1)
    assert world.release(world.lease().lease, AttemptOutcome.PAUSED) is TrialState.PAUSED
    assert world.try_lease() is None


@pytest.mark.parametrize("outcome", [AttemptOutcome.COMPLETED, AttemptOutcome.LOST, AttemptOutcome.CANCELLED])
def test_a_trial_is_not_released_by_an_ending_that_is_not_one(world: World, outcome: AttemptOutcome) -> None:
    world.add(1)
    with pytest.raises(ValueError, match="released"):
        release_trial(world.db, world.lease().lease, outcome=outcome, reason="")


def test_the_sweeps_own_limits_count(world: World) -> None:
    other = World.build(world.db, world.clock, retry=RetryPolicy(max_crashes=1), name="strict")
    other.add(1)
    assert other.release(other.lease().lease, AttemptOutcome.CRASHED) is TrialState.FAILED


def test_a_traceback_that_text_cannot_hold_is_recorded_all_the_same(world: World) -> None:
    world.add(1)
    grant = world.lease()
    world.release(grant.lease, AttemptOutcome.CRASHED, error="nul \x00 surrogate \ud800 end", reason="x" * 200_000)
    (attempt,) = world.attempts()
    assert attempt.error == "nul \\x00 surrogate \\ud800 end"
    assert attempt.reason is not None
    assert "left out" in attempt.reason


def test_a_dead_holder_on_this_host_is_expired_at_once(world: World) -> None:
    world.add(2)
    grant = world.lease(world.worker("h1", boot_id="boot1"))
    world.lease(world.worker("h2", boot_id="boot2"))
    (holder,) = running_holders(world.db, world.sweep_id, boot_id="boot1")
    assert (holder.lease, holder.number, holder.lock_path, holder.lock_inode) == (
        grant.lease,
        0,
        "/locks/w",
        "1:2",
    )
    assert expire_dead_holder(world.db, holder.lease, reason="gone") is TrialState.PENDING
    assert expire_dead_holder(world.db, holder.lease, reason="gone") is TrialState.PENDING, "a replay"
    assert world.attempts()[0].outcome is AttemptOutcome.LOST
    with pytest.raises(LeaseLost):
        world.complete(grant.lease)


def test_a_holder_that_ended_by_itself_is_left_alone(world: World) -> None:
    world.add(1)
    grant = world.lease()
    world.complete(grant.lease)
    assert expire_dead_holder(world.db, grant.lease, reason="gone") is None
    assert world.trial().state is TrialState.COMPLETED


def test_a_worker_may_lease_its_trial_again_and_commit_what_its_earlier_fence_saved(world: World) -> None:
    """It was expired to pending while it slept; nobody took the trial."""
    world.add(1)
    worker = world.worker()
    first = world.lease(worker)
    world.save(first, 1, 10)
    world.expire_all()
    again = world.lease(worker)
    ref = checkpoint(first, 2, 20)
    commit_checkpoint(world.db, again.lease, ref, save_s=0.1, lease_s=LEASE_S)
    assert world.trial().head == ref


def test_unknown_leases_are_refused(world: World) -> None:
    world.add(1)
    grant = world.lease()
    stranger = Lease(trial_id=grant.lease.trial_id, fence=1, lease_id=LeaseId(hex_id()))
    with pytest.raises(LeaseLost, match="not known"):
        renew_lease(world.db, stranger, lease_s=LEASE_S)
