"""Whole searches: coordinator and local workers in virtual time, from the first proposal to the last sign-off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from sweeper.coordinator.parts import SearchLimits, SearchPlan
from sweeper.ids import AskerId, LeaseId, WorkerId
from sweeper.ledger.commands import cancel_trials
from sweeper.ledger.leases import lease_trial, register_worker
from sweeper.ledger.proposals import history
from sweeper.ledger.reads import requested_counts
from sweeper.ledger.requests import register_asker, retire_asker
from sweeper.ledger.sweeps import find_sweep
from sweeper.model.messages import Start
from sweeper.model.search import SearchSpec
from sweeper.model.states import AttemptOutcome, SweepState, TrialState
from sweeper.model.trial import Json, WorkerRecord
from sweeper.model.waits import Notice
from tests.coordinator.runs import Run
from tests.coordinator.searches import TPE, Search, compose, search
from tests.simulation.child import SimChild, expected_value
from tests.simulation.world import Process
from tests.worker.bench import STEPS, Bench

pytestmark = pytest.mark.slow

COMPLETED, PENDING = TrialState.COMPLETED, TrialState.PENDING
Begin = Callable[..., tuple[Bench, Run]]


@pytest.fixture
def begin(ledger_url: str) -> Iterator[Begin]:
    """A bench with a search, and a command for it that has not started."""
    benches: list[Bench] = []

    def begin_(limits: SearchLimits | None = None, *, workers: int = 1, **spec: Any) -> tuple[Bench, Run]:
        wanted = search(**spec)
        benches.append(Bench(ledger_url, trials_=0, search=wanted))
        return benches[-1], Run(benches[-1], search=plan(wanted, limits), workers=workers)

    yield begin_
    for bench in benches:
        bench.database.close()


def plan(spec: SearchSpec, limits: SearchLimits | None = None) -> SearchPlan:
    return SearchPlan(spec=spec, compose=compose, limits=limits or SearchLimits())


def _states(bench: Bench) -> list[TrialState | None]:
    return [row.state for row in history(bench.database, bench.sweep.sweep_id)]


def _sequence(bench: Bench) -> list[Any]:
    return [row.proposal.params for row in history(bench.database, bench.sweep.sweep_id)]


def _state(bench: Bench) -> SweepState:
    sweep = find_sweep(bench.database, "bench")
    assert sweep is not None
    return sweep.state


def test_a_search_runs_to_its_end_and_its_worker_stays_until_then(begin: Begin) -> None:
    """One worker for all of a sequential search: between two proposals there is nothing to lease, but more to come."""
    bench, run = begin(n_trials=5, sampler=TPE)
    run.start()
    bench.run(900, until=lambda: not run.process.alive)
    end = run.process.result
    assert (end.kind, end.reason, end.withdrawn) == ("done", "all of its 5 trials are done", True)
    assert end.counts == {COMPLETED: 5}
    assert len(run.handles) == 1, "no worker left and was replaced"
    assert _state(bench) is SweepState.FINISHED
    assert requested_counts(bench.database, bench.sweep.sweep_id, bench.asker.asker_id) == {}
    told = [event.number for event in run.sink.events if event.state is COMPLETED]
    assert told == list(range(5))
    assert run.sink.last is not None
    assert run.sink.last.search is not None
    assert (run.sink.last.search.proposed, run.sink.last.search.n_trials) == (5, 5)
    assert run.sink.last.search.best is not None


def test_what_is_over_starts_no_worker(begin: Begin) -> None:
    """OP-05: the same command again."""
    bench, run = begin(n_trials=2)
    run.start()
    bench.run(600, until=lambda: not run.process.alive)
    again = Run(bench, "e", search=plan(search(n_trials=2))).start()
    bench.run(5)
    assert again.process.result.kind == "done"
    assert again.handles == []
    assert _states(bench) == [COMPLETED] * 2


def test_several_workers_are_kept_busy_without_a_barrier(begin: Begin) -> None:
    bench, run = begin(n_trials=12, workers=3, deterministic=False)
    run.start()
    bench.run(60, until=lambda: len(bench.starts) >= 3)
    assert len({start.number for start in bench.starts}) == 3
    bench.run(1200, until=lambda: not run.process.alive)
    assert run.process.result.counts == {COMPLETED: 12}
    assert len(run.handles) == 3
    assert sorted(start.number for start in bench.starts) == list(range(12)), "each was trained once"


def test_when_the_time_is_up_trials_save_and_wait_for_the_next_run(begin: Begin) -> None:
    """Early end by time: no eviction and no failure, and the sweep goes on with the same command."""
    bench, run = begin(SearchLimits(timeout_s=30.0), n_trials=50, workers=2, deterministic=False)
    bench.make_child = _long
    run.start()
    bench.run(120, until=lambda: not run.process.alive)
    end = run.process.result
    assert (end.kind, end.reason) == ("stopped", "the time is up: 30 s")
    assert end.withdrawn
    assert set(_states(bench)) == {PENDING}
    assert _state(bench) is SweepState.ACTIVE
    assert {attempt.outcome for attempt in bench.attempts(0)} == {AttemptOutcome.EVICTED}


def test_a_search_that_is_told_to_leave_goes_on_where_it_was(begin: Begin, ledger_url: str) -> None:
    """SAME: the sequence is that of a search that nobody interrupted."""
    bench, run = begin(n_trials=4, sampler=TPE)
    run.start()
    bench.run(300, until=lambda: len(bench.children) == 3 and bench.children[-1].step >= 3)
    run.process.notify(Notice(source="signal", reason="SIGTERM"))
    bench.run(60)
    assert run.process.result.kind == "evicted"
    assert _states(bench) == [COMPLETED, COMPLETED, PENDING]
    again = Run(bench, "e", search=plan(search(n_trials=4, sampler=TPE)), workers=1).start()
    bench.run(600, until=lambda: not again.process.alive)
    assert again.process.result.counts == {COMPLETED: 4}
    assert len(bench.attempts(2)) == 2
    straight = Search(ledger_url, search(n_trials=4, sampler=TPE), name="straight", seed=bench.sweep.seed)
    straight.start().run(_value)
    assert straight.sequence() == _sequence(bench)
    straight.db.close()


def test_dead_trials_are_pending_again_before_anything_is_proposed(begin: Begin) -> None:
    """OP-11: their holders are known dead on this host at once, whatever their leases say; they are resumed first."""
    bench, run = begin(n_trials=4, deterministic=False, workers=2)
    run.start()
    bench.run(30, until=lambda: len(_states(bench)) >= 2)
    run.process.die("killed")
    for handle in run.handles:
        handle.process.die("killed")
    record = WorkerRecord(
        worker_id=WorkerId("f" * 32), host="h", boot_id="h", lock_path="gone", lock_inode="0:0", pid=1, pool="bench"
    )
    register_worker(bench.database, record, sweep_id=bench.sweep.sweep_id)
    proposed = len(_states(bench))
    dead = lease_trial(
        bench.database, sweep_id=bench.sweep.sweep_id, worker_id=record.worker_id, lease_id=LeaseId("f" * 32),
        lease_s=6000.0, heartbeat_s=15.0, pool="bench", host="h", threads=1,
    )  # fmt: skip
    assert dead is not None
    again = Run(bench, "e", search=plan(search(n_trials=4, deterministic=False)), workers=2)
    again.dead_holders.add("gone")
    events: list[tuple[int, TrialState]] = []
    propose = again.parts.search._proposer.propose  # type: ignore[union-attr]

    def watched(fence: int, **limits: Any) -> Any:
        events.append((len(_states(bench)), bench.trial(dead.number).state))
        return propose(fence, **limits)

    again.parts.search._proposer.propose = watched  # type: ignore[union-attr]
    again.start()
    bench.run(900, until=lambda: not again.process.alive)
    assert again.process.result.counts == {COMPLETED: 4}
    assert events
    assert events[0][0] == proposed
    assert events[0][1] is not TrialState.RUNNING


def test_the_successor_of_a_dead_command_proposes_at_once(begin: Begin) -> None:
    """RESUME: a command on the same host is known dead by its lock, and so its lease of the sweep is over."""
    bench, _ = begin(n_trials=2)
    run = Run(bench, asker=bench.asker, search=plan(search(n_trials=2)), workers=0).start()
    bench.run(5, until=lambda: len(_states(bench)) == 1)
    run.process.die("killed")
    cancel_trials(bench.database, bench.sweep.sweep_id, [0])
    other = replace(bench.asker, asker_id=AskerId("d" * 32))
    register_asker(bench.database, bench.sweep.sweep_id, other)
    again = Run(bench, "d", asker=other, search=plan(search(n_trials=2)), workers=0)
    again.dead_askers.add(bench.asker.asker_id)
    again.start()
    bench.run(2)
    assert _states(bench) == [TrialState.CANCELLED, PENDING]


def test_two_commands_share_one_search(begin: Begin) -> None:
    """RECONCILE: one proposes, both have workers; when the first is killed the second takes over."""
    bench, first = begin(n_trials=6, deterministic=False)
    other = replace(bench.asker, asker_id=AskerId("d" * 32))
    register_asker(bench.database, bench.sweep.sweep_id, other)
    first.start()
    second = Run(bench, "d", asker=other, search=plan(search(n_trials=6, deterministic=False)), workers=1).start()
    bench.run(60, until=lambda: len({start.number for start in bench.starts}) >= 3)
    first.process.die("killed")
    for handle in first.handles:
        handle.process.die("killed")
    bench.run(1500, until=lambda: not second.process.alive)
    assert second.process.result.kind == "done"
    assert second.process.result.counts == {COMPLETED: 6}
    completed = [bench.attempts(number)[-1].outcome for number in range(6)]
    assert completed == [AttemptOutcome.COMPLETED] * 6


def test_a_command_taken_for_dead_asks_again_for_what_is_open(begin: Begin) -> None:
    """Others drop the request of a command that they heard nothing of; its trials must not wait for ever."""
    bench, run = begin(n_trials=3)
    run.start()
    bench.run(60, until=lambda: len(bench.children) == 1)
    retire_asker(bench.database, bench.asker.asker_id)
    bench.run(900, until=lambda: not run.process.alive)
    assert run.process.result.counts == {COMPLETED: 3}


def test_an_outage_of_the_ledger_is_waited_out(begin: Begin) -> None:
    """BLIND: the study may be ahead or behind by then; what follows is the same."""
    bench, run = begin(n_trials=3, sampler=TPE)
    run.start()
    bench.run(60, until=lambda: len(bench.children) == 1)
    bench.weather.database_away_until_s = bench.world.now_s + 100
    bench.run(900, until=lambda: not run.process.alive)
    assert run.process.result.counts == {COMPLETED: 3}


def _value(params: Mapping[str, Json]) -> Json:
    """What the simulated training of these parameters returns."""
    return expected_value(compose(0, params).config_hash, STEPS)


def _long(process: Process, start: Start, restore_fd: int | None) -> SimChild:
    return SimChild(process, start, restore_fd, steps=10_000, padding=0, crash=None)


def test_a_ledger_put_back_under_a_running_search_trains_nothing_twice(begin: Begin) -> None:
    """ONCE, RECONCILE: the next high-water mark tells; what had finished is taken from the store, and so is believed
    by the search only once it is there again."""
    bench, run = begin(n_trials=4, sampler=TPE)
    run.settings = replace(run.settings, highwater_every_s=5.0)
    run.parts = replace(run.parts, settings=run.settings)
    bench.make_child = lambda process, start, fd: SimChild(
        process, start, fd, steps=STEPS if start.number < 2 else 60, padding=0, crash=None
    )
    run.start()
    bench.run(300, until=lambda: _states(bench)[:2] == [COMPLETED] * 2)
    bench.run(10)
    values = [row.result for row in history(bench.database, bench.sweep.sweep_id)[:2]]
    bench.forget()
    bench.run(1500, until=lambda: not run.process.alive)
    assert run.process.result.counts == {COMPLETED: 4}
    assert [row.result for row in history(bench.database, bench.sweep.sweep_id)[:2]] == values
    assert sorted(start.number for start in bench.starts if start.number < 2) == [0, 1], "each was trained once"


def test_who_wants_more_leads_as_soon_as_the_leader_is_done(begin: Begin) -> None:
    """The leader withdraws in good order; the other command must not wait until its next try for the lease is due."""
    bench, _ = begin(n_trials=2)
    first = Run(bench, asker=bench.asker, search=plan(search(n_trials=2)), workers=1).start()
    bench.run(60, until=lambda: len(bench.starts) == 2)
    other = replace(bench.asker, asker_id=AskerId("d" * 32))
    register_asker(bench.database, bench.sweep.sweep_id, other)
    second = Run(bench, "d", asker=other, search=plan(search(n_trials=4)), workers=1).start()
    bench.run(900, until=lambda: not first.process.alive)
    done_s = bench.world.now_s
    bench.run(900, until=lambda: len(_states(bench)) > 2)
    assert bench.world.now_s - done_s < 1.0
    bench.run(900, until=lambda: not second.process.alive)
    assert second.process.result.counts == {COMPLETED: 4}


def test_a_notice_at_the_end_does_not_wait_for_the_study(begin: Begin) -> None:
    """A study that is slow to take the last trials would hold up a command that was told to leave for 20 s."""

    class Slow:
        futures = ()
        lag = 1

        def turn(self, fence: int | None) -> None:
            return

        def finish(self, fence: int | None) -> bool:
            return False

        def close(self) -> None:
            return

    bench, run = begin(n_trials=1)
    run.parts = replace(run.parts, mirror=Slow())
    run.start()
    bench.run(60, until=lambda: bool(run.handles) and not run.handles[-1].process.alive)
    bench.run(2)
    assert run.process.alive, "it waits for the study"
    told_s = bench.world.now_s
    run.process.notify(Notice(source="signal", reason="SIGINT"))
    bench.run(60, until=lambda: not run.process.alive)
    assert bench.world.now_s - told_s < 2.0
    assert run.process.result.kind == "done"
