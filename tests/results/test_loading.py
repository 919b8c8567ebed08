"""`sweeper.load` on a real ledger."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import sweeper
from sweeper.errors import UserError
from sweeper.ids import CoordinatorId, SweepId, TrialNumber
from sweeper.launch.search_end import closing_lines
from sweeper.ledger.database import Database
from sweeper.ledger.proposals import add_numbers
from sweeper.ledger.requests import register_asker, request_trials
from sweeper.ledger.results import commit_result, record_reports
from sweeper.ledger.sweeps import acquire_coordinator, open_sweep
from sweeper.model.search import Constraint, Direction, NewNumber, Proposal, SearchSpec, Suggestion
from sweeper.model.space import Choices, FloatRange
from sweeper.model.states import AttemptOutcome, SweepState, TrialState
from sweeper.model.trial import Json, Report
from sweeper.results.files import csv_text
from sweeper.results.loading import read_results
from tests.ledger.world import LEASE_S, START, Clock, World, asker, hex_id, new_trial, spec

SEARCH = SearchSpec(
    directions=(Direction.MAXIMIZE,),
    n_trials=6,
    space={"lr": FloatRange(low=0, high=1), "kind": Choices(values=("a", None))},
    constraints=(Constraint(metric="ms", at_most=20),),
)


@pytest.fixture
def world(ledger_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    monkeypatch.setenv("SWEEPER_DATABASE_URL", ledger_url)
    monkeypatch.setenv("SWEEPER_HOME", str(tmp_path))
    clock = Clock()
    with Database(ledger_url, "test", clock) as database:
        yield World.build(database, clock)


@pytest.fixture
def search(world: World) -> World:
    """See `searched`."""
    return searched(world, SEARCH)


def searched(world: World, search: SearchSpec) -> World:
    """Numbers: 0 completed, 1 an alias of 0, 2 refused, 3 pruned, 4 completed but infeasible, 5 pending."""
    sweep = open_sweep(world.db, spec("search", search=search.as_json()), new_id=SweepId(hex_id()))
    record = asker()
    register_asker(world.db, sweep.sweep_id, record)
    found = World(world.db, world.clock, sweep, record.asker_id)
    proposed: list[tuple[str | None, dict[str, Json]]] = [
        ("a", {"lr": 0.5, "kind": "a"}),
        ("a", {"lr": 0.5, "kind": "a"}),
        (None, {"lr": 0.7, "kind": "a"}),
        ("b", {"lr": 0.25, "kind": None}),
        ("c", {"lr": 0.75}),
        ("d", {"lr": 1.0, "kind": "a"}),
    ]
    propose(found, proposed)
    finish(found, TrialState.COMPLETED, result=0.5, reports=[(1, 0.4, {"ms": 30.0}), (2, 0.5, {"ms": 10.0})])
    finish(found, TrialState.PRUNED, result=0.125, reports=[(1, 0.125, {})])
    finish(found, TrialState.COMPLETED, result={"$float": "inf"}, reports=[(1, math.nan, {"ms": 21.0})])
    return found


def propose(world: World, proposed: list[tuple[str | None, dict[str, Json]]]) -> None:
    leader = CoordinatorId(hex_id())
    fence = acquire_coordinator(world.db, world.sweep_id, leader, lease_s=60)
    assert fence is not None
    for number, (name, params) in enumerate(proposed):
        add_numbers(
            world.db,
            world.sweep_id,
            coordinator_id=leader,
            fence=fence,
            asker_id=world.asker_id,
            new=[
                NewNumber(
                    number=TrialNumber(number),
                    suggestion=Suggestion(proposal=Proposal(params=params)),
                    trial=None if name is None else new_trial(name, epochs=3, **params),
                    reason="does not compose" if name is None else None,
                )
            ],
        )


def finish(
    world: World, state: TrialState, *, result: Json, reports: list[tuple[int, float, Mapping[str, float]]]
) -> None:
    lease = world.lease().lease
    made = [Report(step=step, at_step=step, value=value, metrics=metrics) for step, value, metrics in reports]
    record_reports(world.db, lease, made, lease_s=LEASE_S)
    world.clock.advance(10)
    commit_result(
        world.db,
        lease,
        state=state,
        outcome=AttemptOutcome(state.value),
        result=result,
        reason=state.value,
        outcome_key="key",
        outcome_hash="0" * 64,
        outcome_stored=True,
        last_step=2,
    )


def test_a_search_is_loaded_with_what_was_proposed_and_what_came_of_it(search: World) -> None:
    result = sweeper.load("search")
    assert (result.name, result.state, result.directions) == ("search", SweepState.ACTIVE, (Direction.MAXIMIZE,))
    assert [trial.number for trial in result.trials] == [0, 3, 4, 5]
    first, pruned, infeasible, pending = result.trials
    assert first.params == {"lr": 0.5, "kind": "a"}
    assert first.overrides == ("x=a",)
    assert (first.values, first.value, first.returned) == ((0.5,), 0.5, 0.5)
    assert [(report.step, report.value) for report in first.reports] == [(1, 0.4), (2, 0.5)]
    assert first.aliases == (1,)
    assert (first.attempts, first.step, first.error) == (1, 2, None)
    assert first.started_at == START
    assert first.finished_at is not None
    assert (first.finished_at - START).total_seconds() == 10
    assert (pruned.state, pruned.values, pruned.params) == (TrialState.PRUNED, (0.125,), {"lr": 0.25, "kind": None})
    assert (infeasible.value, infeasible.feasible) == (math.inf, False)
    assert infeasible.params == {"lr": 0.75}
    assert (pending.state, pending.values, pending.attempts, pending.started_at) == (TrialState.PENDING, None, 0, None)
    assert result.best == first
    assert result.unreported == ()


def test_a_metric_that_a_constraint_bounds_and_nobody_reports_is_told(world: World, tmp_path: Path) -> None:
    """CLEAR: else no trial keeps it, and nobody sees why."""
    searched(world, replace(SEARCH, constraints=(*SEARCH.constraints, Constraint(metric="mb", at_least=1))))
    result = sweeper.load("search")
    assert result.unreported == ("mb",)
    assert result.best is None
    (line,) = [line for line in closing_lines(result, "it is over", tmp_path) if "mb" in line]
    assert line == "no trial reported 'mb', which a constraint bounds: run.report(value, mb=…)"


def test_the_best_trial_is_told_in_the_words_of_the_table(search: World, tmp_path: Path) -> None:
    result = sweeper.load("search")
    lines = list(closing_lines(result, "it is over", tmp_path))
    assert lines[1] == "best: 0.5 by trial 0 with lr=0.5, kind=a"
    null = replace(result.trials[0], params={"dropout": None, "flag": False, "word": "null"})
    lines = list(closing_lines(replace(result, trials=(null,)), "it is over", tmp_path))
    assert lines[1] == 'best: 0.5 by trial 0 with dropout=null, flag=false, word="null"'


def test_the_best_of_several_objectives_are_named(search: World, tmp_path: Path) -> None:
    result = sweeper.load("search")

    def told(*values: tuple[float, float]) -> str:
        trials = tuple(replace(result.trials[0], number=number, values=pair) for number, pair in enumerate(values))
        two = replace(result, directions=(Direction.MINIMIZE, Direction.MINIMIZE), trials=trials)
        return list(closing_lines(two, "it is over", tmp_path))[1].partition(";")[0]

    assert told((1.0, 1.0), (2.0, 2.0)) == "best: trial 0"
    assert told((1.0, 2.0), (2.0, 1.0), (3.0, 3.0)) == "best: trials 0, 1"
    assert (
        told(*((float(x), 11.0 - x) for x in range(12))) == f"best: trials {', '.join(map(str, range(10)))} and 2 more"
    )


def test_without_reports_the_constraints_are_still_known(search: World) -> None:
    result = sweeper.load("search", reports=False)
    assert all(trial.reports == () for trial in result.trials)
    assert [trial.feasible for trial in result.completed] == [True, False]


def test_the_frame_has_optunas_columns_and_keeps_types(search: World) -> None:
    frame = sweeper.load("search").frame()
    assert list(frame.columns) == [
        "number",
        "state",
        "value",
        "params_lr",
        "params_kind",
        "attempts",
        "step",
        "config_hash",
        "overrides",
        "error",
        "started_at",
        "finished_at",
    ]
    assert list(frame["number"]) == [0, 3, 4, 5]
    assert frame["value"].dtype == "float64"
    assert frame["params_lr"].dtype == "float64"
    assert frame["params_kind"][0] == "a"
    assert (frame["finished_at"] - frame["started_at"])[0].total_seconds() == 10
    assert frame["value"].max() == math.inf


def test_a_frame_without_pandas_says_what_to_install(search: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError) as refused:
        sweeper.load("search").frame()
    assert "sweeper[frames]" in refused.value.remedy


def test_mixed_types_stay_what_they_were_in_a_frame(search: World) -> None:
    """TRUTH: 1 beside None or "1" does not become 1.0."""
    world = World.build(search.db, search.clock, name="mixed")
    asked = [new_trial(str(at), x=value) for at, value in enumerate((1, None, "1", 1.0, [1], {"$int": str(2**60)}))]
    request_trials(world.db, world.sweep_id, world.asker_id, asked)
    cells = list(sweeper.load("mixed").frame()["params_x"])
    assert [repr(cell) for cell in cells] == ["1", "None", "'1'", "1.0", "[1]", str(2**60)]


def test_a_plain_grid_is_loaded_with_whatever_its_trials_returned(world: World) -> None:
    world.add(4)
    for value in (0.5, {"$tuple": [1, 2.5]}, "text", None):
        finish(world, TrialState.COMPLETED, result=value, reports=[])
    result = sweeper.load("digits")
    assert [trial.values for trial in result.trials] == [(0.5,), (1.0, 2.5), None, None]
    assert [trial.returned for trial in result.trials] == [0.5, (1, 2.5), "text", None]
    assert result.directions == ()
    assert csv_text(result).splitlines()[0].startswith("number,state,values_0,values_1,attempts")


def test_a_failed_trial_says_why(world: World) -> None:
    world.add(1)
    commit_result(
        world.db,
        world.lease().lease,
        state=TrialState.FAILED,
        outcome=AttemptOutcome.INVALID,
        result=None,
        reason="invalid",
        error="the function returned NaN",
        outcome_key="key",
        outcome_hash="0" * 64,
        outcome_stored=True,
    )
    (failed,) = sweeper.load("digits").trials
    assert failed.error == "the function returned NaN"
    assert failed.values is None


def test_an_unknown_name_is_refused_with_those_that_there_are(search: World) -> None:
    with pytest.raises(UserError, match="searhc") as refused:
        sweeper.load("searhc")
    assert "search" in refused.value.remedy


def test_the_ledger_can_be_named(search: World, ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWEEPER_DATABASE_URL")
    assert sweeper.load("search", database=ledger_url).name == "search"
    with pytest.raises(UserError, match="no ledger yet"):
        sweeper.load("search")


def test_loading_does_not_import_the_heavy_things(search: World) -> None:
    """A notebook that looks at results needs neither Optuna nor Hydra nor torch."""
    code = (
        "import sweeper, sys, json; result = sweeper.load('search'); heavy = ('optuna', 'hydra', 'torch', 'pandas'); "
        "print(json.dumps([len(result.trials), [name for name in heavy if name in sys.modules]]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [4, []]


def test_reading_from_an_open_ledger_gives_the_same(search: World) -> None:
    assert repr(read_results(search.db, search.sweep)) == repr(sweeper.load("search"))
