"""Which numbers a search reports as its best."""

from __future__ import annotations

from typing import Any

from sweeper.ids import TrialId
from sweeper.model.search import Constraint, Direction, Numbered, Proposal, SearchSpec
from sweeper.model.states import TrialState
from sweeper.model.tagged import to_tagged
from sweeper.model.trial import Report
from sweeper.search.best import best_numbers

MINIMIZE, MAXIMIZE = Direction.MINIMIZE, Direction.MAXIMIZE


def rows(*results: Any, state: TrialState = TrialState.COMPLETED) -> list[Numbered]:
    return [
        Numbered(
            number=number,
            proposal=Proposal(),
            trial_id=TrialId(number),
            first_number=number,
            state=state,
            result=to_tagged(result),
            reports=(Report(step=0, at_step=0, value=0.0, metrics={"cost": float(number)}),),
        )
        for number, result in enumerate(results)
    ]


def test_one_objective_has_one_best_number_the_earliest_of_equals() -> None:
    assert best_numbers(rows(3.0, 1, 2.0, 1.0), SearchSpec()) == [1]
    assert best_numbers(rows(3.0, 1, 2.0, 3.0), SearchSpec(directions=(MAXIMIZE,))) == [0]
    assert best_numbers(rows(3.0, float("-inf")), SearchSpec()) == [1]


def test_only_completed_trials_with_an_objective_count() -> None:
    assert best_numbers(rows(1.0, state=TrialState.PRUNED), SearchSpec()) == []
    assert best_numbers(rows(None, "1", float("nan"), 5.0), SearchSpec()) == [3]
    alias = Numbered(
        number=1, proposal=Proposal(), trial_id=TrialId(0), first_number=0, state=TrialState.COMPLETED, result=1.0
    )
    assert best_numbers([*rows(1.0), alias], SearchSpec()) == [0]


def test_several_objectives_have_the_numbers_that_no_other_one_beats() -> None:
    found = rows((1.0, 1.0), (2.0, 3.0), (2.0, 2.0), (0.5, 0.0), (1.0, 1.0), (3.0, 3.0))
    assert best_numbers(found, SearchSpec(directions=(MINIMIZE, MAXIMIZE))) == [0, 1, 3, 4]


def test_with_constraints_only_trials_that_keep_them_count() -> None:
    spec = SearchSpec(constraints=(Constraint(metric="cost", at_least=1.0, at_most=2.0),))
    assert best_numbers(rows(1.0, 3.0, 2.0, 0.0), spec) == [2]
    assert best_numbers(rows(1.0), spec) == []
