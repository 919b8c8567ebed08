"""What a watcher and the command line are told."""

from __future__ import annotations

import pytest

from sweeper.errors import UserError
from sweeper.ids import SweepId
from sweeper.ledger.leases import renew_lease
from sweeper.ledger.reads import attempts, begun_configs, checkpoints_of, progress, trials
from sweeper.ledger.requests import retire_asker
from sweeper.ledger.results import record_reports
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.trial import Report
from tests.ledger.world import LEASE_S, START, World


def test_progress_counts_trials_and_shows_what_runs(world: World) -> None:
    world.add(5)
    world.complete(world.lease().lease)
    world.release(world.lease().lease)
    grant = world.lease(world.worker("node7"))
    world.save(grant, 1, 10)
    world.clock.advance(12)
    record_reports(world.db, grant.lease, [Report(step=3, at_step=12, value=0.5)], lease_s=LEASE_S)
    renew_lease(world.db, grant.lease, lease_s=LEASE_S, step=14)
    shown = progress(world.db, world.sweep_id)
    assert shown.counts == {TrialState.COMPLETED: 1, TrialState.RUNNING: 1, TrialState.PENDING: 3}
    assert (shown.name, shown.evictions, shown.not_requested) == ("digits", 1, 0)
    (running,) = shown.running
    assert (running.number, running.step, running.last_value) == (1, 14, 0.5)
    assert (running.checkpoint_age_s, running.attempt) == (12.0, 2)
    assert running.worker.startswith("node7-")


def test_progress_tells_what_nobody_asks_for(world: World) -> None:
    world.add(3)
    world.complete(world.lease().lease)
    retire_asker(world.db, world.asker_id)
    shown = progress(world.db, world.sweep_id)
    assert (shown.counts, shown.not_requested) == ({TrialState.COMPLETED: 1, TrialState.PENDING: 0}, 2)


def test_progress_of_an_empty_sweep(world: World) -> None:
    shown = progress(world.db, world.sweep_id)
    assert (shown.counts, shown.running, shown.evictions) == ({}, (), 0)
    with pytest.raises(UserError):
        progress(world.db, SweepId("nowhere"))


def test_attempts_tell_the_whole_story_of_a_trial(world: World) -> None:
    world.add(2)
    first = world.lease()
    world.clock.advance(5)
    world.save(first, 1, 8)
    world.release(first.lease, AttemptOutcome.CRASHED, error="boom", exit_code=3, last_step=9)
    world.clock.advance(200)
    second = world.lease()
    told = attempts(world.db, world.sweep_id)
    assert set(told) == {world.trial(0).trial_id}
    one, two = told[world.trial(0).trial_id]
    assert (one.outcome, one.error, one.exit_code, one.first_step, one.last_step) == ("crashed", "boom", 3, 0, 9)
    assert (one.started_at, one.host, one.pool, one.reason) == (START, "h1", "local", "told to")
    assert (two.lease_id, two.fence, two.outcome, two.ended_at, two.first_step) == (
        second.lease.lease_id,
        2,
        None,
        None,
        8,
    )


def test_numbers_choose_trials(world: World) -> None:
    world.add(4)
    assert [trial.number for trial in trials(world.db, world.sweep_id)] == [0, 1, 2, 3]
    assert [trial.number for trial in trials(world.db, world.sweep_id, [3, 1, 99])] == [1, 3]
    assert trials(world.db, world.sweep_id, []) == []


def test_a_trial_shows_its_error_while_it_matters(world: World) -> None:
    world.add(1)
    world.release(world.lease().lease, AttemptOutcome.CRASHED, error="boom")
    assert world.trial().error == "boom"
    world.clock.advance(100)
    grant = world.lease()
    assert world.trial().error is None
    world.complete(grant.lease)
    assert world.trial().error is None


def test_a_trial_without_checkpoints_has_none(world: World) -> None:
    world.add(1)
    assert checkpoints_of(world.db, world.trial().trial_id) == []


def test_configs_that_were_begun_are_those_of_open_trials_and_of_the_newest_final_one(world: World) -> None:
    assert begun_configs(world.db, world.sweep_id, most=4) == []
    world.add(4)
    assert [begun.number for begun in begun_configs(world.db, world.sweep_id, most=4)] == [0, 1, 2, 3]
    for _ in range(2):
        world.complete(world.lease().lease)
    world.lease()
    found = begun_configs(world.db, world.sweep_id, most=4)
    assert [(begun.number, begun.config_text, begun.final) for begun in found] == [
        (1, '{"x":"c1"}', True), (2, '{"x":"c2"}', False), (3, '{"x":"c3"}', False)
    ]  # fmt: skip
    assert begun_configs(world.db, world.sweep_id, most=2) == found[:2]
