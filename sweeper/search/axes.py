"""One dimension as the study sees it, and the way between a stored value, its code and what Optuna is given.

A *code* stands for a value: a choice's position, a step's position, or the number itself. Two values of a dimension are
the same config exactly when their codes are equal, so codes are what is remembered of configs that were proposed.

Choices are canonical text in the study and decoded by position: Optuna itself compares choices by `==`, so of
`1, 1.0, true` it would only ever draw the first, and lists or dicts it could not compare at all.
"""

# ruff: noqa: D102 - overriding methods are documented where `Axis` declares them
from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Final, assert_never

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from sweeper.errors import UserError
from sweeper.model.space import MAX_NAME_CHARACTERS, Choices, Dimension, FloatRange, IntRange, Space, choice_text
from sweeper.model.tagged import from_tagged
from sweeper.model.trial import Json
from sweeper.search.quiet import quiet

Code = float | int
"""What stands for a value of one dimension."""
External = float | int | str
"""What Optuna takes for a value."""

_STEP_TOLERANCE: Final = 1e-8
"""How far from a step, in steps, a float may lie and still be meant (as in Optuna's `FloatDistribution`)."""


class Axis(ABC):
    """A named dimension; values that do not fit it have no code."""

    def __init__(self, name: str, distribution: BaseDistribution, size: int | None) -> None:
        self.name = name
        self.distribution = distribution
        self.size = size
        """How many values there are; None for a continuum."""

    @abstractmethod
    def code(self, value: Json) -> Code | None:
        """Give the code of a stored value, None where it does not fit."""

    @abstractmethod
    def code_at(self, position: int) -> Code:
        """Give the code of the n-th value, in the order of the dimension."""

    @abstractmethod
    def code_of(self, external: External) -> Code:
        """Give the code of what Optuna chose."""

    @abstractmethod
    def external(self, code: Code) -> External:
        """Give what Optuna takes for the value."""

    @abstractmethod
    def stored(self, code: Code) -> Json:
        """Give the value as a proposal holds it."""

    def plain(self, code: Code) -> object:
        """Give the value as Python has it."""
        return from_tagged(self.stored(code))


class FloatAxis(Axis):
    """A continuum of floats; the code is the float."""

    def __init__(self, name: str, dimension: FloatRange) -> None:
        distribution = FloatDistribution(dimension.low, dimension.high, log=dimension.log)
        super().__init__(name, distribution, 1 if dimension.low == dimension.high else None)
        self._low, self._high = distribution.low, distribution.high

    def code(self, value: Json) -> Code | None:
        number = value if type(value) is float else _number(value)
        return number + 0.0 if number is not None and self._low <= number <= self._high else None

    def code_at(self, position: int) -> Code:
        return self._low

    def code_of(self, external: External) -> Code:
        return float(external) + 0.0  # no -0.0: as a config it would differ from 0.0

    def external(self, code: Code) -> External:
        return code

    def stored(self, code: Code) -> Json:
        return code


class SteppedAxis(Axis):
    """Floats a step apart; the code is the position.

    The value of a position is reckoned in decimals, so 0.1 · 3 is 0.3 whichever sampler chose it, and one config.
    """

    def __init__(self, name: str, dimension: FloatRange, step: float) -> None:
        distribution = FloatDistribution(dimension.low, dimension.high, step=step)
        low, high = _decimal(distribution.low), _decimal(distribution.high)
        super().__init__(name, distribution, int((high - low) // _decimal(step)) + 1)
        self._low, self._step = distribution.low, step

    def code(self, value: Json) -> Code | None:
        number = _number(value)
        if number is None or not math.isfinite(number):
            return None
        steps = (number - self._low) / self._step
        at = round(steps)
        return at if 0 <= at < (self.size or 0) and abs(steps - at) < _STEP_TOLERANCE else None

    def code_at(self, position: int) -> Code:
        return position

    def code_of(self, external: External) -> Code:
        return round((float(external) - self._low) / self._step)

    def external(self, code: Code) -> External:
        return _stepped(self._low, self._step, int(code))

    def stored(self, code: Code) -> Json:
        return _stepped(self._low, self._step, int(code))


class IntAxis(Axis):
    """Integers, a step apart; the code is the integer."""

    def __init__(self, name: str, dimension: IntRange) -> None:
        distribution = IntDistribution(dimension.low, dimension.high, log=dimension.log, step=dimension.step)
        self._range = range(distribution.low, distribution.high + 1, distribution.step)
        super().__init__(name, distribution, len(self._range))

    def code(self, value: Json) -> Code | None:
        number = value if type(value) is int else _number(value)
        return number if type(number) is int and number in self._range else None

    def code_at(self, position: int) -> Code:
        return self._range[position]

    def code_of(self, external: External) -> Code:
        return int(external)

    def external(self, code: Code) -> External:
        return code

    def stored(self, code: Code) -> Json:
        return code


class ChoiceAxis(Axis):
    """Values of any kind; the code is the position. Equal choices are one config, told apart by nothing."""

    def __init__(self, name: str, dimension: Choices) -> None:
        self._values = dimension.values
        self._texts = [choice_text(value) for value in dimension.values]
        self._positions: dict[str, int] = {}
        self._scalars: dict[tuple[type, object], int] = {}
        for at, (text, value) in enumerate(zip(self._texts, self._values, strict=True)):
            self._positions.setdefault(text, at)
            if not isinstance(value, list | dict):
                self._scalars.setdefault((type(value), value), at)
        super().__init__(name, CategoricalDistribution(self._texts), len(self._values))

    def code(self, value: Json) -> Code | None:
        if type(value) is dict or type(value) is list:
            return self._positions.get(choice_text(value))
        return self._scalars.get((type(value), value))

    def code_at(self, position: int) -> Code:
        return self._positions[self._texts[position]]

    def code_of(self, external: External) -> Code:
        return self._positions[str(external)]

    def external(self, code: Code) -> External:
        return self._texts[int(code)]

    def stored(self, code: Code) -> Json:
        return self._values[int(code)]


def axis(name: str, dimension: Dimension) -> Axis:
    """Make a dimension's axis.

    Raises:
        UserError: no sampler could draw from the dimension; it is named.
    """
    if not 0 < len(name) <= MAX_NAME_CHARACTERS:
        raise UserError(
            f"the parameter name {name[:60]!r} has {len(name)} characters",
            remedy=f"A parameter's name has 1 to {MAX_NAME_CHARACTERS} characters.",
        )
    try:
        with quiet():
            return _axis(name, dimension)
    except (ValueError, OverflowError, ArithmeticError) as error:
        raise UserError(
            f"the dimension {name} cannot be searched: {_first_line(error)}",
            remedy="low <= high, log needs a low above 0 and no step, a step is above 0.",
        ) from error


def axes(space: Space) -> tuple[Axis, ...]:
    """Make the axes of a space, in its order."""
    return tuple(axis(name, dimension) for name, dimension in space.items())


def _axis(name: str, dimension: Dimension) -> Axis:
    match dimension:
        case FloatRange():
            _check_floats(dimension)
            if dimension.step is None:
                return FloatAxis(name, dimension)
            return SteppedAxis(name, dimension, float(dimension.step))
        case IntRange():
            return IntAxis(name, dimension)
        case Choices():
            return ChoiceAxis(name, dimension)
        case _:
            assert_never(dimension)


def _check_floats(dimension: FloatRange) -> None:
    if dimension.step is not None and dimension.log:
        raise ValueError("step and log exclude each other")
    if not (math.isfinite(dimension.low) and math.isfinite(dimension.high)):
        raise ValueError(f"{dimension.low} to {dimension.high} is no finite range")


def _number(value: Json) -> float | int | None:
    """Give a stored number; a boolean is none."""
    if isinstance(value, Mapping):
        try:
            value = from_tagged(value)
        except ValueError:
            return None
    return value if isinstance(value, float | int) and not isinstance(value, bool) else None


def _decimal(value: float) -> Decimal:
    return Decimal(str(value))


@lru_cache(maxsize=4096)
def _stepped(low: float, step: float, position: int) -> float:
    return float(_decimal(low) + position * _decimal(step))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].strip("`") or type(error).__name__
