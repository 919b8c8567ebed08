"""Values as people read them, and the trial's JSON record."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from sweeper.cli.records import result_values, trial_record
from sweeper.cli.texts import bytes_text, duration_text, params_text, result_text, state_text, value_text
from sweeper.ids import ConfigHash, TrialId, TrialNumber
from sweeper.model.states import TrialState
from sweeper.model.tagged import to_tagged
from sweeper.model.trial import Trial


def a_trial(**changes: Any) -> Trial:
    trial = Trial(
        trial_id=TrialId(7),
        number=TrialNumber(3),
        config_hash=ConfigHash("ab" * 32),
        state=TrialState.PENDING,
        lineage=0,
        fence=0,
        worker_id=None,
        lease_id=None,
        crashes=0,
        no_progress=0,
        result=None,
        outcome_key=None,
        outcome_stored=False,
        error=None,
        head=None,
        step=0,
        last_value=None,
        requested=True,
        overrides=("lr=0.1", "amp=on"),
        available_at=None,
    )
    return replace(trial, **changes)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("on", '"on"'),
        (True, "true"),
        (None, "null"),
        (1, "1"),
        (1.0, "1.0"),
        ("1", '"1"'),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (-0.0, "-0.0"),
        (2**60, str(2**60)),
        ([1, "a"], '[1, "a"]'),
        ((1, 2.5), "(1, 2.5)"),
        ({"a": "x"}, '{"a": "x"}'),
        ({1: True}, "{1: true}"),
        ("größer", '"größer"'),
    ],
)
def test_a_value_is_written_so_that_its_type_shows(value: Any, text: str) -> None:
    """TRUTH: "on" and true, 1 and 1.0 and "1" look different."""
    assert value_text(to_tagged(value)) == text


def test_a_leaf_that_counts_by_its_expression_is_shown_as_written() -> None:
    assert value_text({"$expression": "${oc.env:TOKEN}"}) == "${oc.env:TOKEN}"
    assert value_text({"$missing": True}) == "???"


@pytest.mark.parametrize(
    ("result", "values"),
    [
        (0.5, [0.5]),
        (3, [3]),
        ([0.5, 2], [0.5, 2]),
        ((0.5, 2), [0.5, 2]),
        (math.nan, [{"$float": "nan"}]),
        (True, None),
        ("foo", None),
        (None, None),
        ([], None),
        ([0.5, "foo"], None),
        ({"loss": 0.5}, None),
    ],
)
def test_values_are_the_numbers_of_a_completed_trial(result: Any, values: Any) -> None:
    trial = a_trial(state=TrialState.COMPLETED, result=to_tagged(result))
    assert result_values(trial) == values
    assert json.loads(json.dumps(trial_record(trial, []), allow_nan=False))["values"] == values


def test_a_trial_that_is_not_completed_has_no_values() -> None:
    assert result_values(a_trial()) is None
    assert result_text(a_trial()) == ""


def test_a_result_that_is_no_number_is_still_shown() -> None:
    assert result_text(a_trial(state=TrialState.COMPLETED, result="foo")) == '"foo"'


def test_parameters_show_their_types_and_fall_back_to_the_overrides() -> None:
    assert params_text(a_trial(params={"lr": 0.1, "amp": True, "mode": "on"})) == 'lr=0.1 amp=true mode="on"'
    assert params_text(a_trial()) == "lr=0.1 amp=on"


def test_only_an_unfinished_trial_can_be_not_requested() -> None:
    assert state_text(a_trial(requested=False)) == "pending, not requested"
    assert state_text(a_trial(requested=False, state=TrialState.COMPLETED)) == "completed"


def test_the_record_has_the_promised_fields() -> None:
    promised = {"number", "config_hash", "state", "values", "params", "overrides", "step", "attempts", "checkpoint"}
    assert promised | {"error"} <= set(trial_record(a_trial(), []))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (-1, "0 s"),
        (0.4, "0 s"),
        (59, "59 s"),
        (61, "1 min 1 s"),
        (3661, "1 h 1 min"),
        (2e5, "2 d 7 h"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 40, "3.0 TiB")])
def test_sizes(size: int, text: str) -> None:
    assert bytes_text(size) == text
