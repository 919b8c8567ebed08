"""A search as a whole: when it ends and goes on, who is there, and the points that are tried first."""

from __future__ import annotations

import pytest

from sweeper.errors import CoordinatorLost
from sweeper.ids import AskerId, CoordinatorId, SweepId
from sweeper.ledger.commands import cancel_sweep, cancel_trials, retry_trials
from sweeper.ledger.enqueued import enqueue, next_enqueued, set_enqueued_refused
from sweeper.ledger.leases import retire_worker
from sweeper.ledger.reads import trials
from sweeper.ledger.requests import register_asker, retire_asker
from sweeper.ledger.searches import (
    SearchStanding,
    end_search,
    finish_search,
    request_open,
    resume_search,
    search_standing,
    study_attrs,
)
from sweeper.ledger.sweeps import open_sweep, settle_sweep
from sweeper.model.search import SearchSpec
from sweeper.model.states import AttemptOutcome, PointSource, SweepState
from tests.ledger.search_world import SEARCH, SearchWorld
from tests.ledger.world import LEASE_S, asker, hex_id, spec


def standing(search: SearchWorld) -> SearchStanding:
    return search_standing(search.db, search.sweep_id, recent_s=LEASE_S)


def finish(search: SearchWorld) -> SweepState:
    finish_search(search.db, search.sweep_id)
    return standing(search).state


def test_a_search_is_finished_when_it_proposes_no_more_and_all_its_trials_are_final(search: SearchWorld) -> None:
    grant = search.run()
    assert finish(search) is SweepState.ACTIVE
    end_search(search.db, *search.leader, reason="the space is used up")
    end_search(search.db, *search.leader, reason="something else")
    assert standing(search).ended_reason == "the space is used up", "the first reason stays"
    assert finish(search) is SweepState.ACTIVE
    search.complete(grant.lease)
    assert finish(search) is SweepState.FINISHED
    assert settle_sweep(search.db, search.sweep_id) is SweepState.FINISHED


def test_a_search_that_has_all_its_numbers_needs_no_reason(search: SearchWorld) -> None:
    open_sweep(search.db, spec(search=SearchSpec(space=SEARCH.space, n_trials=2).as_json()), new_id=SweepId("x"))
    search.propose(0, refused="no")
    assert finish(search) is SweepState.ACTIVE
    search.propose(1, refused="no")
    assert finish(search) is SweepState.FINISHED


def test_a_finished_search_is_taken_up_again(search: SearchWorld) -> None:
    """A larger total, another limit: the coordinator says so."""
    end_search(search.db, *search.leader, reason="the target was reached")
    assert finish(search) is SweepState.FINISHED
    resume_search(search.db, *search.leader)
    resume_search(search.db, *search.leader)
    assert (standing(search).state, standing(search).ended_reason) == (SweepState.ACTIVE, None)


def test_a_cancelled_search_stays_cancelled(search: SearchWorld) -> None:
    cancel_sweep(search.db, search.sweep_id)
    resume_search(search.db, *search.leader)
    assert finish(search) is SweepState.CANCELLED


def test_a_retry_says_that_what_was_built_on_the_ends_of_trials_is_void(search: SearchWorld) -> None:
    search.run()
    before = standing(search).revision
    cancel_trials(search.db, search.sweep_id, None)
    assert standing(search).revision == before
    retry_trials(search.db, search.sweep_id, None, from_zero=False)
    assert standing(search).revision == before + 1
    retry_trials(search.db, search.sweep_id, None, from_zero=False)
    assert standing(search).revision == before + 1, "nothing was opened again"


def test_a_replaced_coordinator_neither_ends_the_search_nor_takes_it_up_nor_refuses_its_points(
    search: SearchWorld,
) -> None:
    """FENCE."""
    enqueue(search.db, search.sweep_id, [("a", {})], source=PointSource.CONFIG)
    search.lose_the_lead()
    with pytest.raises(CoordinatorLost):
        set_enqueued_refused(search.db, *search.leader, key="a", reason="mine")
    with pytest.raises(CoordinatorLost):
        end_search(search.db, *search.leader, reason="mine")
    assert standing(search).ended_reason is None
    assert standing(search).points_wait
    late, search.coordinator_id = search.leader, CoordinatorId(hex_id())
    search.clock.advance(31)
    search.lead()
    end_search(search.db, *search.leader, reason="the leader's")
    with pytest.raises(CoordinatorLost):
        resume_search(search.db, *late)
    assert standing(search).ended_reason == "the leader's"


def test_workers_that_hold_a_trial_or_asked_lately_are_live(search: SearchWorld) -> None:
    """A worker on a long trial has not asked for a long time."""
    assert standing(search).live_workers == 0
    busy, idle, gone = search.worker(), search.worker(), search.worker()
    retire_worker(search.db, gone, reason="left")
    search.propose(0)
    search.lease(busy)
    assert standing(search).live_workers == 2
    search.clock.advance(10 * LEASE_S)
    assert standing(search).live_workers == 1
    search.propose(1)
    search.lease(idle)
    assert standing(search).live_workers == 2


def test_a_search_that_was_deleted_counts_as_cancelled(search: SearchWorld) -> None:
    search.sql("DELETE FROM sweeper.sweeps")
    assert standing(search).state is SweepState.CANCELLED
    assert study_attrs(search.db, search.sweep_id) == {}


def test_a_command_asks_for_every_open_trial(search: SearchWorld) -> None:
    search.complete(search.run(0).lease)
    search.pause(1)
    search.run(2)
    search.propose(3)
    retire_asker(search.db, search.asker_id)
    record = asker(hex_id())
    register_asker(search.db, search.sweep_id, record)
    for _ in range(2):
        assert request_open(search.db, search.sweep_id, record.asker_id) == 3
    assert [trial.requested for trial in trials(search.db, search.sweep_id)] == [False, True, True, True]
    assert request_open(search.db, search.sweep_id, AskerId("nobody")) == 3, "taken for dead: it asks for nothing"


def test_points_are_tried_in_the_order_in_which_they_were_wanted(search: SearchWorld) -> None:
    """OP-13."""
    db, sweep_id = search.db, search.sweep_id
    assert next_enqueued(db, sweep_id) is None
    enqueue(db, sweep_id, [("b", {"x": 1.0}), ("a", {"x": {"$float": "inf"}})], source=PointSource.CONFIG)
    enqueue(db, sweep_id, [("c", {})], source=PointSource.MIRROR, mirror_ids=[17])
    enqueue(db, sweep_id, [("b", {"x": 2.0})], source=PointSource.CONFIG)
    assert next_enqueued(db, sweep_id) == ("b", {"x": 1.0})
    search.propose(0, enqueued="b")
    assert next_enqueued(db, sweep_id) == ("a", {"x": {"$float": "inf"}})
    set_enqueued_refused(db, *search.leader, key="a", reason="x is no such thing")
    set_enqueued_refused(db, *search.leader, key="b", reason="too late")
    assert next_enqueued(db, sweep_id) == ("c", {})
    rows = search.sql("SELECT key, number, refused, mirror_id FROM sweeper.enqueued ORDER BY position")
    assert [tuple(row) for row in rows] == [
        ("b", 0, None, None), ("a", None, "x is no such thing", None), ("c", None, None, 17),
    ]  # fmt: skip


def test_a_paused_trial_keeps_a_search_open(search: SearchWorld) -> None:
    grant = search.pause(0)
    end_search(search.db, *search.leader, reason="enough")
    assert finish(search) is SweepState.ACTIVE
    assert search.prune(grant)
    assert finish(search) is SweepState.FINISHED
    assert search.attempts()[-1].outcome is AttemptOutcome.PAUSED
