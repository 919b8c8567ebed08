"""FENCE: every write under a lease is refused to all but its holder: a test per write and kind of stale lease."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sweeper.errors import LeaseLost
from sweeper.ids import LeaseId, TrialId
from sweeper.ledger.checkpoints import adopt_checkpoint, commit_checkpoint, mark_suspect, retire_checkpoints
from sweeper.ledger.leases import expire_dead_holder, release_trial, renew_lease
from sweeper.ledger.results import commit_result, record_reports
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.trial import Grant, Lease, Report
from tests.ledger.world import LEASE_S, World, checkpoint, hex_id

WRITES: dict[str, Callable[[World, Grant, Lease], object]] = {
    "renew_lease": lambda world, grant, lease: renew_lease(world.db, lease, lease_s=LEASE_S, step=99),
    "record_reports": lambda world, grant, lease: record_reports(
        world.db, lease, [Report(step=9, at_step=9, value=9.0)], lease_s=LEASE_S
    ),
    "commit_checkpoint": lambda world, grant, lease: commit_checkpoint(
        world.db, lease, checkpoint(grant, 9, 90), save_s=1.0, lease_s=LEASE_S
    ),
    "retire_checkpoints": lambda world, grant, lease: retire_checkpoints(world.db, lease, keep=0),
    "mark_suspect": lambda world, grant, lease: mark_suspect(world.db, lease, checkpoint(grant, 1, 10), evidence="x"),
    "adopt_checkpoint": lambda world, grant, lease: adopt_checkpoint(world.db, lease, checkpoint(grant, 9, 90)),
    "commit_result": lambda world, grant, lease: commit_result(
        world.db, lease, state=TrialState.COMPLETED, outcome=AttemptOutcome.COMPLETED, result=9.0, reason="",
        outcome_key="k", outcome_hash="h", outcome_stored=True,
    ),
    **{
        f"release_trial {outcome}": lambda world, grant, lease, outcome=outcome: release_trial(
            world.db, lease, outcome=outcome, reason=""
        )
        for outcome in (
            AttemptOutcome.EVICTED, AttemptOutcome.CRASHED, AttemptOutcome.ENVIRONMENT, AttemptOutcome.PAUSED,
        )
    },
}  # fmt: skip


def earlier_fence(world: World, first: Grant, current: Grant) -> Lease:
    return first.lease


def rolled_back(world: World, first: Grant, current: Grant) -> Lease:
    """A failover lost the grant, and the same fence was given again: only the lease id tells them apart."""
    return replace(current.lease, lease_id=LeaseId(hex_id()))


def right_id_wrong_fence(world: World, first: Grant, current: Grant) -> Lease:
    return replace(current.lease, fence=current.lease.fence + 1)


def another_trial(world: World, first: Grant, current: Grant) -> Lease:
    return replace(current.lease, trial_id=TrialId(current.lease.trial_id + 1))


def picture(world: World) -> list[tuple[object, ...]]:
    """Everything a stale write could change."""
    return [
        tuple(row)
        for table in ("trials", "attempts", "checkpoints", "reports")
        for row in world.sql(f"SELECT x::text FROM sweeper.{table} x ORDER BY 1")
    ]


@pytest.mark.parametrize("stale", [earlier_fence, rolled_back, right_id_wrong_fence, another_trial])
@pytest.mark.parametrize("write", WRITES)
def test_a_stale_lease_changes_nothing(world: World, write: str, stale: Callable[[World, Grant, Grant], Lease]) -> None:
    world.add(2)
    first = world.lease()
    world.save(first, 1, 10)
    world.awake(3 * LEASE_S)
    world.expire()
    current = world.lease()
    world.save(current, 1, 20)
    before = picture(world)
    with pytest.raises(LeaseLost):
        WRITES[write](world, first, stale(world, first, current))
    assert expire_dead_holder(world.db, rolled_back(world, first, current), reason="dead") is None
    assert picture(world) == before


def test_after_a_rollback_the_old_holder_of_the_same_fence_changes_nothing(world: World) -> None:
    """The trial's rows are put back to before the grant; the same fence is then granted to another."""
    world.add(1)
    old = world.lease()
    world.sql("DELETE FROM sweeper.attempts")
    world.sql(
        "UPDATE sweeper.trials SET state = 'pending', fence = 0, attempts = 0, lease_id = NULL, worker_id = NULL,"
        " lease_expires_at = NULL"
    )
    new = world.lease()
    assert new.lease.fence == old.lease.fence
    before = picture(world)
    for write in WRITES.values():
        with pytest.raises(LeaseLost, match="not known"):
            write(world, old, old.lease)
    assert picture(world) == before
    world.complete(new.lease)


@pytest.mark.parametrize("write", WRITES)
def test_every_write_of_the_holder_can_be_repeated(world: World, write: str) -> None:
    """A lost reply: the caller repeats the call with the same arguments."""
    world.add(1)
    grant = world.lease()
    world.save(grant, 1, 10)
    WRITES[write](world, grant, grant.lease)
    before = picture(world)
    WRITES[write](world, grant, grant.lease)
    assert picture(world) == before


@pytest.mark.parametrize("first", ["commit_result", "release_trial evicted", "release_trial crashed"])
@pytest.mark.parametrize("second", ["commit_result", "release_trial evicted", "release_trial crashed"])
def test_a_lease_ends_once(world: World, first: str, second: str) -> None:
    world.add(1)
    grant = world.lease()
    WRITES[first](world, grant, grant.lease)
    before = picture(world)
    if first == second:
        WRITES[second](world, grant, grant.lease)
    else:
        with pytest.raises(LeaseLost):
            WRITES[second](world, grant, grant.lease)
    assert picture(world) == before
