"""The checkpoint row is the pointer (FALLBACK)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweeper.errors import LeaseLost
from sweeper.ledger.checkpoints import (
    adopt_checkpoint,
    collectable_checkpoints,
    commit_checkpoint,
    forget_checkpoints,
    mark_suspect,
    retire_checkpoints,
)
from sweeper.ledger.commands import retry_trials
from sweeper.ledger.reads import checkpoints_of, reports_of
from sweeper.ledger.results import record_reports
from sweeper.model.states import CheckpointState
from sweeper.model.trial import CheckpointRef, Report
from tests.ledger.world import LEASE_S, World, checkpoint


def states(world: World) -> list[tuple[int, str]]:
    return [(ref.step, ref.state.value) for ref in checkpoints_of(world.db, world.trial().trial_id)]


def test_a_committed_checkpoint_is_the_head_and_renews_the_lease(world: World) -> None:
    world.add(1)
    grant = world.lease()
    world.clock.advance(30)
    ref = world.save(grant, 1, 10)
    trial = world.trial()
    assert (trial.head, trial.step) == (ref, 10)
    assert (world.row().lease_expires_at - world.clock.now).total_seconds() == LEASE_S


def test_a_repeated_commit_succeeds_and_is_one_row(world: World) -> None:
    world.add(1)
    grant = world.lease()
    world.save(grant, 1, 10)
    world.save(grant, 1, 10)
    world.save(grant, 2, 20)
    world.save(grant, 1, 10)
    assert states(world) == [(10, "live"), (20, "live")]
    head = world.trial().head
    assert head is not None
    assert head.step == 20


def test_an_older_save_cannot_come_after_a_newer_one(world: World) -> None:
    world.add(1)
    grant = world.lease()
    world.save(grant, 2, 20)
    with pytest.raises(ValueError, match="comes after save 2"):
        world.save(grant, 1, 10)


def test_a_zombies_checkpoint_is_refused_and_its_head_stays_out(world: World) -> None:
    """FENCE: the upload may be complete; no row names it."""
    world.add(1)
    first = world.lease()
    world.save(first, 1, 10)
    world.expire_all()
    second = world.lease()
    mine = world.save(second, 2, 30)
    with pytest.raises(LeaseLost):
        world.save(first, 2, 20)
    assert world.trial().head == mine


def test_the_replay_of_a_commit_is_known_even_after_the_lease(world: World) -> None:
    world.add(1)
    grant = world.lease()
    ref = world.save(grant, 1, 10)
    world.release(grant.lease)
    commit_checkpoint(world.db, grant.lease, ref, save_s=0.1, lease_s=LEASE_S)
    with pytest.raises(LeaseLost):
        commit_checkpoint(world.db, grant.lease, replace(ref, manifest_hash="other"), save_s=0.1, lease_s=LEASE_S)


def test_all_but_the_newest_are_retired_and_may_be_collected_an_hour_later(world: World) -> None:
    world.add(1)
    first = world.lease()
    refs = [world.save(first, seq, 10 * seq) for seq in range(1, 6)]
    retired = retire_checkpoints(world.db, first.lease, keep=3)
    assert [ref.step for ref in retired] == [10, 20]
    assert all(ref.state is CheckpointState.RETIRED for ref in retired)
    assert retire_checkpoints(world.db, first.lease, keep=3) == []
    world.release(first.lease)

    def collectable() -> list[int]:
        return [ref.step for ref in collectable_checkpoints(world.db, world.sweep_id, older_than_s=3600, limit=10)]

    assert collectable() == []
    world.clock.advance(3601)
    assert collectable() == [10, 20]
    forget_checkpoints(world.db, refs[:1])
    forget_checkpoints(world.db, refs[:1])
    assert collectable() == [20]
    forget_checkpoints(world.db, refs)
    assert states(world) == [(30, "live"), (40, "live"), (50, "live")], "only retired rows are forgotten"


def test_nothing_under_the_current_leases_prefix_is_ever_collected(world: World) -> None:
    world.add(1)
    grant = world.lease()
    for seq in range(1, 4):
        world.save(grant, seq, seq)
    retire_checkpoints(world.db, grant.lease, keep=1)
    world.clock.advance(7200)
    assert collectable_checkpoints(world.db, world.sweep_id, older_than_s=3600, limit=10) == []


def test_the_head_is_never_retired(world: World) -> None:
    world.add(1)
    grant = world.lease()
    world.save(grant, 1, 10)
    world.save(grant, 2, 20)
    adopt_checkpoint(world.db, grant.lease, checkpoint(grant, 1, 10))
    assert retire_checkpoints(world.db, grant.lease, keep=1) == []
    assert retire_checkpoints(world.db, grant.lease, keep=0)[0].step == 20


def test_a_bad_checkpoint_is_set_aside_and_the_previous_one_is_the_head(world: World) -> None:
    world.add(1)
    first = world.lease()
    refs = [world.save(first, seq, 10 * seq) for seq in range(1, 4)]
    record_reports(world.db, first.lease, [Report(step=s, at_step=s, value=0.0) for s in (10, 15, 25)], lease_s=LEASE_S)
    world.release(first.lease)
    second = world.lease()
    assert mark_suspect(world.db, second.lease, refs[2], evidence="digest of t3") == refs[1]
    assert mark_suspect(world.db, second.lease, refs[2], evidence="digest of t3") == refs[1], "a replay"
    assert world.trial().head == refs[1]
    assert [report.step for report in reports_of(world.db, world.trial().trial_id)] == [10, 15]
    assert mark_suspect(world.db, second.lease, refs[1], evidence="gone") == refs[0]
    assert mark_suspect(world.db, second.lease, refs[0], evidence="gone") is None
    assert (world.trial().head, world.trial().step) == (None, 0)
    assert reports_of(world.db, world.trial().trial_id) == []
    assert [state for _, state in states(world)] == ["suspect"] * 3
    assert world.sql("SELECT evidence FROM sweeper.checkpoints WHERE seq = 3")[0].evidence == "digest of t3"


def test_the_previous_one_is_of_the_same_lineage(world: World) -> None:
    world.add(1)
    first = world.lease()
    world.save(first, 1, 10)
    world.complete(first.lease)
    retry_trials(world.db, world.sweep_id, [0], from_zero=True)
    second = world.lease()
    assert second.head is None
    ref = world.save(second, 1, 5)
    assert mark_suspect(world.db, second.lease, ref, evidence="x") is None


def test_marking_suspect_needs_the_lease(world: World) -> None:
    """A successor may have retired that checkpoint: its absence proves nothing."""
    world.add(1)
    first = world.lease()
    ref = world.save(first, 1, 10)
    world.release(first.lease)
    world.lease()
    with pytest.raises(LeaseLost):
        mark_suspect(world.db, first.lease, ref, evidence="missing")
    assert world.trial().head == ref


def test_a_valid_manifest_found_in_the_store_becomes_the_head(world: World) -> None:
    world.add(1)
    grant = world.lease()
    found = CheckpointRef(
        fence=7, seq=3, step=70, manifest_key="old/7-aa/3/manifest.json", manifest_hash="m", size_bytes=5
    )
    for _ in range(2):
        adopt_checkpoint(world.db, grant.lease, found)
    assert (world.trial().head, world.trial().step) == (found, 70)
    mine = world.save(grant, 1, 80)
    assert world.trial().head == mine


def test_an_attempt_that_falls_back_says_where_it_really_began(world: World) -> None:
    """TRUTH: `first_step` is the step of the checkpoint that was loaded, not of the bad one."""
    world.add(1)
    first = world.lease()
    refs = [world.save(first, seq, 10 * seq) for seq in (1, 2)]
    world.release(first.lease)
    second = world.lease()
    begun = []
    for bad in (refs[1], refs[0]):
        mark_suspect(world.db, second.lease, bad, evidence="bad")
        begun.append(world.attempts()[1].first_step)
    adopt_checkpoint(world.db, second.lease, replace(refs[0], manifest_key="found", step=15))
    begun.append(world.attempts()[1].first_step)
    assert begun == [10, 0, 15]
    assert world.attempts()[0].first_step == 0


def test_adopting_what_was_set_aside_makes_it_live_again(world: World) -> None:
    world.add(1)
    grant = world.lease()
    ref = world.save(grant, 1, 10)
    mark_suspect(world.db, grant.lease, ref, evidence="missing")
    adopt_checkpoint(world.db, grant.lease, ref)
    assert world.trial().head == ref
    assert states(world) == [(10, "live")]


def test_a_fence_and_seq_may_repeat_after_a_rollback_under_another_prefix(world: World) -> None:
    world.add(1)
    grant = world.lease()
    other = replace(checkpoint(grant, 1, 10), manifest_key="trials/x/1-feedbeef/1/manifest.json")
    adopt_checkpoint(world.db, grant.lease, other)
    mine = world.save(grant, 1, 20)
    assert world.trial().head == mine
