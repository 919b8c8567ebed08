"""A coordinator on a real ledger and a store in memory, under virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from sweeper.checkpoint.outcomes import read_config, read_outcome, write_outcome
from sweeper.checkpoint.ownership import claim_name, read_highwater, take_over_name, write_highwater
from sweeper.coordinator import chores
from sweeper.ids import AskerId, LedgerId
from sweeper.ledger.commands import cancel_trials, retry_trials
from sweeper.ledger.leases import release_trial
from sweeper.ledger.reads import requested_counts, trials
from sweeper.ledger.requests import list_askers, register_asker, request_trials, retire_asker
from sweeper.ledger.results import commit_result
from sweeper.ledger.sweeps import find_sweep, ledger_id
from sweeper.model.messages import Refused, Start
from sweeper.model.outcome import Outcome
from sweeper.model.states import AttemptOutcome, SweepState, TrialState
from sweeper.model.waits import ExitStatus, Notice
from tests.coordinator.runs import ALL, Run
from tests.simulation.child import SimChild
from tests.simulation.world import Process
from tests.worker.bench import Bench, crashing_child, new_trial


@pytest.fixture
def bench(ledger_url: str) -> Iterator[Bench]:
    bench = Bench(ledger_url, trials_=3)
    yield bench
    bench.database.close()


def _states(bench: Bench) -> list[TrialState]:
    return [trial.state for trial in trials(bench.database, bench.sweep.sweep_id)]


def _complete(bench: Bench, *, stored: bool = True, failed: bool = False) -> None:
    grant = bench.lease(f"{bench.world.now_s}/{len(bench.store.objects)}/{_states(bench)}")
    commit_result(
        bench.database,
        grant.lease,
        state=TrialState.FAILED if failed else TrialState.COMPLETED,
        outcome=AttemptOutcome.INVALID if failed else AttemptOutcome.COMPLETED,
        result=1,
        reason="by hand",
        outcome_key="k" if stored else None,
        outcome_hash="h" if stored else None,
        outcome_stored=stored,
    )


def test_it_keeps_workers_until_all_is_done_and_lets_them_leave(bench: Bench) -> None:
    """RECONCILE: from pending to done; one line per transition; the sweep is finished and nothing is asked for."""
    run = Run(bench).start()
    bench.run(300)
    assert run.process.result.kind == "done"
    assert _states(bench) == [TrialState.COMPLETED] * 3
    assert len(run.handles) == 2
    assert {handle.process.result.status for handle in run.handles} <= {0, 75}
    told = [(event.number, event.state) for event in run.sink.events if event.state is TrialState.COMPLETED]
    assert sorted(told) == [(n, TrialState.COMPLETED) for n in range(3)]
    sweep = find_sweep(bench.database, "bench")
    assert sweep is not None
    assert sweep.state is SweepState.FINISHED
    assert requested_counts(bench.database, bench.sweep.sweep_id, bench.asker.asker_id) == {}


def test_it_returns_at_once_and_starts_no_worker_when_all_is_final(bench: Bench) -> None:
    """ONCE: the same command again trains nothing."""
    for _ in range(3):
        _complete(bench)
    run = Run(bench).start()
    bench.run(5)
    assert run.process.result.kind == "done"
    assert run.process.result.counts == {TrialState.COMPLETED: 3}
    assert run.handles == []


def test_a_worker_that_is_killed_is_replaced(bench: Bench) -> None:
    """PR-08: nobody but the dead worker loses anything."""
    run = Run(bench).start()
    bench.run(60, until=lambda: len(run.handles) == 2 and len(bench.children) == 2)
    run.handles[0].process.die("killed")
    bench.run(400)
    assert run.process.result.kind == "done"
    assert len(run.handles) >= 3
    assert _states(bench) == [TrialState.COMPLETED] * 3


def test_workers_in_which_no_trial_can_even_start_are_not_started_for_ever(bench: Bench) -> None:
    """FAIR: nobody's crash, so no trial fails; but attempts that begin and end at once are no progress either."""

    class Refuses(SimChild):
        def _begin(self) -> None:
            self._tell(Refused(reason="prepare", detail="OSError: the output directory cannot be written"))
            self._exit(ExitStatus(code=1))

    bench.make_child = lambda process, start, fd: Refuses(process, start, fd, steps=1, padding=0, crash=None)
    run = Run(bench, workers=1).start()
    bench.run(1200, until=lambda: not run.process.alive)
    assert run.process.result.kind == "workers_failed"
    assert _states(bench) == [TrialState.PENDING] * 3


def test_a_notice_drains_the_workers_and_keeps_what_was_asked_for(bench: Bench) -> None:
    """Evicted: children save, leases are given back, the request stays for workers elsewhere."""
    run = Run(bench).start()
    bench.run(60, until=lambda: len(bench.children) == 2 and all(child.step >= 2 for child in bench.children))
    run.process.notify(Notice(source="signal", reason="SIGINT"))
    bench.run(60)
    end = run.process.result
    assert (end.kind, end.reason) == ("evicted", "signal: SIGINT")
    assert _states(bench) == [TrialState.PENDING] * 3
    assert sum(end.counts.values()) == 3
    assert all(handle.process.result.status == 75 for handle in run.handles)


def test_a_second_notice_makes_the_workers_hurry(bench: Bench) -> None:
    """PR-06: it shortens their deadline and changes nothing else."""
    bench.make_child = lambda process, start, fd: SimChild(process, start, fd, steps=1000, padding=0, crash="hang")
    run = Run(bench).start()
    bench.run(200, until=lambda: len(bench.children) == 2 and all(child.hangs for child in bench.children))
    began_s = bench.world.now_s
    for _ in range(2):
        run.process.notify(Notice(source="signal", reason="SIGINT"))
        bench.run(2)
    bench.run(100, until=lambda: not run.process.alive)
    assert bench.world.now_s - began_s < 15
    assert run.process.result.kind == "evicted"
    assert {a.outcome for n in range(2) for a in bench.attempts(n)} == {AttemptOutcome.EVICTED}


def test_fail_fast_stops_the_run_and_leaves_the_rest_pending(bench: Bench) -> None:
    run = Run(bench, fail_fast=True).start()
    bench.run(60, until=lambda: len(bench.children) == 2)
    _complete(bench, failed=True)
    bench.run(60)
    assert run.process.result.kind == "failed_fast"
    assert _states(bench) == [TrialState.PENDING, TrialState.PENDING, TrialState.FAILED]


def test_what_failed_before_the_run_does_not_stop_it(bench: Bench) -> None:
    """HY-04: a sweep that fail_fast stopped goes on when the same command is given again."""
    _complete(bench, failed=True)
    run = Run(bench, fail_fast=True).start()
    bench.run(300)
    assert run.process.result.kind == "done"
    assert _states(bench) == [TrialState.FAILED, TrialState.COMPLETED, TrialState.COMPLETED]


def test_outcome_objects_that_are_missing_are_written(bench: Bench) -> None:
    """ONCE: the store was away at a finish, and a trial was cancelled while nobody could write for it."""
    _complete(bench, stored=False)
    grant = bench.lease("ran once")
    release_trial(bench.database, grant.lease, outcome=AttemptOutcome.EVICTED, reason="gone")
    cancel_trials(bench.database, bench.sweep.sweep_id, [grant.number])
    run = Run(bench).start()
    bench.run(200)
    assert run.process.result.kind == "done"
    for trial in trials(bench.database, bench.sweep.sweep_id):
        assert trial.outcome_stored
        assert trial.outcome_key is not None
        assert read_outcome(bench.store, trial.outcome_key).state is trial.state


def test_what_a_dead_command_asked_for_is_dropped(bench: Bench) -> None:
    """Requests: `lr=1,2,3` killed, then `lr=3,4`, leaves `lr=2` pending."""
    mine = replace(bench.asker, asker_id=AskerId("c" * 32))
    register_asker(bench.database, bench.sweep.sweep_id, mine)
    request_trials(bench.database, bench.sweep.sweep_id, mine.asker_id, [new_trial(2), new_trial(3)])
    run = Run(bench, asker=mine, wanted=[new_trial(2), new_trial(3)])
    run.dead_askers.add(bench.asker.asker_id)
    run.start()
    bench.run(300)
    assert run.process.result.kind == "done"
    states = _states(bench)
    assert states[2:] == [TrialState.COMPLETED] * 2
    assert bench.asker.asker_id not in [seen.asker_id for seen in list_askers(bench.database, bench.sweep.sweep_id)]


def test_an_outage_of_the_ledger_is_told_once_and_waited_out(bench: Bench) -> None:
    """BLIND: a visible line, no end."""
    run = Run(bench).start()
    bench.run(60, until=lambda: len(bench.children) == 2)
    bench.weather.database_away_until_s = bench.world.now_s + 100
    bench.run(600)
    assert run.process.result.kind == "done"
    assert len([note for note in run.sink.notes if "does not answer" in note]) == 1
    assert len([note for note in run.sink.notes if "answers again" in note]) == 1


def test_two_coordinators_at_once_are_wasteful_and_never_wrong(bench: Bench) -> None:
    """RECONCILE: the same command given twice; both end, each config completed once."""
    other = replace(bench.asker, asker_id=AskerId("d" * 32))
    register_asker(bench.database, bench.sweep.sweep_id, other)
    request_trials(bench.database, bench.sweep.sweep_id, other.asker_id, [new_trial(n) for n in range(3)])
    first, second = Run(bench, "c").start(), Run(bench, "d", asker=other).start()
    bench.run(400)
    assert [first.process.result.kind, second.process.result.kind] == ["done", "done"]
    for number in range(3):
        assert [a.outcome for a in bench.attempts(number)].count(AttemptOutcome.COMPLETED) == 1


def test_another_ledger_that_took_the_name_stops_it(bench: Bench) -> None:
    """The ownership log is looked at with each high-water mark."""
    claim_name(bench.store, name="bench", sweep_id=bench.sweep.sweep_id, ledger_id=ledger_id(bench.database))
    run = Run(bench, highwater_every_s=5.0)
    bench.make_child = _endless
    run.start()
    bench.run(30)
    mark = read_highwater(bench.store, bench.sweep.sweep_id)
    assert mark is not None
    assert mark["next_number"] == 3
    take_over_name(bench.store, name="bench", sweep_id=bench.sweep.sweep_id, ledger_id=LedgerId("e" * 32))
    bench.run(120)
    assert run.error is not None
    assert "another ledger" in str(run.error)
    assert run.workers.alive == 0


def test_a_failure_by_crashes_leaves_its_object_although_the_run_ends_with_it(bench: Bench) -> None:
    """ONCE: the worker only gives the trial back; the object and the config are written before the command returns."""
    bench.make_child = crashing_child("error", 2)
    run = Run(bench).start()
    bench.run(600)
    assert run.process.result.counts == {TrialState.FAILED: 3}
    _assert_objects(bench, TrialState.FAILED)


@pytest.mark.parametrize("fail_fast", [False, True])
def test_all_missing_objects_are_written_at_the_end_however_many(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, fail_fast: bool
) -> None:
    """ONCE: also when the first failure stops the run."""
    monkeypatch.setattr(chores, "REPAIR_LIMIT", 1)
    bench.make_child = crashing_child("error", 2)
    run = Run(bench, tend_every_s=1e6, fail_fast=fail_fast).start()
    bench.run(600)
    assert run.process.result.kind == ("failed_fast" if fail_fast else "done")
    _assert_objects(bench, TrialState.FAILED, TrialState.PENDING)


def _assert_objects(bench: Bench, *states: TrialState) -> None:
    found = trials(bench.database, bench.sweep.sweep_id)
    assert {trial.state for trial in found} <= set(states)
    for trial in found:
        if trial.state.final:
            assert trial.outcome_stored
            assert trial.outcome_key is not None
            assert read_outcome(bench.store, trial.outcome_key).state is trial.state
            assert read_config(bench.store, bench.sweep.sweep_id, trial.config_hash, trial.lineage)


def test_one_object_that_is_there_already_keeps_none_of_the_others_from_being_written(bench: Bench) -> None:
    """ONCE: failed and stored, retried, then cancelled before anybody took it: its attempt has left an object."""
    grant = bench.lease()
    outcome = Outcome(
        sweep_id=grant.sweep_id, config_hash=grant.config_hash, number=0, lineage=0, fence=1,
        lease_id=grant.lease.lease_id, state=TrialState.FAILED, reason="not a number", value=None, step=1,
    )  # fmt: skip
    key, digest = write_outcome(bench.store, outcome)
    commit_result(
        bench.database, grant.lease, state=TrialState.FAILED, outcome=AttemptOutcome.INVALID, result=None,
        reason="not a number", outcome_key=key, outcome_hash=digest, outcome_stored=True,
    )  # fmt: skip
    retry_trials(bench.database, bench.sweep.sweep_id, [0], from_zero=False)
    cancel_trials(bench.database, bench.sweep.sweep_id, [0])
    _complete(bench, stored=False)
    _complete(bench, stored=False)
    run = Run(bench).start()
    bench.run(100)
    assert run.process.result.kind == "done"
    found = trials(bench.database, bench.sweep.sweep_id)
    assert [trial.outcome_stored for trial in found] == [True] * 3
    assert found[0].outcome_key == key


def test_a_command_taken_for_dead_asks_again_instead_of_calling_it_done(bench: Bench) -> None:
    """TRUTH: it slept for longer than others wait for a sign of life; its trials are not final."""
    run = Run(bench).start()
    bench.run(60, until=lambda: len(bench.children) == 2)
    retire_asker(bench.database, bench.asker.asker_id)
    bench.run(400)
    assert run.process.result.kind == "done"
    assert _states(bench) == [TrialState.COMPLETED] * 3


def test_after_an_outage_longer_than_anybody_is_waited_for_no_living_command_is_dropped(bench: Bench) -> None:
    """BLIND: neither command was heard of; both are well."""
    other = replace(bench.asker, asker_id=AskerId("d" * 32))
    register_asker(bench.database, bench.sweep.sweep_id, other)
    request_trials(bench.database, bench.sweep.sweep_id, other.asker_id, ALL)
    bench.make_child = _endless
    runs = [Run(bench, "c", asker_silent_s=100.0).start(), Run(bench, "d", asker=other, asker_silent_s=100.0).start()]
    bench.run(60, until=lambda: len(bench.children) >= 3)
    bench.weather.database_away_until_s = bench.world.now_s + 400
    bench.run(460)
    assert all(run.process.alive for run in runs)
    assert len(list_askers(bench.database, bench.sweep.sweep_id)) == 2


@pytest.mark.slow
def test_a_ledger_put_back_under_a_running_command_trains_nothing_twice(bench: Bench) -> None:
    """ONCE, RECONCILE: trial, attempts and requests are gone; the next high-water mark tells."""
    run = Run(bench, "c", highwater_every_s=5.0)
    bench.make_child = lambda process, start, fd: SimChild(
        process, start, fd, steps=12 if start.number < 2 else 400, padding=0, crash=None
    )
    run.start()
    bench.run(200, until=lambda: _states(bench)[:2] == [TrialState.COMPLETED] * 2)
    bench.run(10)
    values = [bench.trial(number).result for number in range(2)]
    bench.forget()
    retire_asker(bench.database, bench.asker.asker_id)
    bench.run(900)
    assert run.process.result.kind == "done"
    assert [bench.trial(number).result for number in range(2)] == values
    assert sorted(start.number for start in bench.starts if start.number < 2) == [0, 1], "each was trained once"


def test_a_mark_that_the_ledger_is_behind_is_noticed_by_a_running_coordinator(bench: Bench) -> None:
    """ONCE: the next look at the high-water mark tells, before the mark is written over."""
    run = Run(bench, "c", highwater_every_s=5.0)
    bench.make_child = _endless
    run.start()
    bench.run(60, until=lambda: read_highwater(bench.store, bench.sweep.sweep_id) is not None)
    mark = read_highwater(bench.store, bench.sweep.sweep_id)
    assert mark is not None
    write_highwater(bench.store, bench.sweep.sweep_id, {**mark, "newest_lease": "f" * 32})
    bench.run(20)
    assert len([note for note in run.sink.notes if "behind" in note]) == 1
    assert (read_highwater(bench.store, bench.sweep.sweep_id) or {})["newest_lease"] != "f" * 32


def _endless(process: Process, start: Start, restore_fd: int | None) -> SimChild:
    return SimChild(process, start, restore_fd, steps=10_000, padding=0, crash=None)
