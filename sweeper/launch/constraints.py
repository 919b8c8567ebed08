"""Constraints as people write them: `latency_ms <= 20`, `accuracy >= 0.9`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final

from sweeper.errors import UserError
from sweeper.model.search import Constraint

_FORM: Final = re.compile(r"\s*(?P<metric>[^\s<>=]+)\s*(?P<sign><=|>=)\s*(?P<bound>\S+)\s*")


def read_constraints(texts: Iterable[object], *, setting: str) -> tuple[Constraint, ...]:
    """Read a list of bounds on metrics, one Constraint for each.

    Args:
        texts: the bounds.
        setting: how the user writes the setting, for messages.

    Raises:
        UserError: a text of another form; names it.
    """
    return tuple(_read(text, setting) for text in texts)


def _read(text: object, setting: str) -> Constraint:
    found = _FORM.fullmatch(text) if isinstance(text, str) else None
    bound = _number(found["bound"]) if found else None
    if found is None or bound is None:
        raise UserError(
            f"{setting} has {text!r:.80}",
            remedy="write a metric of run.report and its bound: 'latency_ms <= 20' or 'accuracy >= 0.9'",
        )
    if found["sign"] == "<=":
        return Constraint(metric=found["metric"], at_most=bound)
    return Constraint(metric=found["metric"], at_least=bound)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
