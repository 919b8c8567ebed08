"""How a trial is shown: pure rules, no database."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState as OptunaState

from sweeper.ids import ConfigHash, TrialId, TrialNumber
from sweeper.model.mirror import MirrorReport, MirrorTrial
from sweeper.model.search import Constraint, Direction, SearchSpec
from sweeper.model.space import Choices, FloatRange, IntRange
from sweeper.model.states import TrialState
from sweeper.model.tagged import to_tagged
from sweeper.search.mirror_entry import MOST_BYTES, StepTooLarge, bounded, divisor_for, entry_of
from sweeper.search.mirror_space import MirrorSpace

WHEN = datetime(2030, 1, 1, tzinfo=UTC)


def trial(**changes: Any) -> MirrorTrial:
    base = MirrorTrial(
        trial_id=TrialId(1),
        number=TrialNumber(7),
        config_hash=ConfigHash("ab" * 32),
        lineage=0,
        state=TrialState.COMPLETED,
        version=2,
        fence=1,
        attempts=1,
        evictions=0,
        crashes=0,
        step=0,
        reason="",
        error="",
        result=0.5,
        params={},
        extra={},
        started_at=WHEN,
        finished_at=WHEN,
    )
    return replace(base, **changes)


def reports(*values: float, stride: int = 1) -> tuple[MirrorReport, ...]:
    return tuple(MirrorReport(step=at * stride, value=value) for at, value in enumerate(values))


def shown(value: object, *choices: object) -> tuple[object, tuple[object, ...]]:
    """Give the value and the choices of a parameter as the study has them."""
    space = MirrorSpace({"c": Choices(values=tuple(to_tagged(choice) for choice in choices))}, {})
    found = space.shown("c", to_tagged(value), {})
    assert found is not None
    external, distribution = found
    assert isinstance(distribution, CategoricalDistribution)
    assert distribution.to_external_repr(distribution.to_internal_repr(external)) == external
    return external, tuple(distribution.choices)


def test_choices_that_optuna_can_hold_and_tell_apart_stay_as_they_are() -> None:
    assert shown(None, "relu", None, True, 3, 0.5) == (None, ("relu", None, True, 3, 0.5))


@pytest.mark.parametrize(
    ("value", "choices", "text"),
    [
        pytest.param([1, 2], ([1, 2], [3]), "[1,2]", id="lists"),
        pytest.param({"a": 1}, ({"a": 1}, {"b": 2}), '{"a":1}', id="mappings"),
        pytest.param(1.0, (1, 1.0, True), "1.0", id="equal under =="),
        pytest.param("1", (1, "1"), '"1"', id="alike as text"),
        pytest.param(math.nan, (0.0, math.nan), '{"$float":"nan"}', id="no JSON number"),
    ],
)
def test_if_one_choice_is_difficult_all_are_canonical_text(
    value: object, choices: tuple[object, ...], text: str
) -> None:
    """Otherwise the dashboard answers 500, or plots take different choices for one (DB-03, TRUTH)."""
    external, known = shown(value, *choices)
    assert external == text
    assert all(isinstance(choice, str) for choice in known)
    assert len(set(known)) == len(choices)


def test_the_order_of_choices_that_the_study_had_first_stays() -> None:
    """Reordered choices are the same search (OP-06), but Optuna refuses another list for the same name."""
    before = MirrorSpace({"c": Choices(values=("a", "b"))}, {})
    assert before.shown("c", "a", {}) is not None
    after = MirrorSpace({"c": Choices(values=("b", "a"))}, json.loads(json.dumps(before.as_json())))
    found = after.shown("c", "b", {})
    assert found == ("b", CategoricalDistribution(["a", "b"]))


def test_a_value_outside_the_present_range_widens_its_own_distribution() -> None:
    """A moved range is accepted (OP-06), and trials of the former range stay in the study."""
    space = MirrorSpace({"x": FloatRange(low=10.0, high=30.0), "n": IntRange(low=5, high=9, step=2)}, {})
    assert space.shown("x", 2.5, {}) == (2.5, FloatDistribution(2.5, 30.0))
    assert space.shown("n", 2, {}) == (2, IntDistribution(2, 8, step=2))
    assert space.shown("n", 6, {}) == (6, IntDistribution(5, 9, step=1))


def test_stepped_ranges_are_shown_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    space = MirrorSpace(
        {"x": FloatRange(low=0.0, high=1.0, step=0.3), "y": FloatRange(low=0.1, high=1.0, step=0.1)}, {}
    )
    assert space.shown("x", 0.6, {}) == (0.6, FloatDistribution(0.0, 0.9, step=0.3))
    assert space.shown("y", 0.3, {}) == (0.3, FloatDistribution(0.1, 1.0, step=0.1))
    assert space.shown("x", 0.61, {}) == (0.61, FloatDistribution(0.0, 1.0))
    assert not recwarn.list


@pytest.mark.parametrize(
    ("name", "value", "extra"),
    [
        ("c", "z", {}),
        ("c", "a", {"c": FloatRange(low=0.0, high=1.0)}),
        ("x", -1.0, {}),
        ("x", True, {}),
        ("unknown", 1, {}),
        ("n" * 600, 0.5, {"n" * 600: FloatRange(low=0.0, high=1.0)}),
    ],
)
def test_what_cannot_be_a_parameter_of_the_study_is_an_attribute(name: str, value: Any, extra: Any) -> None:
    space = MirrorSpace({"c": Choices(values=("a", "b")), "x": FloatRange(low=0.1, high=1.0, log=True)}, {})
    assert space.shown("c", "a", {}) is not None
    entry = entry_of(trial(params={name: value}, extra=extra), SearchSpec(), space)
    assert entry.params == {}
    assert str(entry.user_attrs["sweeper:other_params"]).startswith(f'{{"{name[:100]}')


def test_a_point_that_names_a_choice_by_its_text_means_the_choice() -> None:
    space = MirrorSpace({"c": Choices(values=([1, 2], "[1,2]")), "x": FloatRange(low=0.0, high=1.0)}, {})
    assert space.point({"c": "[1,2]", "x": 0.5}) == {"c": [1, 2], "x": 0.5}
    assert space.point({"c": '"[1,2]"'}) == {"c": "[1,2]"}
    assert space.point({"c": [1, 2], "y": {"$x": math.inf}}) == {
        "c": [1, 2],
        "y": {"$dict": [["$x", {"$float": "inf"}]]},
    }


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (TrialState.RUNNING, OptunaState.RUNNING),
        (TrialState.PENDING, OptunaState.RUNNING),
        (TrialState.PAUSED, OptunaState.RUNNING),
        (TrialState.COMPLETED, OptunaState.COMPLETE),
        (TrialState.PRUNED, OptunaState.PRUNED),
        (TrialState.FAILED, OptunaState.FAIL),
        (TrialState.CANCELLED, OptunaState.FAIL),
    ],
)
def test_an_entry_is_final_only_when_the_trial_is(state: TrialState, expected: OptunaState) -> None:
    entry = entry_of(trial(state=state), SearchSpec(), MirrorSpace({}, {}))
    assert entry.state is expected
    says_more = state in (TrialState.PENDING, TrialState.PAUSED, TrialState.CANCELLED)
    assert entry.user_attrs.get("sweeper:state") == (state.value if says_more else None)


@pytest.mark.parametrize(
    ("directions", "result", "state", "values"),
    [
        (1, 0.25, OptunaState.COMPLETE, (0.25,)),
        (1, True, OptunaState.COMPLETE, (1.0,)),
        (1, {"$float": "-inf"}, OptunaState.COMPLETE, (-math.inf,)),
        (2, [1, {"$float": "inf"}], OptunaState.COMPLETE, (1.0, math.inf)),
        (2, {"$tuple": [1, 2]}, OptunaState.COMPLETE, (1.0, 2.0)),
        (1, {"$float": "nan"}, OptunaState.FAIL, None),
        (1, "0.5", OptunaState.FAIL, None),
        (2, 0.5, OptunaState.FAIL, None),
    ],
)
def test_values_are_those_of_the_result(directions: int, result: Any, state: OptunaState, values: Any) -> None:
    """A NaN or a wrong number of values in a complete entry would break every page of the dashboard (DB-02)."""
    spec = SearchSpec(directions=(Direction.MINIMIZE,) * directions)
    entry = entry_of(trial(result=result), spec, MirrorSpace({}, {}))
    assert (entry.state, entry.values) == (state, values)


def test_a_pruned_trial_has_its_result_or_its_last_report_as_value() -> None:
    pruned = trial(state=TrialState.PRUNED, result=None, reports=reports(0.5, 0.4))
    assert entry_of(pruned, SearchSpec(), MirrorSpace({}, {})).values == (0.4,)
    assert entry_of(replace(pruned, result=0.3), SearchSpec(), MirrorSpace({}, {})).values == (0.3,)
    diverged = replace(pruned, reports=reports(0.5, math.nan))
    assert entry_of(diverged, SearchSpec(), MirrorSpace({}, {})).values is None
    several = SearchSpec(directions=(Direction.MINIMIZE,) * 2)
    assert entry_of(pruned, several, MirrorSpace({}, {})).values is None


def test_constraints_are_finite_numbers_above_zero_where_broken() -> None:
    spec = SearchSpec(constraints=(Constraint(metric="ms", at_most=20.0), Constraint(metric="acc", at_least=0.9)))
    entry = entry_of(trial(metrics={"ms": 25.0, "acc": 0.95}), spec, MirrorSpace({}, {}))
    assert entry.constraints is not None
    assert entry.constraints[0] == 5.0
    assert entry.constraints[1] < 0
    missing = entry_of(trial(metrics={"ms": math.inf}), spec, MirrorSpace({}, {}))
    assert missing.constraints is not None
    assert all(math.isfinite(value) and value > 0 for value in missing.constraints)
    failed = entry_of(trial(state=TrialState.FAILED), spec, MirrorSpace({}, {}))
    assert failed.constraints is None


def test_steps_beyond_32_bits_are_divided() -> None:
    """OP-14: a step is whatever the user counts, tokens too."""
    seen = trial(reports=reports(0.3, 0.2, stride=3_000_000_000))
    with pytest.raises(StepTooLarge):
        entry_of(seen, SearchSpec(), MirrorSpace({}, {}))
    divisor = divisor_for(3_000_000_000)
    assert divisor == 1000
    assert dict(entry_of(seen, SearchSpec(), MirrorSpace({}, {}), divisor=divisor).reports) == {0: 0.3, 3_000_000: 0.2}
    assert divisor_for(2**31 - 1) == 1


def test_our_attributes_stay_under_a_kilobyte_whatever_a_trial_went_through() -> None:
    """DB-03: ten thousand trials with our attributes have to load."""
    worst = trial(
        state=TrialState.FAILED,
        number=2**31,
        lineage=10**6,
        attempts=10**6,
        evictions=10**6,
        crashes=10**6,
        step=2**62,
        reason="\N{GRINNING FACE}" * 500,
        error="traceback\n" + "\0\N{SNOWMAN}" * 5000,
        params={"p" * 512: ["\N{GRINNING FACE}" * 900]},
    )
    attrs = entry_of(worst, SearchSpec(), MirrorSpace({}, {})).user_attrs
    size = sum(len(key) + len(json.dumps(value)) for key, value in attrs.items())
    assert size <= MOST_BYTES
    assert "traceback" not in str(attrs["sweeper:error"])


@pytest.mark.parametrize("text", ["", "short", "x" * 1000, "\N{GRINNING FACE}" * 300, '"\\\n\0' * 200])
def test_a_bounded_text_begins_like_the_text_and_fits(text: str) -> None:
    kept = bounded(text, 100)
    assert len(json.dumps(kept)) <= 100
    assert kept == text or text.startswith(kept[:-1])
    assert kept == text or len(json.dumps(kept)) > 70
