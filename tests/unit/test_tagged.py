"""Tagged JSON: exact, canonical, never able to name code."""

from __future__ import annotations

import contextlib
import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.model.tagged import from_tagged, to_tagged

hashable = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(max_size=20)
)
values = st.recursive(
    st.one_of(hashable, st.just(math.nan), st.complex_numbers(allow_nan=False)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.sets(hashable, max_size=4),
        st.dictionaries(st.one_of(st.text(), st.just("$int"), st.integers()), inner, max_size=4),
    ),
    max_leaves=12,
)


def same(left: Any, right: Any) -> bool:
    """Equal in type and in bits: 1, 1.0 and True differ, so do 0.0 and -0.0; NaN equals itself."""
    if type(left) is not type(right):
        return False
    match left:
        case float():
            return struct.pack("<d", left) == struct.pack("<d", right) or (math.isnan(left) and math.isnan(right))
        case complex():
            return same(left.real, right.real) and same(left.imag, right.imag)
        case list() | tuple():
            return len(left) == len(right) and all(map(same, left, right))
        case dict():
            return len(left) == len(right) and all(map(same, left.items(), right.items()))
        case _:
            return bool(left == right)


@given(values)
def test_any_plain_value_survives_json_text_exactly(value: Any) -> None:
    text = json.dumps(to_tagged(value), allow_nan=False)
    assert same(from_tagged(json.loads(text)), value)


@pytest.mark.parametrize("value", [1, 1.0, True, "1", "true", -0.0, 2**53, 2**53 + 1, -(2**70), math.inf, -math.inf])
def test_numbers_text_and_booleans_stay_apart(value: Any) -> None:
    assert same(from_tagged(json.loads(json.dumps(to_tagged(value), allow_nan=False))), value)


def test_integers_with_more_digits_than_python_converts_survive() -> None:
    """`sys.set_int_max_str_digits`: 4300 by default, 640 at least."""
    for value in (10**5000, -(10**5000), 10**600, 10**604):
        assert from_tagged(json.loads(json.dumps(to_tagged(value)))) == value


def test_text_that_looks_like_a_tag_stays_a_mapping() -> None:
    value = {"$int": "5"}
    assert from_tagged(to_tagged(value)) == value


class Surprise:
    """Anything that is not a plain value."""


@pytest.mark.parametrize("value", [Surprise(), Surprise, len, range(3), memoryview(b"x")])
def test_what_is_not_plain_is_refused_by_its_type(value: Any) -> None:
    with pytest.raises(TypeError, match="has no tagged form"):
        to_tagged([value])


@pytest.mark.parametrize(
    "tagged",
    [
        {"$class": "os.system"},
        {"$int": "five"},
        {"$int": None},
        {"$float": "much"},
        {"$bytes": "%%%"},
        {"$dict": [["one"]]},
        {"$dict": 5},
        {"$set": 3},
        {"$set": [[1]]},
        {"$complex": [1.0]},
        {"$tuple": None},
    ],
)
def test_a_tag_that_is_unknown_or_malformed_is_refused(tagged: Any) -> None:
    """SAFE: nothing in the data decides what code runs."""
    with pytest.raises(ValueError, match=r".+"):
        from_tagged(tagged)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(st.text(max_size=3), st.sampled_from(["$int", "$float", "$set", "$dict", "$bytes", "$complex"])),
            inner,
            max_size=2,
        ),
    ),
    max_leaves=8,
)


@given(json_values)
def test_arbitrary_json_is_read_or_refused_but_never_anything_else(tagged: Any) -> None:
    with contextlib.suppress(ValueError):
        from_tagged(tagged)
