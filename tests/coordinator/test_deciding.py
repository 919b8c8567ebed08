"""Decisions on reports: each made once, in order, and the same whenever the coordinator was killed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from sweeper.ledger.decisions import decisions
from sweeper.ledger.reads import reports_of
from sweeper.model.search import Decision, DecisionKind
from sweeper.model.space import FloatRange
from sweeper.model.states import TrialState
from tests.coordinator.searches import TPE, Epochs, Search

MEDIAN = {"_target_": "optuna.pruners.MedianPruner", "n_startup_trials": 1, "n_warmup_steps": 0}
HALVING = {"_target_": "optuna.pruners.SuccessiveHalvingPruner", "min_resource": 1, "reduction_factor": 2}
ASHA = {"kind": "asha", "mode": "promote", "min_resource": 1, "reduction_factor": 3, "max_resource": 9}
PBT = {"kind": "pbt", "interval": 2, "max_resource": 6, "quantile": 0.5}
Begin = Callable[..., Search]

COMPLETED, PRUNED = TrialState.COMPLETED, TrialState.PRUNED


def _made(run: Search) -> list[Decision]:
    return decisions(run.db, run.world.sweep_id, kinds=tuple(DecisionKind))


def _search(run: Search, *, epochs: int, kill_every: int | None = None) -> Epochs:
    """Search to the end; the command is killed at every so many turns."""
    worker, turns = Epochs(run, epochs=epochs), 0
    command = run.start()

    def turn() -> Any:
        nonlocal command, turns
        turns += 1
        if kill_every is not None and turns % kill_every == 0:
            run.kill()
            command = run.start()
        return command.turn()

    for _ in range(400):
        standing = turn()
        if worker.train(turn) is None and standing.end is not None and not _open(standing.counts):
            return worker
    raise AssertionError(f"not over: {run.states()}")


def _open(counts: Mapping[TrialState, int]) -> bool:
    return any(not state.final for state in counts)


def test_a_pruned_trials_history_ends_at_the_report_that_was_decided_on(begin: Begin) -> None:
    """Once per (trial, step), in step order, and each a row."""
    run = begin(n_trials=6, pruner=MEDIAN)
    _search(run, epochs=4)
    assert PRUNED in run.states()
    assert run.states()[0] is COMPLETED
    keys = [(made.number, made.step) for made in _made(run)]
    assert keys == sorted(set(keys)), "in order, none twice"
    for row in run.rows():
        assert row.trial_id is not None
        mine = [made for made in _made(run) if made.number == row.number]
        assert [report.step for report in reports_of(run.db, row.trial_id)] == [made.step for made in mine]
        assert [made.action for made in mine[:-1]] == ["go_on"] * (len(mine) - 1)
        assert (mine[-1].action == "prune") is (row.state is PRUNED)


@pytest.mark.slow
@pytest.mark.parametrize("kill_every", [1, 3])
@pytest.mark.parametrize(
    "settings",
    [
        {"pruner": MEDIAN, "sampler": TPE},
        {"pruner": HALVING},
        {"scheduler": ASHA, "n_trials": 9},
    ],
    ids=["median", "halving", "asha"],
)
def test_decisions_do_not_depend_on_restarts(begin: Begin, settings: dict[str, Any], kill_every: int) -> None:
    """SAME: rung marks and promotions come back from rows, and nothing is asked again."""
    settings = {"n_trials": 8, **settings}
    straight, killed = begin(name="straight", **settings), begin(name="killed", **settings)
    _search(straight, epochs=9)
    _search(killed, epochs=9, kill_every=kill_every)

    def key(made: Decision) -> tuple[Any, ...]:
        return made.number, made.lineage, made.kind, made.step, made.action, made.value, made.facts

    assert killed.sequence() == straight.sequence()
    assert [key(made) for made in _made(killed)] == [key(made) for made in _made(straight)]
    assert [(row.state, row.result) for row in killed.rows()] == [(row.state, row.result) for row in straight.rows()]


def test_promotion_brings_the_best_to_the_end_and_prunes_who_is_left(begin: Begin) -> None:
    """ASHA: 9 trials of 9 epochs cost a fraction of 81, and the one that gets there is the best of all."""
    run = begin(n_trials=9, scheduler=ASHA)
    worker = _search(run, epochs=9)
    states = run.states()
    assert states.count(COMPLETED) == 1
    assert states.count(PRUNED) == 8
    best = min(range(9), key=lambda number: sum(float(v) ** 2 for v in run.sequence()[number].values()))  # type: ignore[arg-type]
    assert states[best] is COMPLETED
    assert worker.trained <= 27
    reached = [max(made.step for made in _made(run) if made.number == number) for number in range(9)]
    assert sorted(reached) == [1] * 6 + [3] * 2 + [9]
    assert all(row.result is not None for row in run.rows()), "a left-over trial has its last rung's value"


@pytest.mark.slow
def test_a_population_exploits_its_better_members(begin: Begin) -> None:
    """PBT: an heir goes on from another trial's checkpoint with parameters near that one's, and keeps its number."""
    run = begin(n_trials=4, scheduler=PBT, space={"x": FloatRange(low=0.1, high=10.0)})
    _search(run, epochs=6)
    assert run.states() == [COMPLETED] * 4
    exploits = [made for made in _made(run) if made.kind is DecisionKind.EXPLOIT]
    assert exploits
    heirs = {made.number for made in exploits}
    assert all((row.lineage > 0) is (row.number in heirs) for row in run.rows())
    assert {row.number for row in run.rows()} == set(range(4))


def test_reports_of_trials_that_ended_between_two_turns_count_at_their_rungs(begin: Begin) -> None:
    """With many workers short trials end before anybody decides on their reports."""
    run = begin(n_trials=12, deterministic=False, workers=3, scheduler=ASHA)
    command = run.start()
    command.turn()
    grant = run.world.lease()
    for epoch in (1, 2, 3):
        run.report(grant, epoch, 5.0)
    run.world.complete(grant.lease, 5.0)
    command.turn()
    assert [(made.number, made.step) for made in _made(run)] == [(0, 1), (0, 2), (0, 3)]
