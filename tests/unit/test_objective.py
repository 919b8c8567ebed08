"""What counts as an objective (OP-07)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.model.objective import Fault, objective_values
from sweeper.model.states import ObjectiveFault
from sweeper.model.tagged import to_tagged


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.5, (0.5,)),
        (3, (3.0,)),
        (True, (1.0,)),
        (False, (0.0,)),
        (-math.inf, (-math.inf,)),
        (math.inf, (math.inf,)),
        ([0.5], (0.5,)),
        ((0.5,), (0.5,)),
        ({"$float": "-inf"}, (-math.inf,)),
        ({"$int": str(2**60)}, (float(2**60),)),
        ({"$tuple": [{"$float": "inf"}]}, (math.inf,)),
    ],
)
def test_a_number_or_a_list_of_one_is_the_value_of_one_objective(value: object, expected: tuple[float, ...]) -> None:
    assert objective_values(value, 1) == expected


@pytest.mark.parametrize("value", [(1, 2.5), [1, 2.5], {"$tuple": [1, 2.5]}, [True, {"$float": "2.5"}]])
def test_several_objectives_come_as_list_or_tuple(value: object) -> None:
    assert objective_values(value, 2) == (1.0, 2.5)


@pytest.mark.parametrize(
    ("value", "count", "fault", "told"),
    [
        (None, 1, ObjectiveFault.NONE, "`return` missing"),
        (None, 2, ObjectiveFault.NONE, "2 numbers, one per direction"),
        (math.nan, 1, ObjectiveFault.NAN, "NaN"),
        ({"$float": "nan"}, 1, ObjectiveFault.NAN, "NaN"),
        ((0.5, math.nan), 2, ObjectiveFault.NAN, "NaN"),
        ("0.5", 1, ObjectiveFault.KIND, "the text '0.5'"),
        ((0.5, "0.5"), 2, ObjectiveFault.KIND, "the text '0.5'"),
        ((0.5, None), 2, ObjectiveFault.KIND, "None among its values"),
        ({"loss": 0.5}, 1, ObjectiveFault.KIND, "run.report"),
        ({1: 2}, 1, ObjectiveFault.KIND, "a mapping"),
        ({"$float": "no number"}, 1, ObjectiveFault.KIND, "a mapping"),
        ({0.5}, 1, ObjectiveFault.KIND, "type set"),
        (1 + 2j, 1, ObjectiveFault.KIND, "type complex"),
        (b"0.5", 1, ObjectiveFault.KIND, "type bytes"),
        (10**400, 1, ObjectiveFault.KIND, "beyond every float"),
        (((1.0, 2.0),), 1, ObjectiveFault.KIND, "type list"),
        ((0.5, 0.5), 1, ObjectiveFault.ARITY, "2 values"),
        (0.5, 2, ObjectiveFault.ARITY, "1 value: return 2 numbers"),
        ([], 1, ObjectiveFault.ARITY, "0 values"),
    ],
)
def test_whatever_is_no_objective_is_named_with_what_to_return(
    value: object, count: int, fault: ObjectiveFault, told: str
) -> None:
    found = objective_values(value, count)
    assert isinstance(found, Fault)
    assert found.fault is fault
    assert told in found.detail
    assert "return" in found.detail


@given(value=st.one_of(st.floats(), st.integers(), st.lists(st.floats(), max_size=3), st.text(), st.none()))
def test_a_value_and_its_tagged_form_are_judged_alike(value: object) -> None:
    assert objective_values(value, 2) == objective_values(to_tagged(value), 2)
