"""BLIND: not seeing a worker never takes its trial while the ledger itself could not be reached."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sweeper.errors import LeaseLost
from sweeper.ids import SweepId
from sweeper.ledger.leases import expire_leases, renew_lease
from sweeper.ledger.results import record_reports
from sweeper.model.retry import RetryPolicy
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.trial import Report
from tests.ledger.world import HEARTBEAT_S, LEASE_S, START, World


def pulse(world: World) -> tuple[float, float]:
    """Seconds since the start of the test: last seen, awake since."""
    row = world.sql("SELECT last_seen_at, awake_since FROM sweeper.pulse")[0]
    return (row.last_seen_at - START).total_seconds(), (row.awake_since - START).total_seconds()


def test_an_overdue_lease_is_taken_and_its_trial_goes_on_elsewhere(world: World) -> None:
    world.add(1)
    grant = world.lease()
    renew_lease(world.db, grant.lease, lease_s=LEASE_S, step=30, child_started=True)
    world.pass_time(LEASE_S + HEARTBEAT_S)
    (gone,) = world.expire()
    assert (gone.lease, gone.number, gone.state) == (grant.lease, 0, TrialState.PENDING)
    assert gone.worker_id == world.attempts()[0].worker_id
    (attempt,) = world.attempts()
    assert (attempt.outcome, attempt.last_step) == (AttemptOutcome.LOST, 30)
    assert world.trial().no_progress == 1
    with pytest.raises(LeaseLost, match="lost"):
        renew_lease(world.db, grant.lease, lease_s=LEASE_S)
    assert world.lease().lease.fence == 2


def test_a_lease_that_is_renewed_is_never_taken(world: World) -> None:
    world.add(1)
    grant = world.lease()
    world.pass_time(10 * LEASE_S, beat=lambda: renew_lease(world.db, grant.lease, lease_s=LEASE_S))
    assert world.expire() == []


@pytest.mark.parametrize("by", ["report", "checkpoint"])
def test_reports_and_checkpoints_are_heartbeats(world: World, by: str) -> None:
    world.add(1)
    grant = world.lease()
    steps = iter(range(1, 1000))

    def beat() -> None:
        step = next(steps)
        if by == "report":
            record_reports(world.db, grant.lease, [Report(step=step, at_step=step, value=1.0)], lease_s=LEASE_S)
        else:
            world.save(grant, step, step)

    world.pass_time(5 * LEASE_S, beat=beat)
    assert pulse(world) == (5 * LEASE_S, 0.0), "they beat the pulse too"
    assert world.expire() == []


def test_after_an_outage_leases_get_a_whole_fresh_period(world: World) -> None:
    world.add(1)
    grant = world.lease()
    world.pass_time(30)
    world.clock.advance(600)  # nobody reached the database
    assert world.expire() == []
    world.pass_time(LEASE_S - HEARTBEAT_S, beat=world.expire)
    assert world.trial().state is TrialState.RUNNING
    renew_lease(world.db, grant.lease, lease_s=LEASE_S)
    world.pass_time(LEASE_S)
    assert world.expire() == [], "it came back in time"


def test_after_an_outage_a_holder_that_stays_away_is_taken_one_lease_time_later(world: World) -> None:
    world.add(1)
    world.lease()
    world.clock.advance(600)
    assert world.expire() == []
    world.pass_time(LEASE_S)
    assert len(world.expire()) == 1


def test_a_gap_of_two_heartbeats_is_no_outage_and_a_longer_one_is(world: World) -> None:
    world.touch()
    world.clock.advance(2 * HEARTBEAT_S)
    world.touch()
    assert pulse(world) == (30, 0)
    world.clock.advance(2 * HEARTBEAT_S + 0.1)
    world.touch()
    assert pulse(world) == (60.1, 60.1)


def test_a_clock_that_was_set_back_starts_the_pulse_again(world: World) -> None:
    world.pass_time(120)
    world.clock.advance(-60)
    world.touch()
    assert pulse(world) == (60, 60)


def test_the_pulse_is_written_at_most_every_five_seconds(world: World) -> None:
    world.touch()
    for _ in range(4):
        world.clock.advance(1.2)
        world.touch()
    assert pulse(world)[0] == 0
    world.clock.advance(0.3)
    world.touch()
    assert pulse(world)[0] == pytest.approx(5.1)


def test_short_leases_beat_a_faster_pulse(world: World) -> None:
    """With a heartbeat of one second, a touch every five would look like one outage after another."""
    for _ in range(20):
        world.clock.advance(1)
        expire_leases(world.db, SweepId("x"), lease_s=4, heartbeat_s=1)
    assert pulse(world) == (20, 1)


@pytest.mark.parametrize("statement", ["lease", "renew", "expire"])
def test_leasing_renewing_and_expiring_touch_the_pulse(world: World, statement: str) -> None:
    world.add(1)
    grant = world.lease()
    world.clock.advance(HEARTBEAT_S)
    match statement:
        case "lease":
            assert world.try_lease() is None
        case "renew":
            renew_lease(world.db, grant.lease, lease_s=LEASE_S)
        case "expire":
            world.expire()
    assert pulse(world) == (HEARTBEAT_S, 0)


def test_an_expiry_more_than_two_lease_times_ahead_is_overdue(world: World) -> None:
    """The database's clock went back after it was written."""
    world.add(2)
    world.lease()
    world.lease()
    for number, ahead_s in enumerate((2 * LEASE_S + HEARTBEAT_S, 2 * LEASE_S - HEARTBEAT_S)):
        expires_at = START + timedelta(seconds=LEASE_S + ahead_s)
        world.sql("UPDATE sweeper.trials SET lease_expires_at = :at WHERE number = :n", at=expires_at, n=number)
    world.pass_time(LEASE_S)
    assert [gone.number for gone in world.expire()] == [0]


def test_expiry_is_bounded_and_leaves_the_rest_for_the_next_call(world: World) -> None:
    world.add(5)
    for _ in range(5):
        world.lease()
    world.awake(2 * LEASE_S)
    assert [len(world.expire(limit=2)) for _ in range(4)] == [2, 2, 1, 0]


def test_another_sweeps_leases_are_not_ours_to_take(world: World) -> None:
    other = World.build(world.db, world.clock, name="other")
    other.add(1)
    other.lease()
    world.awake(2 * LEASE_S)
    assert world.expire() == []
    assert len(other.expire()) == 1


def test_losses_never_count_as_crashes(world: World) -> None:
    """FAIR."""
    other = World.build(world.db, world.clock, name="strict", retry=RetryPolicy(max_crashes=1, max_no_progress=3))
    other.add(1)
    for _ in range(5):
        grant = other.lease()
        renew_lease(world.db, grant.lease, lease_s=LEASE_S, child_started=False)
        other.awake(2 * LEASE_S)
        assert other.expire()[0].state is TrialState.PENDING
    assert (other.trial().crashes, other.trial().no_progress) == (0, 0)
    for expected in (TrialState.PENDING, TrialState.PENDING, TrialState.FAILED):
        grant = other.lease()
        renew_lease(world.db, grant.lease, lease_s=LEASE_S, child_started=True)
        other.awake(2 * LEASE_S)
        assert other.expire()[0].state is expected


def test_a_checkpoint_before_the_loss_is_progress(world: World) -> None:
    world.add(1)
    grant = world.lease()
    renew_lease(world.db, grant.lease, lease_s=LEASE_S, child_started=True)
    world.save(grant, 1, 10)
    world.awake(2 * LEASE_S)
    world.expire()
    assert world.trial().no_progress == 0
