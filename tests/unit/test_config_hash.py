"""The canonical text of plain values: pure rules."""

from __future__ import annotations

import enum
import hashlib
from pathlib import Path

import pytest

from sweeper.errors import UserError
from sweeper.model.config_hash import Expression, Missing, canonical_document, canonical_value, hash_text


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 3


def document(value: object) -> str:
    return canonical_document({"x": value})


def test_values_count_by_type_and_value() -> None:
    texts = [document(value) for value in (1, 1.0, True, "1", None, "null", -0.0, 0.0, 0, "", [], {}, [1], ["1"])]
    assert len(set(texts)) == len(texts)


def test_key_order_does_not_count_and_list_order_does() -> None:
    assert document({"a": 1, "b": 2}) == document({"b": 2, "a": 1})
    assert document([1, 2]) != document([2, 1])


def test_enums_by_name_paths_as_text_tuples_as_lists_sets_sorted() -> None:
    assert document(Color.RED) == document("RED")
    assert document(Level.HIGH) == document("HIGH")
    assert document(Path("/a/b")) == document("/a/b")
    assert document((1, (2,))) == document([1, [2]])
    assert document({"b", "a", "c"}) == document(frozenset({"c", "b", "a"}))
    assert document({1, 2}) != document([1, 2])


def test_unusual_numbers_are_tagged_and_exact() -> None:
    assert canonical_value(2**53) == 2**53
    assert canonical_value(2**53 + 1) == {"$int": "9007199254740993"}
    assert canonical_value(-(2**70)) == {"$int": "-1180591620717411303424"}
    assert canonical_value(float("inf")) == {"$float": "inf"}
    assert canonical_value(float("nan")) == {"$float": "nan"}
    assert canonical_value(-0.0) == {"$float": "-0.0"}
    assert document(0.1 + 0.2) != document(0.3)


def test_keys_that_are_not_text_are_tagged() -> None:
    assert document({1: "a"}) != document({"1": "a"})
    assert document({True: "a"}) != document({1: "a"})
    assert canonical_value({2: "b", 1: "a"}) == {"$dict": [[1, "a"], [2, "b"]]}
    assert document({"$int": "5"}) != document(5), "a user's key cannot pose as one of our tags"


def test_expressions_and_missing_values_cannot_be_mistaken_for_text() -> None:
    assert document(Expression("${now:%H}")) != document("${now:%H}")
    assert document(Missing()) != document("???")


def test_two_keys_that_count_the_same_are_refused() -> None:
    with pytest.raises(UserError, match="two entries"):
        document({Color.RED: 1, "RED": 2})


@pytest.mark.parametrize("bad", ["a\x00b", "\udcff"])
def test_text_that_no_database_holds_is_refused_naming_the_key(bad: str) -> None:
    """CH-08."""
    with pytest.raises(UserError, match=r"'x\.inner\[1\]'"):
        document({"inner": ["fine", bad]})
    with pytest.raises(UserError, match="x"):
        document({bad: 1})


def test_objects_are_refused_naming_key_and_type() -> None:
    with pytest.raises(UserError, match=r"'x'.*builtins\.object"):
        document(object())
    with pytest.raises(UserError, match=r"'x\.f'.*builtins\.function"):
        document({"f": lambda: None})


def test_the_text_is_the_published_one() -> None:
    text = canonical_document({"b": [1, 2.5, "é"], "a": None}, version="v1")
    assert text == '{"config":{"a":null,"b":[1,2.5,"é"]},"format":1,"version":"v1"}'
    assert hash_text(text) == hashlib.sha256(text.encode()).hexdigest()
    assert canonical_document({}) == '{"config":{},"format":1,"version":null}'
