"""A ledger that was put back to an earlier copy is told from one that only moved on."""

from __future__ import annotations

import pytest

from sweeper.errors import NumberTaken
from sweeper.ids import ConfigHash
from sweeper.ledger.commands import retry_trials
from sweeper.ledger.highwater import LOST, high_water, is_behind, note_rollback
from sweeper.ledger.proposals import history
from sweeper.model.highwater import HighWater
from sweeper.model.states import AttemptOutcome
from tests.ledger.search_world import SearchWorld
from tests.ledger.world import World


def test_a_ledger_is_never_behind_its_own_mark_whatever_happens_to_its_trials(world: World) -> None:
    """Retries take final trials back; that is no loss."""
    world.add(2)
    marks = [high_water(world.db, world.sweep_id)]
    for _ in range(3):
        world.clock.advance(120)
        world.release(world.lease().lease, AttemptOutcome.CRASHED)
        marks.append(high_water(world.db, world.sweep_id))
    retry_trials(world.db, world.sweep_id, None, from_zero=True)
    assert [is_behind(world.db, world.sweep_id, mark) for mark in marks] == [False] * 4
    assert (marks[-1].next_number, marks[-1].grants) == (2, 3)


def test_a_grant_that_is_not_known_any_more_proves_a_loss_however_many_came_since(world: World) -> None:
    """ONCE: the same number of grants, made anew, does not hide it."""
    world.add(1)
    lost = world.lease().lease
    mark = high_water(world.db, world.sweep_id)
    world.sql(
        "UPDATE sweeper.trials SET state = 'pending', fence = 0, lease_id = NULL, worker_id = NULL,"
        " lease_expires_at = NULL, attempts = 0"
    )
    world.sql("DELETE FROM sweeper.attempts WHERE lease_id = :l", l=lost.lease_id)
    for _ in range(3):
        world.release(world.lease().lease)
    assert is_behind(world.db, world.sweep_id, mark)


def test_numbers_that_were_given_and_are_not_known_prove_a_loss(world: World) -> None:
    world.add(3)
    mark = high_water(world.db, world.sweep_id)
    world.sql("DELETE FROM sweeper.trials WHERE number = 2")
    world.sql("UPDATE sweeper.coordinators SET next_number = 2")
    assert is_behind(world.db, world.sweep_id, mark)


def test_a_search_that_was_put_back_gives_no_lost_number_again(search: SearchWorld) -> None:
    """SAME, ONCE. Each of them has one entry in the study for ever; none is given to another config."""
    for number in range(5):
        search.propose(number)
    mark = high_water(search.db, search.sweep_id)
    search.sql("DELETE FROM sweeper.trials WHERE number >= 2")
    search.sql("DELETE FROM sweeper.numbers WHERE number >= 2")
    search.sql("UPDATE sweeper.coordinators SET next_number = 2")
    assert is_behind(search.db, search.sweep_id, mark)
    for _ in range(2):
        note_rollback(search.db, search.sweep_id, seen_fence=7, next_number=mark.next_number)
    assert not is_behind(search.db, search.sweep_id, mark)
    rows = history(search.db, search.sweep_id)
    assert [(row.number, row.trial_id is None) for row in rows] == [
        (0, False),
        (1, False),
        *((n, True) for n in (2, 3, 4)),
    ]
    assert {row.reason for row in search.sql("SELECT reason FROM sweeper.numbers WHERE number >= 2")} == {LOST}
    with pytest.raises(NumberTaken) as taken:
        search.propose(2, "other")
    assert taken.value.next_number == 5
    search.propose(5, "other")
    assert search.lease().seen_fence == 7


def test_a_plain_grid_that_was_put_back_gets_the_same_numbers_again(world: World) -> None:
    """Its jobs are numbered by their order."""
    world.add(3)
    mark = high_water(world.db, world.sweep_id)
    world.sql("DELETE FROM sweeper.trials WHERE number >= 1")
    world.sql("UPDATE sweeper.coordinators SET next_number = 1")
    note_rollback(world.db, world.sweep_id, seen_fence=0, next_number=mark.next_number)
    assert [trial.number for trial in world.add(3)] == [0, 1, 2]


def test_a_mark_survives_the_store_and_a_foreign_one_is_none() -> None:
    mark = HighWater(ledger_id="a", next_number=3, finals=1, grants=4, newest_lease=ConfigHash("b"))
    assert HighWater.from_mapping(mark.as_mapping(written_at="2030-01-01")) == mark
    assert HighWater.from_mapping({"next_number": "many"}) is None
