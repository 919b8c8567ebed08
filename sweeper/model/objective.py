"""What a function returned, taken as the objective of a search."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from sweeper.model.states import ObjectiveFault
from sweeper.model.tagged import from_tagged

_TAGS: Final = ("$float", "$int", "$tuple")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A returned value that is no objective: which kind of fault, and one sentence for the person who wrote it."""

    fault: ObjectiveFault
    detail: str


def objective_values(value: object, count: int) -> tuple[float, ...] | Fault:
    """Give the objective values, one per direction, or say why the value is none.

    Numbers count, booleans as 0 and 1, infinities too (the loss of a diverged model is legal, and the worst there is).
    One objective may also come as a list or tuple of one. Text is never read as a number: it is an accident.

    Args:
        value: as the function returned it (no arrays: they count as what their `item()` gives), or its tagged JSON.
        count: how many objectives the search has, at least 1.
    """
    if count == 1 and type(value) is float and value == value:
        return (value,)  # nearly always so, and a restart asks of ten thousands
    plain = _untagged(value)
    if plain is None:
        return _fault(ObjectiveFault.NONE, "None", count, hint="is a `return` missing?")
    items = tuple(plain) if isinstance(plain, list | tuple) else (plain,)
    numbers: list[float] = []
    for item in items:
        number = _number(item, count)
        if isinstance(number, Fault):
            return number
        numbers.append(number)
    if len(numbers) != count:
        returned = "1 value" if len(numbers) == 1 else f"{len(numbers)} values"
        directions = "1 direction" if count == 1 else f"{count} directions"
        hint = f"this search has {directions}"
        return _fault(ObjectiveFault.ARITY, returned, count, hint=hint)
    return tuple(numbers)


def _number(item: object, count: int) -> float | Fault:
    match item:
        case int() | float():
            try:
                number = float(item)
            except OverflowError:
                return _fault(ObjectiveFault.KIND, "an integer beyond every float", count)
            if math.isnan(number):
                return _fault(
                    ObjectiveFault.NAN, "NaN", count, hint="return float('inf') or raise if training diverged"
                )
            return number
        case str():
            return _fault(ObjectiveFault.KIND, f"the text {item!r:.60}", count, hint="float(...) makes it a number")
        case None:
            return _fault(ObjectiveFault.KIND, "None among its values", count)
        case dict():
            hint = "further metrics belong into `run.report(value, step=..., name=metric)`"
            return _fault(ObjectiveFault.KIND, "a mapping", count, hint=hint)
        case _:
            kind = type(item).__qualname__
            return _fault(ObjectiveFault.KIND, f"a value of type {kind}", count, hint="float(...) may make it a number")


def _fault(fault: ObjectiveFault, returned: str, count: int, *, hint: str = "") -> Fault:
    wanted = "the objective (a number)" if count == 1 else f"{count} numbers, one per direction"
    detail = f"the function returned {returned}: return {wanted}"
    return Fault(fault=fault, detail=f"{detail}; {hint}" if hint else detail)


def _untagged(value: object) -> object:
    """Give the plain value of tagged JSON. A list may hold tagged numbers, so it is looked into as well."""
    if isinstance(value, list | tuple):
        return [_untagged(item) for item in value]
    if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in _TAGS:
        return value
    try:
        plain: object = from_tagged(value)
        return plain
    except ValueError:  # a user's own mapping that only looks like a tag
        return value
