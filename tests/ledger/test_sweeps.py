"""Sweeps: the same command again is resuming it; another search under the same name is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from sweeper.errors import UserError
from sweeper.ids import AskerId, CoordinatorId, SweepId
from sweeper.ledger.commands import cancel_sweep, cancel_trials, retry_trials
from sweeper.ledger.database import Database
from sweeper.ledger.matching import search_notices
from sweeper.ledger.requests import retire_asker
from sweeper.ledger.sweeps import (
    acquire_coordinator,
    find_sweep,
    ledger_id,
    list_sweeps,
    open_sweep,
    release_coordinator,
    renew_coordinator,
    settle_sweep,
)
from sweeper.model.retry import RetryPolicy
from sweeper.model.search import Direction, SearchSpec
from sweeper.model.space import Choices, FloatRange
from sweeper.model.states import SweepState, TrialState
from sweeper.model.trial import Json
from tests.ledger.world import START, Clock, World, hex_id, spec


def test_the_ledger_has_one_random_id(db: Database) -> None:
    assert len(ledger_id(db)) == 32
    assert ledger_id(db) == ledger_id(db)


def test_opening_again_gives_the_sweep_with_its_first_directory(db: Database) -> None:
    first = open_sweep(db, spec(identity={"ignore": ("a",), "version": None}), new_id=SweepId("a" * 32))
    again = open_sweep(
        db,
        spec(identity={"ignore": ["a"], "version": None}, sweep_dir="/elsewhere"),
        new_id=SweepId("b" * 32),
    )
    assert again == first
    assert (first.sweep_id, first.sweep_dir, first.created_at) == ("a" * 32, "/sweeps/digits", START)
    assert find_sweep(db, "digits") == first
    assert find_sweep(db, "other") is None


def test_limits_retention_source_and_version_become_those_given(db: Database) -> None:
    open_sweep(db, spec(), new_id=SweepId("a" * 32))
    policy = RetryPolicy(max_crashes=7, max_no_progress=8, backoff_s=0.5, backoff_max_s=9.0)
    changed = spec(source_digest="1" * 64, retry=policy, checkpoint_keep=5, identity={"version": "data-2"})
    sweep = open_sweep(db, changed, new_id=SweepId("b" * 32))
    assert (sweep.source_digest, sweep.retry, sweep.checkpoint_keep) == ("1" * 64, policy, 5)
    assert sweep.identity == {"version": "data-2"}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"task": "train:other"}, "task: 'train:main', now 'train:other'"),
        ({"search": SearchSpec().as_json()}, "it was a plain grid and is now a search"),
        ({"seed": 3}, "seed: 0, now 3"),
        ({"store_url": "s3://b/p"}, "store: 'file:///store', now 's3://b/p'"),
        ({"identity": {"ignore": ["lr"]}}, r"identity.ignore: None, now \['lr'\]"),
    ],
)
def test_another_search_under_the_same_name_is_refused_naming_the_difference(
    db: Database, change: dict[str, object], named: str
) -> None:
    """CLEAR."""
    open_sweep(db, spec(), new_id=SweepId("a" * 32))
    with pytest.raises(UserError, match=named):
        open_sweep(db, spec(**change), new_id=SweepId("b" * 32))


def test_every_difference_is_named_at_once(db: Database) -> None:
    open_sweep(db, spec(), new_id=SweepId("a" * 32))
    with pytest.raises(UserError, match=r"task: .*seed: "):
        open_sweep(db, spec(task="x:y", seed=9), new_id=SweepId("b" * 32))


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "a\x00b", "a\x7fb", "a\x85b", "\ud800"])
def test_a_name_that_cannot_be_one_is_refused_before_any_row(db: Database, name: str) -> None:
    """CLEAR."""
    with pytest.raises(UserError, match="cannot be one"):
        open_sweep(db, spec(name), new_id=SweepId("a" * 32))
    assert list_sweeps(db) == []


@pytest.mark.parametrize("name", ["x" * 200, "naïve sweep", "数字", "a/b'\"; --", " ", "%s :now"])
def test_any_other_text_is_a_name(db: Database, name: str) -> None:
    assert open_sweep(db, spec(name), new_id=SweepId(hex_id())).name == name


def test_a_cancelled_sweep_says_so_when_its_command_is_given_again(world: World) -> None:
    world.add(2)
    cancel_sweep(world.db, world.sweep_id)
    with pytest.raises(UserError, match=r"was cancelled(.|\n)*sweeper retry digits"):
        open_sweep(world.db, spec(), new_id=SweepId(hex_id()))
    assert settle_sweep(world.db, world.sweep_id) is SweepState.CANCELLED
    retry_trials(world.db, world.sweep_id, None, from_zero=False)
    assert open_sweep(world.db, spec(), new_id=SweepId(hex_id())).state is SweepState.ACTIVE


def test_a_sweep_is_finished_when_every_trial_is_final(world: World) -> None:
    def settle() -> SweepState:
        state = settle_sweep(world.db, world.sweep_id)
        assert settle_sweep(world.db, world.sweep_id) is state
        return state

    assert settle() is SweepState.ACTIVE, "nothing was asked for yet"
    world.add(2)
    assert settle() is SweepState.ACTIVE
    world.complete(world.lease().lease)
    assert settle() is SweepState.ACTIVE
    cancel_trials(world.db, world.sweep_id, [1])
    assert settle() is SweepState.FINISHED
    world.add(1, "more")
    assert settle() is SweepState.ACTIVE


def search(**changes: object) -> dict[str, Json]:
    return replace(SearchSpec(space={"x": FloatRange(low=0.0, high=1.0)}), **changes).as_json()  # type: ignore[arg-type]


def test_a_search_that_differs_is_refused_with_every_difference_and_the_remedy(db: Database) -> None:
    """CLEAR, OP-06."""
    open_sweep(db, spec(search=search()), new_id=SweepId("a" * 32))
    other = search(sampler={"_target_": "optuna.samplers.RandomSampler"}, directions=(Direction.MAXIMIZE,))
    with pytest.raises(UserError, match=r"(?s)direction.*sampler.*another name") as refused:
        open_sweep(db, spec(search=other), new_id=SweepId("b" * 32))
    assert "same settings as before" in refused.value.remedy
    assert find_sweep(db, "digits") == open_sweep(db, spec(search=search()), new_id=SweepId("c" * 32))


def test_a_larger_total_and_another_order_of_choices_are_accepted_and_kept(db: Database) -> None:
    """OP-06. The newest order is the stored one."""
    space = {"c": Choices(values=(1, 1.0, "a"))}
    first = open_sweep(db, spec(search=search(space=space, n_trials=10)), new_id=SweepId("a" * 32))
    reordered = search(space={"c": Choices(values=("a", 1.0, 1))}, n_trials=20)
    again = open_sweep(db, spec(search=reordered), new_id=SweepId("b" * 32))
    assert again.sweep_id == first.sweep_id
    assert again.search is not None
    assert json.dumps(again.search) == json.dumps(reordered)
    assert search_notices(first, spec(search=reordered)) == ()


def test_a_moved_range_is_accepted_with_a_notice(db: Database) -> None:
    known = open_sweep(db, spec(search=search()), new_id=SweepId("a" * 32))
    moved = spec(search=search(space={"x": FloatRange(low=0.5, high=1.0)}))
    (notice,) = search_notices(known, moved)
    assert "x was" in notice
    assert open_sweep(db, moved, new_id=SweepId("b" * 32)).search == moved.search
    assert search_notices(None, moved) == search_notices(known, spec(search=None)) == ()


def test_only_its_coordinator_finishes_a_search(db: Database) -> None:
    """All its present trials are final, and it proposes the next in a moment."""
    world = World.build(db, Clock(), name="search", search=search())
    world.add(1)
    world.complete(world.lease().lease)
    assert settle_sweep(db, world.sweep_id) is SweepState.ACTIVE
    world.sql("UPDATE sweeper.sweeps SET state = 'finished'")
    assert settle_sweep(db, world.sweep_id) is SweepState.FINISHED
    retry_trials(db, world.sweep_id, [0], from_zero=True)
    assert settle_sweep(db, world.sweep_id) is SweepState.ACTIVE


def test_sweeps_are_listed_with_their_trials_counted(world: World, clock: Clock) -> None:
    clock.advance(5)
    other = World.build(world.db, clock, name="other")
    world.add(3)
    clock.advance(10)
    world.complete(world.lease().lease)
    world.lease()
    first, second = list_sweeps(world.db)
    assert (first.sweep.name, second.sweep.name) == ("digits", "other")
    assert first.counts == {TrialState.COMPLETED: 1, TrialState.RUNNING: 1, TrialState.PENDING: 1}
    assert first.last_activity_at == clock.now
    assert (second.counts, second.last_activity_at) == ({}, None)
    assert second.sweep == other.sweep


@pytest.fixture
def contend(world: World) -> Callable[[str], int | None]:
    return lambda who: acquire_coordinator(world.db, world.sweep_id, CoordinatorId(who), lease_s=30)


def test_one_coordinator_at_a_time_and_each_with_a_higher_fence(
    world: World, contend: Callable[[str], int | None]
) -> None:
    """RECONCILE."""
    assert contend("a") == 1
    assert contend("a") == 1, "a replay"
    assert contend("b") is None
    world.clock.advance(29)
    assert renew_coordinator(world.db, world.sweep_id, CoordinatorId("a"), 1, lease_s=30)
    world.clock.advance(29)
    assert contend("b") is None
    world.clock.advance(2)
    assert contend("b") == 2
    assert not renew_coordinator(world.db, world.sweep_id, CoordinatorId("a"), 1, lease_s=30)
    release_coordinator(world.db, world.sweep_id, CoordinatorId("a"), 1)
    assert contend("a") is None
    release_coordinator(world.db, world.sweep_id, CoordinatorId("b"), 2)
    assert contend("a") == 3


def test_a_coordinator_whose_command_is_withdrawn_keeps_nobody_waiting(
    world: World, contend: Callable[[str], int | None]
) -> None:
    """RESUME: the lease of a process that is known dead; FENCE: should it live after all, it leads no more."""
    assert contend(world.asker_id) == 1
    retire_asker(world.db, AskerId("0" * 32))
    assert contend("b") is None
    retire_asker(world.db, world.asker_id)
    assert contend("b") == 2
    assert not renew_coordinator(world.db, world.sweep_id, CoordinatorId(world.asker_id), 1, lease_s=30)


def test_a_coordinator_that_nobody_replaced_goes_on_after_an_outage(
    world: World, contend: Callable[[str], int | None]
) -> None:
    contend("a")
    world.clock.advance(3600)
    assert renew_coordinator(world.db, world.sweep_id, CoordinatorId("a"), 1, lease_s=30)


def test_a_coordinators_lease_far_ahead_is_overdue(world: World, contend: Callable[[str], int | None]) -> None:
    contend("a")
    world.clock.advance(-3600)
    assert contend("b") == 2
