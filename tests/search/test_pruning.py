"""Pruners are asked once about each report; what they write is what rows keep."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from optuna.trial import TrialState as EntryState

from sweeper.ids import TrialId
from sweeper.model.search import Decision, DecisionKind, Numbered, Proposal, SearchSpec
from sweeper.model.states import TrialState
from sweeper.model.trial import Json, Report
from sweeper.search.optimizer import Optimizer
from tests.search.sequences import MIXED, Search, falling

PARAMS = {"x": 1.0, "rate": 0.1, "width": 16, "kind": "b"}


def reports(*values: float) -> tuple[Report, ...]:
    return tuple(Report(step=step, at_step=step, value=value) for step, value in enumerate(values))


def row(number: int, state: TrialState = TrialState.RUNNING, *values: float, first: int | None = None) -> Numbered:
    return Numbered(
        number=number,
        proposal=Proposal(params=PARAMS),
        trial_id=TrialId(number if first is None else first),
        first_number=number if first is None else first,
        state=state,
        result=values[-1] if values else None,
        reports=reports(*values),
    )


def optimizer_with(pruner: dict[str, Json], *rows: Numbered, **changes: Any) -> Optimizer:
    optimizer = Optimizer(SearchSpec(space=MIXED, pruner=pruner, **changes), seed=1)
    optimizer.load(rows, {})
    return optimizer


HALVING: dict[str, Json] = {"_target_": "successive_halving", "min_resource": 1, "reduction_factor": 2}


def test_asking_changes_nothing_and_marking_does() -> None:
    """A decision that was never recorded leaves no trace."""
    optimizer = optimizer_with(HALVING, row(0), row(1))
    first = optimizer.prune(0, reports(5.0, 1.0), finished_to=None)
    assert not first.prune
    assert first.attrs == {"completed_rung_0": 1.0}
    assert not optimizer.prune(1, reports(5.0, 2.0), finished_to=None).prune
    optimizer.mark(0, first.attrs)
    assert optimizer._known.entries[0].system_attrs == {"completed_rung_0": 1.0}
    assert optimizer.prune(1, reports(5.0, 2.0), finished_to=None).prune


def test_marks_come_back_with_the_decisions_of_the_trials_lineage() -> None:
    """What was decided before a trial's history was cut is void."""
    optimizer = optimizer_with(HALVING, row(0), row(1))

    def decision(lineage: int) -> Decision:
        return Decision(
            trial_id=TrialId(0),
            number=0,
            lineage=lineage,
            kind=DecisionKind.REPORT,
            step=1,
            action="go_on",
            facts={"completed_rung_0": 1.0},
        )

    optimizer.load([row(0), row(1)], {}, [decision(0)])
    assert optimizer.prune(1, reports(5.0, 2.0), finished_to=None).prune
    optimizer.load([row(0), row(1)], {}, [decision(1)])
    assert not optimizer.prune(1, reports(5.0, 2.0), finished_to=None).prune


def test_marks_stay_when_a_trial_ends_pauses_or_goes_on() -> None:
    optimizer = optimizer_with(HALVING, row(0), row(1))
    optimizer.mark(0, {"completed_rung_0": 1.0})
    for state in (TrialState.PAUSED, TrialState.RUNNING, TrialState.COMPLETED, TrialState.FAILED):
        optimizer.tell(row(0, state, 5.0, 1.0))
        assert optimizer.prune(1, reports(5.0, 2.0), finished_to=None).prune


def test_marks_are_void_once_a_trials_history_is_cut() -> None:
    optimizer = optimizer_with(HALVING, row(0), row(1))
    optimizer.mark(0, {"completed_rung_0": 1.0})
    optimizer.tell(replace(row(0), lineage=1))
    assert not optimizer.prune(1, reports(5.0, 2.0), finished_to=None).prune


def test_a_deterministic_decision_sees_only_trials_up_to_the_number_it_may_rest_on() -> None:
    """SAME for W workers: what has finished early is not seen."""
    good = [row(number, TrialState.COMPLETED, 1.0, 0.5) for number in range(4)]
    median: dict[str, Json] = {"_target_": "median", "n_startup_trials": 1}
    optimizer = optimizer_with(median, *good, row(4))
    assert not optimizer.prune(4, reports(3.0), finished_to=-1).prune
    assert not optimizer.prune(4, reports(3.0), finished_to=-2).prune  # the first numbers of three workers and more
    assert optimizer.prune(4, reports(3.0), finished_to=0).prune
    assert optimizer.prune(4, reports(3.0), finished_to=None).prune
    hidden = optimizer_with(median, row(0, TrialState.COMPLETED, 9.0), *good[1:], row(4))
    assert not hidden.prune(4, reports(3.0), finished_to=0).prune


def test_a_trial_counts_once_however_many_numbers_point_at_it() -> None:
    bad = row(0, TrialState.COMPLETED, 9.0)
    good = [row(number, TrialState.COMPLETED, 1.0) for number in (1, 2)]
    aliases = [row(number, TrialState.COMPLETED, 9.0, first=0) for number in (3, 4, 5, 6)]
    median: dict[str, Json] = {"_target_": "median", "n_startup_trials": 1}
    optimizer = optimizer_with(median, bad, *good, *aliases, row(7))
    assert optimizer.prune(7, reports(3.0), finished_to=None).prune


def test_auto_resources_are_resolved_by_the_first_trial_to_complete_and_kept() -> None:
    """Not deterministic: which trial that is depends on timing, so it is remembered in the sweep's row."""
    auto: dict[str, Json] = {"_target_": "hyperband", "reduction_factor": 2}
    optimizer = optimizer_with(auto, row(0), row(1, TrialState.COMPLETED, *[1.0] * 8), row(2), deterministic=False)
    made = optimizer.prune(2, reports(1.0), finished_to=None)
    assert made.study_attrs == {"auto:last_step": 7}
    optimizer.mark(2, made.attrs, made.study_attrs)
    optimizer.tell(row(0, TrialState.COMPLETED, *[1.0] * 50))
    assert optimizer.prune(2, reports(1.0, 1.0), finished_to=None).study_attrs == {}
    assert optimizer._known.storage.study_attrs == {"auto:last_step": 7}


def test_a_deterministic_search_needs_no_memory_for_auto_resources() -> None:
    auto: dict[str, Json] = {"_target_": "successive_halving"}
    optimizer = optimizer_with(auto, row(0, TrialState.COMPLETED, *[1.0] * 400), row(1), row(2))
    unresolved = optimizer.prune(1, reports(*[1.0] * 4), finished_to=-1)
    assert (unresolved.prune, unresolved.attrs, unresolved.study_attrs) == (False, {}, {})
    assert not optimizer.prune(2, reports(*[1.0] * 3), finished_to=0).attrs  # a hundredth of 399 steps is 3
    assert optimizer.prune(2, reports(*[1.0] * 4), finished_to=0).attrs == {"completed_rung_0": 1.0}


def test_a_nested_auto_resource_is_resolved_too() -> None:
    nested: dict[str, Json] = {
        "_target_": "patient",
        "patience": 0,
        "wrapped_pruner": {"_target_": "successive_halving"},
    }
    optimizer = optimizer_with(nested, row(0, TrialState.COMPLETED, *[1.0] * 400), row(1))
    assert not optimizer.prune(1, reports(0.1, 0.2, 0.3), finished_to=0).attrs
    assert optimizer.prune(1, reports(0.1, 0.2, 0.3, 0.4), finished_to=0).attrs == {"completed_rung_0": 0.4}


def test_not_a_number_is_the_worst_value() -> None:
    optimizer = optimizer_with(HALVING, row(0))
    assert optimizer.prune(0, reports(1.0, math.nan), finished_to=None).prune


def test_without_a_pruner_nothing_is_pruned_and_no_reports_are_needed() -> None:
    optimizer = Optimizer(SearchSpec(space=MIXED), seed=1)
    assert not optimizer.wants_reports
    optimizer.load([row(0)], {})
    assert not optimizer.prune(0, reports(math.inf), finished_to=None).prune
    assert optimizer_with(HALVING).wants_reports


def test_hyperband_gives_samplers_its_brackets() -> None:
    """It is the study's pruner while a sampler is asked; brackets are a checksum of the study's name and the number."""
    node: dict[str, Json] = {"_target_": "hyperband", "max_resource": 27}
    search = Search(lambda: Optimizer(SearchSpec(space=MIXED, pruner=node), seed=3))
    search.run_with_reports(5, falling, 3)
    optimizer = search.optimizer
    optimizer.suggest(5)
    study = optimizer._known.study
    brackets = [study.pruner._get_bracket_id(study, entry) for entry in optimizer._known.entries]  # type: ignore[attr-defined]
    assert study.study_name == "sweeper-3"
    assert brackets == [3, 1, 0, 2, 1, 1]


def test_a_pruner_from_elsewhere_keeps_its_own_attributes_across_restarts() -> None:
    node: dict[str, Json] = {"_target_": "tests.search.custom_samplers.CountingPruner", "limit": 3}
    spec = SearchSpec(space=MIXED, pruner=node)
    search = Search(lambda: Optimizer(spec, seed=1))
    search.run_with_reports(2, falling, 9)
    assert {len(found) for found in search.ledger.reports.values()} == {3}
    assert [json.loads(text)["facts"] for text in search.ledger.decisions][:3] == [
        {"counting:asked": count} for count in (1, 2, 3)
    ]
    again = search.ledger.load(search.make())
    states = [entry.state for entry in again._known.entries]
    assert states == [EntryState.PRUNED] * 2
    assert again._known.entries[0].system_attrs == {"counting:asked": 3}
