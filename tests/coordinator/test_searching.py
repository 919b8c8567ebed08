"""A search turn by turn: what is proposed, when, and when it is over."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from sweeper.coordinator.parts import SearchLimits
from sweeper.errors import CoordinatorLost, LedgerUnavailable, UserError
from sweeper.ledger.commands import retry_trials
from sweeper.ledger.highwater import note_rollback
from sweeper.ledger.requests import retire_asker
from sweeper.ledger.search_progress import search_progress
from sweeper.ledger.statements import Statements
from sweeper.ledger.sweeps import find_sweep
from sweeper.model.plan import SearchEnd
from sweeper.model.search import Constraint, Direction
from sweeper.model.space import Choices, FloatRange, IntRange, Space
from sweeper.model.states import ObjectiveFault, SweepState, TrialState
from sweeper.model.trial import Grant, Json, NewTrial
from sweeper.search.optimizer import Optimizer
from tests.coordinator.searches import GRID, THREE, TPE, Search, compose, refusing, search, squares

COMPLETED, FAILED, PENDING, CANCELLED = (
    TrialState.COMPLETED, TrialState.FAILED, TrialState.PENDING, TrialState.CANCELLED,
)  # fmt: skip

COARSE: Space = {"x": IntRange(low=0, high=9)}


def test_a_sequential_search_proposes_one_trial_at_a_time(begin: Any) -> None:
    """SAME: what is proposed knows all that came before, so nothing is proposed ahead."""
    run = begin()
    command = run.start()
    for number in range(4):
        for _ in range(3):
            command.turn()
            assert run.states() == [COMPLETED] * number + [PENDING]
        run.train()
    assert command.turn().end == SearchEnd(kind="done", reason="all of its 4 trials are done")


def test_the_same_command_again_trains_nothing_and_a_larger_total_only_what_is_new(begin: Any) -> None:
    """OP-05: `n_trials` is a total; numbers go on where they were."""
    run = begin()
    run.start().run()
    first = run.sequence()
    run.kill()
    again = run.start().run()
    assert again.counts == {COMPLETED: 4}
    assert run.sequence() == first
    run.kill()
    run.start(spec=search(n_trials=8)).run()
    assert run.sequence()[:4] == first
    assert len({str(params) for params in run.sequence()}) == 8
    assert [len(run.world.attempts(number)) for number in range(8)] == [1] * 8
    run.kill()
    fewer = run.start(spec=search(n_trials=4)).run()
    assert (fewer.counts, fewer.end) == (
        {COMPLETED: 8}, SearchEnd(kind="done", reason="n_trials=4, and it has 8 trials already")
    )  # fmt: skip


@pytest.mark.parametrize("sampler", [TPE])
def test_a_search_killed_at_every_step_proposes_what_an_undisturbed_one_does(
    begin: Any, sampler: Mapping[str, Any]
) -> None:
    """SAME: a new process each turn, with a study built from rows."""
    straight = begin(name="straight", n_trials=12, sampler=sampler)
    straight.start().run()
    killed = begin(name="killed", n_trials=12, sampler=sampler)
    while killed.start().turn().end is None or PENDING in killed.states():
        killed.kill()
        if killed.states()[-1] is PENDING and len(killed.states()) % 3:
            killed.start().turn()
            killed.kill()
        killed.train()
    assert killed.sequence() == straight.sequence()
    assert [row.result for row in killed.rows()] == [row.result for row in straight.rows()]


def test_replies_that_are_lost_change_nothing(begin: Any) -> None:
    """SAME: whatever may be ahead of the ledger is dropped and built again; each number is given once."""
    straight = begin(name="straight", n_trials=10, sampler=TPE)
    straight.start().run()
    shaky = begin(name="shaky", n_trials=10, sampler=TPE)
    shaky.db = Shaky(shaky.db)
    command, standing = shaky.start(), None
    while standing is None or standing.end is None or PENDING in standing.counts:
        try:
            shaky.db.on = True
            standing = command.turn()
        except LedgerUnavailable:
            continue
        finally:
            shaky.db.on = False
        shaky.train()
    assert shaky.db.lost > 10
    assert shaky.sequence() == straight.sequence()


@pytest.mark.slow
def test_with_several_workers_a_deterministic_search_does_not_see_who_was_quicker(begin: Any) -> None:
    """SAME to W workers: proposal n sees as finished exactly the trials up to n - W."""
    sequences = []
    for seed in range(3):
        run = begin(name=f"order {seed}", n_trials=14, sampler=TPE, deterministic=True, lag=3, workers=3)
        draw, held = random.Random(seed), []
        command = run.start()
        while command.turn().end is None or PENDING in run.states() or held:
            if draw.random() < 0.2:
                run.kill()
                command = run.start()
            if draw.random() < 0.6 and (grant := run.world.try_lease()) is not None:
                held.append(grant)
            elif held:
                grant = held.pop(draw.randrange(len(held)))
                run.world.complete(grant.lease, squares(grant.params))
            assert len(held) <= 3
        sequences.append(run.sequence())
    assert sequences[0] == sequences[1] == sequences[2]


def test_without_that_demand_it_proposes_just_enough_for_idle_workers(begin: Any) -> None:
    """No worker starves, and little is proposed that does not know what is running now."""
    run = begin(n_trials=30, deterministic=False, workers=3)
    command = run.start()
    command.turn()
    assert run.states() == [PENDING] * 3
    grants = [run.world.lease() for _ in range(3)]
    command.turn()
    assert len(run.states()) == 3, "nobody is idle, and nothing has finished yet"
    for grant in grants[:2]:
        run.world.complete(grant.lease, 1.0)
    command.turn()
    pending = run.states().count(PENDING)
    assert pending == 4, "two for those who are idle, and two for who will be, as often as trials end lately"


def test_several_idle_workers_are_given_their_trials_in_one_commit(begin: Any) -> None:
    run = begin(n_trials=30, deterministic=False, workers=5)
    command = run.start()
    command.turn()
    assert run.states() == [PENDING] * 5
    assert run.world.sql("SELECT count(DISTINCT n.xmin::text) AS commits FROM sweeper.numbers n")[0].commits == 1


def test_what_is_committed_together_leaves_the_study_that_its_rows_make(begin: Any) -> None:
    """Some parameters compose to a config that there is, which only the ledger can tell; some to none."""
    run = begin(n_trials=12, deterministic=False, workers=4, space=COARSE, compose=halves)
    command = run.start()
    for _ in range(4):
        command.turn()
        run.train()
    command.turn()
    warm = command.turns._feed.optimizer._known
    cold = Optimizer(run.spec, seed=run.seed)
    cold.load(run.rows(), {})
    assert any(row.is_alias for row in run.rows())
    shown = [[(entry.state, entry.values, entry.params) for entry in one.entries] for one in (warm, cold._known)]
    assert shown[0] == shown[1]
    assert warm.aliases == cold._known.aliases


def halves(number: int, params: Mapping[str, Json]) -> NewTrial:
    """Two values of `x` make one config; the smallest none."""
    x = params["x"]
    assert isinstance(x, int)
    if x == 0:
        raise UserError("0 cannot be halved")
    return compose(number, {"x": x // 2})


def test_one_worker_is_never_proposed_ahead_for(begin: Any) -> None:
    run = begin(n_trials=9, deterministic=False, workers=1)
    command = run.start()
    for _ in range(3):
        command.turn()
        assert run.states().count(PENDING) == 1
        run.train()


def test_a_space_of_three_ends_with_three_trained(begin: Any) -> None:
    """Finite spaces: `n_trials=10` of 3 configs; numbers of repeats count, and the end says why."""
    run = begin(space=THREE, n_trials=10)
    command = run.start()
    standing = command.run(lambda params: float(len(str(params))))
    assert standing.counts == {COMPLETED: 3}
    assert standing.end == SearchEnd(kind="done", reason="every config of the space was proposed")
    assert standing.progress.repeats == standing.progress.proposed - 3
    command.turns.finish()
    assert _sweep(run).state is SweepState.FINISHED
    run.kill()
    assert run.start().turn().counts == {COMPLETED: 3}


def test_a_search_that_is_not_over_is_not_finished(begin: Any) -> None:
    """Workers leave a finished sweep; between two proposals all trials are final and the search is not over."""
    run = begin()
    command = run.start()
    command.turn()
    run.train()
    command.turns.finish()
    assert _sweep(run).state is SweepState.ACTIVE


def test_a_grid_with_a_failing_cell_and_two_enqueued_ones_is_done_in_six(begin: Any) -> None:
    """OP-12: three workers, queued cells are not drawn again, a cell that fails is no reason for a seventh number."""
    space = {"a": Choices(values=(1, 2, 3)), "b": Choices(values=("u", "v"))}
    run = begin(
        space=space, n_trials=20, sampler=GRID, deterministic=False, workers=3,
        enqueue=[{"a": 3, "b": "v"}, {"a": 1, "b": "v"}],
    )  # fmt: skip
    command = run.start()
    held: list[Grant] = []
    evicted = 0
    for _ in range(40):
        standing = command.turn()
        while (grant := run.world.try_lease()) is not None:
            held.append(grant)
        if not held:
            break
        grant = held.pop(0)
        if grant.params == {"a": 2, "b": "u"} and evicted < 2:
            evicted += 1
            run.world.release(grant.lease)
        else:
            run.world.complete(grant.lease, 1.0)
    assert evicted == 2
    assert standing.counts == {COMPLETED: 6}
    assert standing.end is not None
    assert run.sequence()[:2] == [{"a": 3, "b": "v"}, {"a": 1, "b": "v"}]
    cells = [(params["a"], params["b"]) for params in run.sequence()]
    assert sorted(cells) == [(a, b) for a in (1, 2, 3) for b in ("u", "v")]


def test_points_of_the_config_are_tried_first_and_once_however_often_it_starts(begin: Any) -> None:
    """OP-13: one training per distinct config; near-doubles count as what they are."""
    space = {"x": FloatRange(low=0.0, high=2.0)}
    points = [{"x": 1.0}, {"x": 1.000000001}, {"x": 1}]
    run = begin(space=space, n_trials=6, enqueue=points)
    for _ in range(3):
        run.start().turn()
        run.kill()
    run.start().run()
    assert [params["x"] for params in run.sequence()[:2]] == [1.0, 1.000000001]
    assert [row.proposal.enqueued is not None for row in run.rows()] == [True, True, False, False, False, False]
    assert len(run.sequence()) == 6


def test_a_partial_point_is_completed_before_it_is_compared(begin: Any) -> None:
    """OP-13: what is left out is chosen; the number's config is whole."""
    run = begin(enqueue=[{"x": 1.5}])
    run.start().turn()
    (params,) = run.sequence()
    assert params["x"] == 1.5
    assert isinstance(params["y"], float)


def test_a_refused_proposal_keeps_its_number_with_the_reason(begin: Any) -> None:
    """The study has an entry for each number; what cannot be composed is told and not proposed as a trial."""
    run = begin(n_trials=6, compose=refusing(lambda params: float(params["x"]) < 0))
    standing = run.start().run()
    refused = [row for row in run.rows() if row.state is None]
    assert refused
    assert all(float(row.proposal.params["x"]) < 0 for row in refused)  # type: ignore[arg-type]
    assert standing.progress.proposed == 6
    assert standing.counts[COMPLETED] == 6 - len(refused)
    assert len([note for note in run.notes if "is refused" in note]) == len(refused)


def test_a_value_that_is_good_enough_ends_the_search_and_cancels_what_is_open(begin: Any) -> None:
    """Early end by target; the same command again is over at once, one that wants more goes on."""
    run = begin(
        n_trials=30, deterministic=False, workers=3, directions=(Direction.MAXIMIZE,), limits=SearchLimits(value=0.9)
    )
    command = run.start()
    command.turn()
    grants = [run.world.lease(), run.world.lease()]
    run.world.complete(grants[0].lease, 0.5)
    assert command.turn().end is None
    run.world.complete(grants[1].lease, 0.95)
    standing = command.turn()
    assert standing.end == SearchEnd(
        kind="done", reason=f"trial {grants[1].number} reached 0.95, and at least 0.9 was wanted"
    )
    assert set(run.states()) == {COMPLETED, CANCELLED}
    assert not any(not state.final for state in standing.counts)
    command.turns.finish()
    assert _sweep(run).state is SweepState.FINISHED
    run.kill()
    before = len(run.rows())
    assert run.start().turn().end is not None
    assert len(run.rows()) == before
    run.kill()
    assert run.start(limits=SearchLimits(value=0.99)).turn().end is None
    assert len(run.rows()) > before
    assert _sweep(run).state is SweepState.ACTIVE


def test_with_several_workers_a_deterministic_search_ends_the_same_whoever_reaches_the_value_first(begin: Any) -> None:
    """SAME: how many numbers there are, and how each ended, does not depend on timing."""
    ends = []
    for seed in range(3):
        run = begin(name=f"order {seed}", n_trials=20, deterministic=True, lag=3, workers=3)
        draw, held = random.Random(seed), []
        command = run.start(limits=SearchLimits(value=2.0))
        while (standing := command.turn()).end is None or any(not state.final for state in standing.counts):
            if draw.random() < 0.6 and (grant := run.world.try_lease()) is not None:
                held.append(grant)
            elif held:
                grant = held.pop(draw.randrange(len(held)))
                run.world.complete(grant.lease, squares(grant.params))
        ends.append((run.sequence(), run.states(), standing.end))
    assert ends[0] == ends[1] == ends[2]
    assert 1 < len(ends[0][0]) < 20


def test_a_trial_that_breaks_a_constraint_is_not_the_best_and_ends_nothing(begin: Any) -> None:
    """Its value is what the function returned; whether it counts is for its last report to say."""
    run = begin(
        n_trials=3, limits=SearchLimits(value=0.5), constraints=(Constraint(metric="latency_ms", at_most=20.0),)
    )
    command = run.start()
    for latency_ms, value in [(35.0, 0.1), (12.0, 0.8)]:
        assert command.turn().end is None
        grant = run.world.lease()
        run.report(grant, 1, value, latency_ms=latency_ms)
        run.world.complete(grant.lease, value)
    assert command.turn().progress.best == (1, 0.8)
    assert search_progress(run.db, run.world.sweep_id) == replace(command.turn().progress, mirror_lag=2)


def test_when_the_time_is_up_the_run_stops_and_its_trials_wait_for_the_next(begin: Any) -> None:
    """Early end by time is an end of this run alone."""
    run = begin(limits=SearchLimits(timeout_s=100.0))
    command = run.start()
    assert command.turn().end is None
    run.clock.advance(101)
    assert command.turn().end == SearchEnd(kind="stopped", reason="the time is up: 100 s")
    command.turns.finish()
    assert run.states() == [PENDING]
    assert _sweep(run).state is SweepState.ACTIVE
    run.kill()
    assert run.start(limits=SearchLimits()).run().counts == {COMPLETED: 4}


def test_more_failures_than_allowed_stop_the_run(begin: Any) -> None:
    run = begin(n_trials=10, limits=SearchLimits(max_failure_rate=0.2))
    command = run.start()
    for failures in range(3):
        assert command.turn().end is None, f"after {failures}"
        run.fail(run.world.lease())
    end = command.turn().end
    assert end == SearchEnd(kind="failed_fast", reason="3 of 10 trials failed, more than max_failure_rate=0.2 allows")


def test_none_from_the_first_trial_to_finish_stops_the_search_at_once(begin: Any) -> None:
    """OP-07: not after the last; a later None fails that trial only, and a corrected script goes on."""
    run = begin(n_trials=10)
    command = run.start()
    command.turn()
    run.fail(run.world.lease(), ObjectiveFault.NONE)
    end = command.turn().end
    assert end is not None
    assert end.kind == "failed_fast"
    assert "return" in end.reason
    run.kill()
    command = run.start()
    assert command.turn().end is None
    run.train()
    command.turn()
    run.fail(run.world.lease(), ObjectiveFault.NONE)
    assert command.turn().end is None
    assert run.states() == [FAILED, COMPLETED, FAILED, PENDING]


def test_a_second_coordinator_proposes_nothing_until_it_leads_and_knows_the_end(begin: Any) -> None:
    """RECONCILE: two at once are wasteful, never wrong."""
    run = begin(n_trials=6, sampler=TPE)
    first = run.start()
    second = run.start()
    assert (first.fence, second.fence) == (1, None)
    for number in range(3):
        standing = second.turn()
        assert standing.end is None
        assert len(run.rows()) == number
        first.turn()
        assert second.turn().counts[PENDING] == 1
        run.train()
    first.leave()
    second.lead()
    assert second.run().counts == {COMPLETED: 6}
    straight = begin(name="straight", n_trials=6, sampler=TPE)
    straight.start().run()
    assert run.sequence() == straight.sequence()
    assert first.turns.turn(None).end == SearchEnd(kind="done", reason="all of its 6 trials are done")


def test_a_coordinator_that_was_replaced_unknowingly_changes_nothing(begin: Any) -> None:
    """FENCE: it slept past its lease; its study is dropped, and its choice is refused."""
    run = begin(n_trials=6)
    first = run.start()
    first.turn()
    run.train()
    run.clock.advance(60)
    second = run.start()
    assert second.fence is not None
    second.turn()
    assert first.turn().counts == {COMPLETED: 1, PENDING: 1}, "there was nothing to choose"
    run.train()
    with pytest.raises(CoordinatorLost):
        first.turn()
    assert run.states() == [COMPLETED] * 2
    assert first.turns.turn(None).counts == {COMPLETED: 2}


def test_a_failed_trial_that_is_retried_is_open_again_for_the_search(begin: Any) -> None:
    """RECONCILE: a warm study knows by the sweep's revision that its past has changed."""
    run = begin(n_trials=2)
    command = run.start()
    command.turn()
    run.fail(run.world.lease())
    command.turn()
    run.train()
    assert command.turn().counts == {COMPLETED: 1, FAILED: 1}
    retry_trials(run.db, run.world.sweep_id, [0], from_zero=False)
    standing = command.turn()
    assert standing.counts == {COMPLETED: 1, PENDING: 1}
    run.train()
    assert command.turn().counts == {COMPLETED: 2}


def test_what_an_earlier_command_left_open_is_asked_for_by_the_next(begin: Any) -> None:
    """Requests: workers take only what somebody alive asks for."""
    run = begin()
    run.start().turn()
    run.kill()
    retire_asker(run.db, run.world.asker_id)
    assert run.world.try_lease() is None
    run.start().turn()
    assert run.world.try_lease() is not None


class Shaky:
    """A connection on which replies get lost; what was asked for is done all the same."""

    def __init__(self, database: Statements) -> None:
        self._database = database
        self._random = random.Random(7)
        self.on = False
        self.lost = 0

    @property
    def now(self) -> Any:
        return self._database.now

    def run(self, statement: sa.Executable, parameters: Mapping[str, Any] = {}) -> Sequence[sa.Row[Any]]:
        rows = self._database.run(statement, parameters)
        if self.on and self._random.random() < 0.2:
            self.lost += 1
            raise LedgerUnavailable("the reply was lost")
        return rows

    def close(self) -> None:
        self._database.close()  # type: ignore[attr-defined]


def _sweep(run: Search) -> Any:
    return find_sweep(run.db, run.name)


def test_a_ledger_that_was_put_back_is_noticed_by_whoever_searches(begin: Any) -> None:
    """Another command, or a worker, may be the one that notes it; what is remembered of lost numbers is void."""
    run = begin(n_trials=8, deterministic=False, workers=3)
    command = run.start()
    command.turn()
    assert run.states() == [PENDING] * 3
    with psycopg.connect(run.url, autocommit=True) as session:
        session.execute("DELETE FROM sweeper.numbers WHERE number = 2")
        session.execute("DELETE FROM sweeper.trials WHERE number = 2")
        session.execute("UPDATE sweeper.coordinators SET next_number = 2")
    note_rollback(run.db, run.world.sweep_id, seen_fence=5, next_number=3)
    command.turn()
    assert run.states() == [PENDING, PENDING, None, PENDING]
