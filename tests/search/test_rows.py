"""How rows become entries of the study: exactly one each, aliases as their trial, paused trials as pruned."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from optuna.trial import TrialState as EntryState

from sweeper.ids import TrialId
from sweeper.model.search import Constraint, Direction, Numbered, Proposal, SearchSpec
from sweeper.model.space import Choices, FloatRange, IntRange, Space
from sweeper.model.states import TrialState
from sweeper.model.tagged import to_tagged
from sweeper.model.trial import Json, Report
from sweeper.search.entries import Entry
from sweeper.search.optimizer import Optimizer
from tests.search.sequences import MIXED, Ledger, Search, bowl

PARAMS = {"x": 1.0, "rate": 0.1, "width": 16, "kind": "b"}


def numbered(number: int, state: TrialState | None = TrialState.RUNNING, **changes: Any) -> Numbered:
    standing = {"trial_id": TrialId(number), "first_number": number, "proposal": Proposal(params=PARAMS)}
    if state is None:
        standing |= {"trial_id": None, "first_number": None}
    return Numbered(number=number, state=state, **{**standing, **changes})


def entries(*rows: Numbered, spec: SearchSpec | None = None) -> list[Entry]:
    """The study's own entries, which samplers see."""
    optimizer = Optimizer(spec or SearchSpec(space=MIXED), seed=1)
    optimizer.load(rows, {})
    return list(optimizer._known.entries)


def report(step: int, value: float, **metrics: float) -> Report:
    return Report(step=step, at_step=step, value=value, metrics=metrics)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (TrialState.PENDING, EntryState.RUNNING),
        (TrialState.RUNNING, EntryState.RUNNING),
        (TrialState.PAUSED, EntryState.PRUNED),
        (TrialState.PRUNED, EntryState.PRUNED),
        (TrialState.FAILED, EntryState.FAIL),
        (TrialState.CANCELLED, EntryState.FAIL),
        (None, EntryState.FAIL),
    ],
)
def test_a_state_of_the_ledger_has_one_state_in_the_study(state: TrialState | None, expected: EntryState) -> None:
    (entry,) = entries(numbered(0, state))
    assert entry.state is expected
    assert entry.number == 0
    assert entry.params == {"x": 1.0, "rate": 0.1, "width": 16, "kind": '"b"'}


@pytest.mark.parametrize(
    ("result", "values"), [(1.5, [1.5]), (2, [2.0]), (True, [1.0]), ({"$float": "-inf"}, [-math.inf]), ([3.0], [3.0])]
)
def test_a_completed_trial_has_its_objective(result: Any, values: list[float]) -> None:
    (entry,) = entries(numbered(0, TrialState.COMPLETED, result=result))
    assert (entry.state, entry.values) == (EntryState.COMPLETE, values)


@pytest.mark.parametrize("result", [None, "0.5", {"$float": "nan"}, [1.0, 2.0], {"a": 1.0}])
def test_a_completed_trial_without_an_objective_is_a_failed_entry(result: Any) -> None:
    (entry,) = entries(numbered(0, TrialState.COMPLETED, result=result))
    assert (entry.state, entry.values) == (EntryState.FAIL, None)


def test_a_number_added_before_its_commit_that_proves_an_alias_is_the_entry_that_its_row_makes() -> None:
    """Numbers that are committed together are added as new trials; only the ledger knows which configs it has."""
    first = numbered(0, TrialState.COMPLETED, result=1.5)
    alias = numbered(1, TrialState.COMPLETED, result=1.5, trial_id=TrialId(0), first_number=0)
    optimizer = Optimizer(SearchSpec(space=MIXED), seed=1)
    optimizer.load([first], {})
    optimizer.add(numbered(1, TrialState.PENDING, trial_id=TrialId(-1)))
    optimizer.correct(alias)
    expected = [(entry.state, entry.values, entry.params) for entry in entries(first, alias)]
    assert [(entry.state, entry.values, entry.params) for entry in optimizer._known.entries] == expected
    optimizer.tell(numbered(0, TrialState.FAILED))
    assert [entry.state for entry in optimizer._known.entries] == [EntryState.FAIL] * 2, "it follows its trial"


def test_several_objectives_come_in_the_order_of_the_directions() -> None:
    spec = SearchSpec(space=MIXED, directions=(Direction.MINIMIZE, Direction.MAXIMIZE))
    (entry,) = entries(numbered(0, TrialState.COMPLETED, result=to_tagged((1, 2.5))), spec=spec)
    assert entry.values == [1.0, 2.5]


def test_a_paused_trial_shows_its_reports_and_runs_again_when_it_is_promoted() -> None:
    optimizer = Optimizer(SearchSpec(space=MIXED), seed=1)
    running = numbered(0)
    optimizer.load([running], {})
    optimizer.tell(replace(running, state=TrialState.PAUSED, reports=(report(1, 3.0), report(3, 2.0))))
    (entry,) = optimizer._known.entries
    assert (entry.state, entry.intermediate_values, entry.values) == (EntryState.PRUNED, {1: 3.0, 3: 2.0}, [2.0])
    optimizer.tell(running)
    (entry,) = optimizer._known.entries
    assert (entry.state, entry.intermediate_values, entry.values) == (EntryState.RUNNING, {}, None)
    optimizer.tell(replace(running, state=TrialState.COMPLETED, result=1.0))
    (entry,) = optimizer._known.entries
    assert (entry.state, entry.values) == (EntryState.COMPLETE, [1.0])


def test_an_alias_stands_as_its_trial_does_in_the_study_and_follows_it() -> None:
    """Its own row may be ahead of what a deterministic search is to know by now (SAME)."""
    optimizer = Optimizer(SearchSpec(space=MIXED), seed=1)
    first = numbered(0)
    alias = numbered(1, TrialState.COMPLETED, first_number=0, trial_id=TrialId(0), result=1.0)
    optimizer.load([first, alias], {})
    assert [entry.state for entry in optimizer._known.entries] == [EntryState.RUNNING] * 2
    optimizer.tell(replace(first, state=TrialState.COMPLETED, result=1.0))
    assert [entry.values for entry in optimizer._known.entries] == [[1.0], [1.0]]
    third = numbered(2, TrialState.RUNNING, first_number=0, trial_id=TrialId(0))
    optimizer.add(third)
    optimizer.tell(third)
    assert [entry.state for entry in optimizer._known.entries] == [EntryState.COMPLETE] * 3


def test_history_is_given_with_the_current_distributions_and_misfits_are_failed_entries() -> None:
    """OP-06: choices reordered, a range moved; otherwise a sampler would find no joint space any more."""
    search = Search(lambda: Optimizer(SearchSpec(space=MIXED), seed=1))
    search.run(20)
    moved: Space = {**MIXED, "x": FloatRange(low=0.0, high=9.0), "kind": Choices(values=("c", "b", "a"))}
    optimizer = search.ledger.load(Optimizer(SearchSpec(space=moved), seed=1))
    found = list(optimizer._known.entries)
    for entry, text in zip(found, search.ledger.proposals, strict=True):
        params = json.loads(text)["p"]
        if params["x"] < 0:
            assert (entry.state, entry.params) == (EntryState.FAIL, {})
        else:
            assert entry.params == {**params, "kind": json.dumps(params["kind"])}
            assert entry.distributions["kind"].choices == ('"c"', '"b"', '"a"')  # type: ignore[attr-defined]
    assert {entry.state for entry in found} == {EntryState.FAIL, EntryState.COMPLETE}
    assert len(optimizer._known.tally.intersection(include_pruned=False)) == 4


def test_a_value_of_another_type_does_not_fit() -> None:
    """TRUTH: `1`, `1.0`, `true` and `"1"` are different choices; a boolean is no number."""
    space: Space = {"n": IntRange(low=0, high=3), "c": Choices(values=(1, "1"))}
    fitting = [{"n": 1, "c": 1}, {"n": 1, "c": "1"}]
    others = [{"n": 1.5, "c": 1}, {"n": True, "c": 1}, {"n": 1, "c": 1.0}, {"n": 1, "c": True}, {"n": 7, "c": 1}]
    rows = [numbered(at, proposal=Proposal(params=params)) for at, params in enumerate([*fitting, *others])]  # type: ignore[arg-type]
    states = [entry.state for entry in entries(*rows, spec=SearchSpec(space=space))]
    assert states == [EntryState.RUNNING] * 2 + [EntryState.FAIL] * 5


def test_equal_and_unhashable_choices_are_all_drawn_and_come_back_by_type_and_value() -> None:
    """Natively only the first of equal choices is ever drawn."""
    values = (1, 1.0, True, "1", [1], {"a": [1.0]}, None)
    space: Space = {
        "c": Choices(values=tuple(to_tagged(value) for value in values)),
        "x": FloatRange(low=0.0, high=1.0),
    }
    for sampler in ("random", "nsgaii", "qmc"):
        search = Search(lambda node=sampler: Optimizer(SearchSpec(space=space, sampler={"_target_": node}), seed=1))  # type: ignore[misc]
        search.run(40, lambda params: params["x"])
        drawn = [json.loads(text)["p"]["c"] for text in search.ledger.proposals]
        assert {json.dumps(value) for value in drawn} == {json.dumps(value) for value in values}


def test_a_stepped_float_is_the_same_number_whichever_sampler_chose_it() -> None:
    """0.1 · 3 is 0.3: otherwise two samplers would have two configs for one step."""
    space: Space = {"drop": FloatRange(low=0.0, high=1.0, step=0.1), "x": FloatRange(low=0.0, high=1.0)}
    expected = {0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0}
    for sampler in ("random", "tpe", "cmaes", "qmc"):
        search = Search(lambda node=sampler: Optimizer(SearchSpec(space=space, sampler={"_target_": node}), seed=1))  # type: ignore[misc]
        search.run(20, lambda params: params["x"])
        assert {json.loads(text)["p"]["drop"] for text in search.ledger.proposals} <= expected


def test_constraints_are_read_from_the_last_reports_metrics() -> None:
    constraints = (Constraint(metric="latency", at_most=20.0), Constraint(metric="accuracy", at_least=0.9))
    spec = SearchSpec(space=MIXED, constraints=constraints)
    assert Optimizer(spec, seed=1).wants_reports
    reports = (report(0, 1.0, latency=30.0, accuracy=0.1), report(1, 1.0, latency=15.0, accuracy=0.95))
    kept, missing, not_a_number = entries(
        numbered(0, TrialState.COMPLETED, result=1.0, reports=reports),
        numbered(1, TrialState.COMPLETED, result=1.0, reports=(report(0, 1.0, latency=25.0),)),
        numbered(2, TrialState.PRUNED, reports=(report(0, 1.0, latency=math.nan, accuracy=1.0),)),
        spec=spec,
    )
    assert list(kept.constraints.values()) == pytest.approx([-5.0, -0.05])
    assert list(missing.constraints.values()) == [5.0, math.inf]
    assert list(not_a_number.constraints.values()) == [math.inf, pytest.approx(-0.1)]


@pytest.mark.parametrize(
    ("sampler", "changes", "count"),
    [
        ("tpe", {}, 40),
        ("nsgaii", {"population_size": 8}, 50),
        pytest.param("gp", {"n_startup_trials": 6}, 12, marks=pytest.mark.slow),
    ],
)
def test_a_sampler_learns_to_keep_a_constraint(sampler: str, changes: dict[str, Json], count: int) -> None:
    spec = SearchSpec(
        space={"x": FloatRange(low=-5.0, high=5.0), "y": FloatRange(low=-5.0, high=5.0)},
        sampler={"_target_": sampler, **changes},
        constraints=(Constraint(metric="cost", at_most=0.0),),
    )
    ledger = Ledger()
    optimizer = ledger.load(Optimizer(spec, seed=1))
    kept = []
    for number in range(count):
        row = ledger.commit(optimizer.suggest(number))
        optimizer.add(row)
        x, y = float(str(row.proposal.params["x"])), float(str(row.proposal.params["y"]))
        metrics = {} if number == 3 else {"cost": x + 1.0}
        ledger.reports[number] = [Report(step=0, at_step=0, value=0.0, metrics=metrics)]
        optimizer.tell(ledger.finish(number, bowl({"x": x, "y": y})))
        kept.append(x < -0.85)
    assert sum(kept[-6:]) > sum(kept[:6])
    assert optimizer.notices == ()


def test_what_is_out_of_step_is_a_bug_and_says_so() -> None:
    optimizer = Optimizer(SearchSpec(space=MIXED), seed=1)
    assert not optimizer.loaded
    with pytest.raises(RuntimeError, match="not loaded"):
        optimizer.suggest(0)
    optimizer.load([], {})
    with pytest.raises(ValueError, match="number 1 is not next"):
        optimizer.suggest(1)
    suggestion = optimizer.suggest(0)
    with pytest.raises(ValueError, match="unconfirmed"):
        optimizer.suggest(1)
    with pytest.raises(ValueError, match="0 was expected"):
        optimizer.add(numbered(1))
    optimizer.add(numbered(0, proposal=suggestion.proposal))
    with pytest.raises(ValueError, match="1 was expected"):
        optimizer.load([numbered(0), numbered(2)], {})
    assert not optimizer.loaded
