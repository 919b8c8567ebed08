"""The words in which Python code and files say what is searched: `Float`, `Int`, `Choice`, or a list of choices."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sweeper.errors import UserError
from sweeper.model.space import MAX_NAME_CHARACTERS, Choices, Dimension, FloatRange, IntRange, Space, choice_text
from sweeper.model.tagged import to_tagged


@dataclass(frozen=True, slots=True)
class Float:
    """A float from `low` to `high`, both included; on a log scale, or in steps from `low`."""

    low: float
    high: float
    log: bool = False
    step: float | None = None


@dataclass(frozen=True, slots=True)
class Int:
    """An integer from `low` to `high`, both included where the step reaches them; on a log scale, or in steps."""

    low: int
    high: int
    log: bool = False
    step: int = 1


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several plain values: None, booleans, numbers, text, lists, mappings. A bare list means the same."""

    values: Sequence[Any]  # Any: plain values


def read_space(space: Mapping[str, object]) -> Space:
    """Check what is searched and give it in the ledger's words, in the order given.

    Raises:
        UserError: names the parameter and what is wrong with it.
    """
    if not isinstance(space, Mapping) or not space:
        raise UserError(
            "the space is empty" if isinstance(space, Mapping) else f"the space is {space!r:.80}, not a mapping",
            remedy="name at least one parameter: space={'lr': sweeper.Float(1e-4, 1e-1, log=True)}; a value that is "
            "the same in every trial belongs into base",
        )
    for name in space:
        check_parameter_name(name)
    return {name: read_dimension(name, found) for name, found in space.items()}


def read_dimension(name: str, found: object) -> Dimension:
    """Check one parameter.

    Raises:
        UserError: names the parameter and what is wrong with it.
    """
    match found:
        case Float():
            return _float_range(name, found)
        case Int():
            return _int_range(name, found)
        case Choice():
            return _choices(name, found.values)
        case list() | tuple():
            return _choices(name, found)
        case _:
            raise UserError(
                f"the parameter {name!r} is {found!r:.80}",
                remedy="say sweeper.Float(low, high), sweeper.Int(low, high) or a list of choices; a value that is the "
                "same in every trial belongs into base",
            )


def check_parameter_name(name: object) -> None:
    """Refuse a name that cannot lead to a key of the config.

    Raises:
        UserError: names it.
    """
    remedy = "a parameter's name is its key in the config, with dots between nested keys: optimizer.lr"
    if not isinstance(name, str):
        raise UserError(f"the parameter name {name!r:.80} is not text", remedy=remedy)
    if "=" in name or not name.isprintable() or not all(part.strip() for part in name.split(".")):
        raise UserError(f"{name!r:.80} cannot be a parameter's name", remedy=remedy)
    if len(name) > MAX_NAME_CHARACTERS:
        raise UserError(
            f"the parameter name {name[:40]!r}… has {len(name)} characters",
            remedy=f"a name has at most {MAX_NAME_CHARACTERS}",
        )


def _float_range(name: str, found: Float) -> FloatRange:
    low, high = _real(name, "low", found.low), _real(name, "high", found.high)
    _check_flag(name, found.log)
    _check_bounds(name, low, high, log=found.log, lowest_log=0.0)
    if found.step is None:
        return FloatRange(low=low, high=high, log=found.log)
    step = _real(name, "step", found.step)
    if not step > 0:
        raise UserError(f"the parameter {name!r} has step={step:g}", remedy="a step is above 0")
    if found.log:
        raise UserError(f"the parameter {name!r} has both log and step", remedy="leave one of them out")
    return FloatRange(low=low, high=_last_reached(low, high, step), step=step)


def _int_range(name: str, found: Int) -> IntRange:
    low, high = _whole(name, "low", found.low), _whole(name, "high", found.high)
    _check_flag(name, found.log)
    step = _whole(name, "step", found.step)
    _check_bounds(name, low, high, log=found.log, lowest_log=1)
    if step < 1:
        raise UserError(f"the parameter {name!r} has step={step}", remedy="a step is at least 1")
    if found.log and step != 1:
        raise UserError(f"the parameter {name!r} has both log and step", remedy="leave one of them out")
    return IntRange(low=low, high=low + (high - low) // step * step, step=step, log=found.log)


def _choices(name: str, values: Iterable[object]) -> Choices:
    if isinstance(values, str) or not isinstance(values, list | tuple):
        raise UserError(f"the choices of the parameter {name!r} are {values!r:.80}", remedy="give them as a list")
    try:
        tagged = tuple(to_tagged(value) for value in values)
    except TypeError as error:
        raise UserError(
            f"a choice of the parameter {name!r} cannot be stored: {error}",
            remedy="use plain values (booleans, numbers, text, lists, mappings) and build the rest in the function",
        ) from None
    if not tagged:
        raise UserError(f"the parameter {name!r} has no choices", remedy="give at least one, or leave it out")
    texts = [choice_text(value) for value in tagged]
    if twice := sorted({text for text in texts if texts.count(text) > 1}):
        raise UserError(f"the parameter {name!r} has the choice {twice[0]} twice", remedy="give each choice once")
    return Choices(values=tagged)


def _check_bounds(name: str, low: float, high: float, *, log: bool, lowest_log: float) -> None:
    if low > high:
        raise UserError(f"the parameter {name!r} goes from {low:g} to {high:g}", remedy="low is at most high")
    positive = low > 0 if lowest_log == 0 else low >= lowest_log
    if log and not positive:
        bound = "above 0" if lowest_log == 0 else f"at least {lowest_log:g}"
        raise UserError(
            f"the parameter {name!r} has log and begins at {low:g}", remedy=f"on a log scale low is {bound}"
        )


def _check_flag(name: str, log: object) -> None:
    if not isinstance(log, bool):
        raise UserError(f"the parameter {name!r} has log={log!r:.80}", remedy="log is true or false")


def _real(name: str, field: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise UserError(f"the parameter {name!r} has {field}={value!r:.80}", remedy="a finite number is needed")
    return float(value)


def _whole(name: str, field: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise UserError(
            f"the parameter {name!r} has {field}={value!r:.80}",
            remedy="sweeper.Int takes integers; sweeper.Float takes floats",
        )
    return int(value)


def _last_reached(low: float, high: float, step: float) -> float:
    """The highest value on the grid, in decimal: 0.1 + 2 * 0.1 is the 0.3 that people mean."""
    start, end, pace = (Decimal(str(number)) for number in (low, high, step))
    return float(start + (end - start) // pace * pace)
