"""The words for a space, and one clear message for each that is wrong (CLEAR)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import sweeper
from sweeper.errors import UserError
from sweeper.model.space import Choices, FloatRange, IntRange
from sweeper.plain.space import Choice, Float, Int, read_dimension, read_space


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (Float(1e-5, 1e-1, log=True), FloatRange(low=1e-5, high=1e-1, log=True)),
        (Float(0, 1), FloatRange(low=0.0, high=1.0)),
        (Float(0.1, 0.35, step=0.1), FloatRange(low=0.1, high=0.3, step=0.1)),
        (Float(0.1, 0.3, step=0.1), FloatRange(low=0.1, high=0.3, step=0.1)),
        (Int(16, 128, step=16), IntRange(low=16, high=128, step=16)),
        (Int(1, 10, step=4), IntRange(low=1, high=9, step=4)),
        (Int(1, 1024, log=True), IntRange(low=1, high=1024, log=True)),
        (Int(np.int64(2), np.int64(4)), IntRange(low=2, high=4)),
        (Choice(["adam", None, 1, 1.0, True]), Choices(values=("adam", None, 1, 1.0, True))),
        ([[64, 64], {"a": 1}], Choices(values=([64, 64], {"a": 1}))),
        ((math.nan, "nan"), Choices(values=({"$float": "nan"}, "nan"))),
    ],
)
def test_what_is_written_is_what_is_searched(written: object, meant: object) -> None:
    found = read_dimension("x", written)
    assert found == meant
    assert repr(found) == repr(meant)  # 1 and 1.0 are equal, and not the same


@pytest.mark.parametrize(
    ("name", "written", "told"),
    [
        ("x", 3, "base"),
        ("x", "interval(0, 1)", "Float"),
        ("x", Float(1, 0), "from 1 to 0"),
        ("x", Float(0, math.inf), "finite"),
        ("x", Float(0, 1, log=True), "above 0"),
        ("x", Float(1, 2, log=True, step=0.1), "both log and step"),
        ("x", Float(1, 2, step=0), "above 0"),
        ("x", Float("1e-5", 1), "'1e-5'"),  # type: ignore[arg-type]
        ("x", Int(1, 2, log="yes"), "log is true or false"),  # type: ignore[arg-type]
        ("x", Int(0, 8, log=True), "at least 1"),
        ("x", Int(1, 2.5), "Float"),  # type: ignore[arg-type]
        ("x", Int(False, True), "integers"),
        ("x", Int(1, 9, step=0), "at least 1"),
        ("x", [], "no choices"),
        ("x", ["a", "b", "a"], "twice"),
        ("x", Choice("adam"), "list"),
        ("x", [math.sqrt], "plain values"),
        ("", [1], "name"),
        ("a..b", [1], "name"),
        ("a=b", [1], "name"),
        ("a\nb", [1], "name"),
        ("p" * 600, [1], "600 characters"),
        (7, [1], "not text"),
    ],
)
def test_what_cannot_be_searched_is_refused_by_name(name: Any, written: object, told: str) -> None:
    """CLEAR, OP-14."""
    with pytest.raises(UserError) as refused:
        read_space({name: written})
    assert told in str(refused.value)
    assert repr(name)[:8] in str(refused.value)
    assert refused.value.remedy


@pytest.mark.parametrize("space", [{}, None, [("x", [1])]])
def test_a_space_is_a_mapping_of_something(space: Any) -> None:
    with pytest.raises(UserError, match="the space is"):
        read_space(space)


def test_the_words_are_public() -> None:
    assert sweeper.Float(0, 1) == Float(0, 1)
    assert sweeper.Int(0, 1) == Int(0, 1)
    assert sweeper.Choice(["a"]) == Choice(["a"])
