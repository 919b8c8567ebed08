"""Numbers and requests: one trial per config, numbered once, run only while somebody asks for it."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from sweeper.ids import AskerId
from sweeper.ledger.database import Database
from sweeper.ledger.reads import requested_counts, trials
from sweeper.ledger.requests import BATCH, list_askers, register_asker, request_trials, retire_asker, touch_asker
from sweeper.model.states import TrialState
from tests.ledger.world import World, asker, new_trial, new_trials


def numbers(world: World) -> list[tuple[int, str]]:
    rows = world.sql(
        "SELECT n.number, t.config_hash FROM sweeper.numbers n JOIN sweeper.trials t USING (trial_id)"
        " WHERE n.sweep_id = :s AND t.number = n.number ORDER BY n.number",
        s=world.sweep_id,
    )
    return [(row.number, row.config_hash) for row in rows]


def test_new_configs_are_numbered_in_the_order_asked(world: World) -> None:
    jobs = new_trials(5)
    given = request_trials(world.db, world.sweep_id, world.asker_id, jobs)
    assert [trial.number for trial in given] == [0, 1, 2, 3, 4]
    assert [trial.config_hash for trial in given] == [job.config_hash for job in jobs]
    assert [trial.overrides for trial in given] == [job.overrides for job in jobs]
    assert numbers(world) == [(index, job.config_hash) for index, job in enumerate(jobs)]


def test_asking_again_gives_the_same_trials_and_takes_no_numbers(world: World) -> None:
    first = world.add(3)
    assert world.add(3) == first
    (more,) = request_trials(world.db, world.sweep_id, world.asker_id, [new_trial("more")])
    assert more.number == 3


def test_a_known_config_among_new_ones_takes_no_number(world: World) -> None:
    world.add(2)
    jobs = [new_trial("new1"), new_trial("c1"), new_trial("new2"), new_trial("c0"), new_trial("new1")]
    given = request_trials(world.db, world.sweep_id, world.asker_id, jobs)
    assert [trial.number for trial in given] == [2, 1, 3, 0, 2]


def test_a_finished_trial_is_given_with_its_result(world: World) -> None:
    """ONCE."""
    world.add(1)
    world.complete(world.lease().lease, 0.25)
    (again,) = world.add(1)
    assert (again.state, again.result) == (TrialState.COMPLETED, 0.25)


def test_two_sweeps_number_the_same_config_each_for_itself(world: World) -> None:
    other = World.build(world.db, world.clock, name="other")
    world.add(2)
    (trial,) = request_trials(other.db, other.sweep_id, other.asker_id, [new_trial("c1")])
    assert trial.number == 0


def test_more_configs_than_a_batch(world: World) -> None:
    given = world.add(2 * BATCH + 3)
    assert [trial.number for trial in given] == list(range(2 * BATCH + 3))
    assert world.add(2 * BATCH + 3) == given


def test_nothing_asked_is_nothing_given(world: World) -> None:
    assert request_trials(world.db, world.sweep_id, world.asker_id, []) == []


def test_params_keep_their_types(world: World) -> None:
    request_trials(
        world.db,
        world.sweep_id,
        world.asker_id,
        [new_trial("p", a=1, b=1.0, c=True, d="on", e=None, f={"$float": "inf"})],
    )
    params = world.trial().params
    assert params == {"a": 1, "b": 1.0, "c": True, "d": "on", "e": None, "f": {"$float": "inf"}}
    assert [type(params[key]) for key in "abc"] == [int, float, bool]


@pytest.mark.parametrize("overlap", [True, False])
def test_ten_commands_that_ask_at_once_agree_on_the_numbers(world: World, empty_url: str, overlap: bool) -> None:
    start = Barrier(10)

    def ask(index: int) -> list[tuple[int, str]]:
        with Database(empty_url, f"asker {index}", world.clock) as db:
            record = asker()
            register_asker(db, world.sweep_id, record)
            jobs = new_trials(50, "c" if overlap else f"c{index}-")
            jobs = jobs[index:] + jobs[:index]
            start.wait()
            given = request_trials(db, world.sweep_id, record.asker_id, jobs)
            assert [trial.config_hash for trial in given] == [job.config_hash for job in jobs]
            return [(trial.number, trial.config_hash) for trial in given]

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(ask, range(10)))
    if overlap:
        assert all(sorted(answer) == sorted(answers[0]) for answer in answers)
    pairs = {pair for answer in answers for pair in answer}
    expected = 50 if overlap else 500
    assert sorted(number for number, _ in pairs) == list(range(expected)), "no gaps, none twice"
    assert len(numbers(world)) == expected
    asked = Counter(row.asker_id for row in world.sql("SELECT asker_id FROM sweeper.requests"))
    assert set(asked.values()) == {50}


def test_what_a_dead_command_asked_for_stays_pending_and_is_not_run(world: World) -> None:
    """`lr=1,2,3` killed, then `lr=3,4`, leaves `lr=2` pending."""
    world.add(3)
    world.complete(world.lease().lease)
    register_asker(world.db, world.sweep_id, asker("b" * 32))
    request_trials(world.db, world.sweep_id, AskerId("b" * 32), [new_trial("c2"), new_trial("c3")])
    retire_asker(world.db, world.asker_id)
    retire_asker(world.db, world.asker_id)
    assert [world.lease().number for _ in range(2)] == [2, 3]
    assert world.try_lease() is None
    assert [trial.requested for trial in trials(world.db, world.sweep_id)] == [False, False, True, True]
    assert requested_counts(world.db, world.sweep_id, AskerId("b" * 32)) == {TrialState.RUNNING: 2}


def test_a_request_is_counted_by_the_state_of_its_trial(world: World) -> None:
    world.add(4)
    world.complete(world.lease().lease)
    world.lease()
    counts = requested_counts(world.db, world.sweep_id, world.asker_id)
    assert counts == {TrialState.COMPLETED: 1, TrialState.RUNNING: 1, TrialState.PENDING: 2}


def test_askers_are_listed_with_how_long_they_are_silent(world: World) -> None:
    world.touch()
    world.awake(10)
    register_asker(world.db, world.sweep_id, asker("b" * 32))
    world.awake(5)
    assert [(seen.asker_id, seen.seconds_silent) for seen in list_askers(world.db, world.sweep_id)] == [
        (world.asker_id, 15.0),
        ("b" * 32, 5.0),
    ]
    touch_asker(world.db, world.asker_id)
    assert list_askers(world.db, world.sweep_id)[1].seconds_silent == 0
    world.clock.advance(-100)
    assert list_askers(world.db, world.sweep_id)[0].seconds_silent == 0, "durations are not negative"


def test_a_time_in_which_nobody_could_reach_the_ledger_is_no_silence(world: World) -> None:
    """BLIND: after an outage of an hour no command counts as dead for not having been heard."""
    world.touch()
    world.clock.advance(3600)
    world.touch()
    world.clock.advance(5)
    assert [seen.seconds_silent for seen in list_askers(world.db, world.sweep_id)] == [5.0]


def test_registering_twice_is_registering_once(world: World) -> None:
    record = asker("b" * 32)
    register_asker(world.db, world.sweep_id, record)
    register_asker(world.db, world.sweep_id, record)
    (seen,) = [seen for seen in list_askers(world.db, world.sweep_id) if seen.asker_id == "b" * 32]
    assert (seen.host, seen.boot_id, seen.lock_path, seen.lock_inode, seen.pid) == ("h1", "boot1", "/locks/a", "1:2", 1)
