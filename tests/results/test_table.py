"""The last thing that a person sees of a search."""

import io

from rich.console import Console

from sweeper.model.search import Direction
from sweeper.model.states import TrialState
from sweeper.results.records import SweepResult
from sweeper.results.table import results_table
from tests.results.making import sweep, trial


def shown(result: SweepResult, *, limit: int = 10) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=120, highlight=False).print(results_table(result, limit=limit))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_the_best_come_first_and_the_rest_is_counted() -> None:
    rows = [trial(number, float(number % 7), params={"lr": number / 10, "kind": None}) for number in range(20)]
    lines = shown(sweep(*rows, trial(20, state=TrialState.FAILED), directions=(Direction.MAXIMIZE,)), limit=3)
    assert lines[0].split() == ["trial", "value", "lr", "kind", "step"]
    assert [line.split()[:4] for line in lines[1:4]] == [
        ["6", "6", "0.6", "null"],
        ["13", "6", "1.3", "null"],
        ["5", "5", "0.5", "null"],
    ]
    assert lines[4] == "3 of 21 trials (20 completed, 1 failed); `sweeper trials digits` lists all"


def test_of_several_objectives_the_front_comes_first() -> None:
    both = (Direction.MINIMIZE, Direction.MINIMIZE)
    lines = shown(sweep(trial(0, 3.0, 3.0), trial(1, 1.0, 2.0), trial(2, 2.0, 1.0), directions=both))
    assert lines[0].split() == ["trial", "value", "0", "value", "1", "step"]
    assert [line.split()[0] for line in lines[1:4]] == ["1", "2", "0"]


def test_without_a_completed_trial_it_says_so() -> None:
    lines = shown(sweep(trial(0, state=TrialState.FAILED)))
    assert "no trial completed (1 failed)" in lines
    assert lines[-1].startswith("0 of 1 trials (1 failed)")


def test_trials_that_break_a_constraint_come_last() -> None:
    lines = shown(sweep(trial(0, 0.1, feasible=False), trial(1, 0.9)))
    assert [line.split()[0] for line in lines[1:3]] == ["1", "0"]


def test_markup_in_a_value_is_text_and_a_long_one_is_shortened() -> None:
    lines = shown(sweep(trial(0, 0.1, params={"a": "[red]x[/red]", "b": "y" * 100})))
    assert "[red]x[/red]" in lines[1]
    assert "y" * 39 + "…" in lines[1]
    assert "y" * 40 not in lines[1]
