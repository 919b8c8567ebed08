"""Constraints are read from what people write, and written back the same."""

from __future__ import annotations

from typing import Any

import pytest

from sweeper.errors import UserError
from sweeper.launch.constraints import read_constraints
from sweeper.model.search import Constraint
from sweeper.model.space_changes import constraint_text


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("latency_ms <= 20", Constraint(metric="latency_ms", at_most=20.0)),
        ("accuracy>=0.9", Constraint(metric="accuracy", at_least=0.9)),
        (" val/acc-top1 >= -1e-3 ", Constraint(metric="val/acc-top1", at_least=-0.001)),
    ],
)
def test_a_bound_is_read(text: str, meant: Constraint) -> None:
    (found,) = read_constraints([text], setting="constraints")
    assert found == meant
    assert read_constraints([constraint_text(found)], setting="constraints") == (meant,)


@pytest.mark.parametrize(
    "text", ["latency", "a < 1", "a <= b", "a <= nan", "a <= inf", "1 <= a <= 2", "a == 1", 3, None]
)
def test_what_is_no_bound_is_refused_with_an_example(text: Any) -> None:
    """CLEAR."""
    with pytest.raises(UserError, match=r"accuracy >= 0\.9"):
        read_constraints([text], setting="constraints")
