"""Parameters as the mirror shows them: what Optuna and its dashboard can hold, the same for all trials of a study.

Optuna keeps a parameter to the kind, and a choice to the very list, that it had first in the study; so the first of
each name is remembered in the study, and what does not fit it is not shown as a parameter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final, assert_never

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from sweeper.model.space import MAX_NAME_CHARACTERS, Choices, Dimension, FloatRange, IntRange, Space, choice_text
from sweeper.model.tagged import from_tagged, to_tagged
from sweeper.model.trial import Json

Shown = tuple[Any, BaseDistribution]  # Any: a parameter's value is a number, text, boolean or None
"""A value as Optuna has it, and its distribution."""

_TOLERANCE: Final = 1e-8
"""How far from a step, in steps, a float may lie (as in Optuna's `FloatDistribution`)."""


class MirrorSpace:
    """The distributions of one mirrored study."""

    def __init__(self, space: Space, first: Mapping[str, Json]) -> None:
        """Begin with a sweep's space.

        Args:
            space: as the sweep has it now.
            first: what `as_json` gave when the study was last written.
        """
        self._space = space
        self._first: dict[str, Json] = dict(first)
        self._choices: dict[str, _ShownChoices] = {}
        self._made: dict[tuple[object, ...], BaseDistribution] = {}

    def as_json(self) -> dict[str, Json]:
        """Give what has to be remembered with the study, before the first trial that needs it is written."""
        return dict(self._first)

    def shown(self, name: str, value: Json, extra: Space) -> Shown | None:
        """Give a parameter of a trial, None where it cannot be shown as one.

        Args:
            name: the parameter's.
            value: as proposed.
            extra: dimensions that the trial has beside those of the space.
        """
        dimension = extra.get(name) or self._space.get(name)
        if dimension is None or len(name) > MAX_NAME_CHARACTERS or not self._is_first_kind(name, dimension):
            return None
        match dimension:
            case Choices():
                return self._choice(name, dimension).shown(value)
            case FloatRange():
                return self._float(dimension, value)
            case IntRange():
                return self._int(dimension, value)
            case _:
                assert_never(dimension)

    def point(self, fixed: Mapping[str, object]) -> dict[str, Json]:
        """Give fixed parameters, as somebody enqueued them on the study, as the ledger has values."""
        return {name: self._value(name, value) for name, value in fixed.items()}

    def _value(self, name: str, value: object) -> Json:
        dimension = self._space.get(name)
        if isinstance(dimension, Choices):
            return self._choice(name, dimension).value(value)
        return to_tagged(value)

    def _is_first_kind(self, name: str, dimension: Dimension) -> bool:
        mine = _kind(dimension)
        first = self._first.setdefault(name, mine)
        return isinstance(first, dict) and first.get("kind") == mine["kind"] and first.get("log") == mine["log"]

    def _choice(self, name: str, dimension: Choices) -> _ShownChoices:
        known = self._choices.get(name)
        if known is None:
            first = self._first.setdefault(name, _kind(dimension))
            values = first.get("values") if isinstance(first, dict) else None
            known = self._choices[name] = _ShownChoices(values if isinstance(values, list) else dimension.values)
        return known

    def _float(self, dimension: FloatRange, value: Json) -> Shown | None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        number = float(value)
        low, high = min(dimension.low, number), max(dimension.high, number)
        step = _float_step(low, high, dimension.step, number)
        if step is not None:
            high = _last_step(low, high, step)
        key = ("float", low, high, dimension.log, step)
        return self._distribution(
            key, number, lambda: FloatDistribution(low, high, log=dimension.log and step is None, step=step)
        )

    def _int(self, dimension: IntRange, value: Json) -> Shown | None:
        if isinstance(value, bool) or not isinstance(value, int):
            return None
        low, high, step = min(dimension.low, value), max(dimension.high, value), dimension.step
        if dimension.log or (value - low) % step:
            step = 1
        high = low + (high - low) // step * step
        key = ("int", low, high, dimension.log, step)
        return self._distribution(key, value, lambda: IntDistribution(low, high, log=dimension.log, step=step))

    def _distribution(self, key: tuple[object, ...], value: float, make: Any) -> Shown | None:  # Any: two kinds
        try:
            made = self._made.get(key) or self._made.setdefault(key, make())
        except (ValueError, ArithmeticError):  # a range that no sampler could have had
            return None
        return value, made


class _ShownChoices:
    """A list of choices, as they are or all as canonical text.

    As text where the dashboard or Optuna's plots could not show them or tell them apart: lists and mappings, what only
    tagged JSON can say, values that are equal by `==` (`1`, `1.0`, `true`) or look alike (`1`, `"1"`).
    """

    def __init__(self, values: Iterable[Json]) -> None:
        self._values = list(values)
        texts = [choice_text(value) for value in self._values]
        self._positions = {text: at for at, text in reversed(list(enumerate(texts)))}
        self._as_text = not _can_be_told_apart(self._values)
        shown = texts if self._as_text else [from_tagged(value) for value in self._values]
        self._shown = list(dict.fromkeys(shown))
        self._distribution = CategoricalDistribution(self._shown)

    def shown(self, value: Json) -> Shown | None:
        text = choice_text(value)
        at = self._positions.get(text)
        if at is None:
            return None
        return (text if self._as_text else from_tagged(self._values[at])), self._distribution

    def value(self, given: object) -> Json:
        """Give the choice that somebody means, by its text or by itself."""
        at = self._positions.get(given) if self._as_text and isinstance(given, str) else None
        return to_tagged(given) if at is None else self._values[at]


def _can_be_told_apart(values: list[Json]) -> bool:
    if any(isinstance(value, list | dict) for value in values):
        return False
    apart = {choice_text(value) for value in values}
    return len(set(values)) == len(apart) and len({str(value) for value in values}) == len(apart)


def _kind(dimension: Dimension) -> dict[str, Json]:
    match dimension:
        case Choices():
            # A copy of its own: what the study remembers must not change with the sweep's row.
            return {"kind": "choice", "log": False, "values": json.loads(json.dumps(list(dimension.values)))}
        case FloatRange():
            return {"kind": "float", "log": dimension.log}
        case IntRange():
            return {"kind": "int", "log": dimension.log}
        case _:
            assert_never(dimension)


def _float_step(low: float, high: float, step: float | None, value: float) -> float | None:
    """Give the step, if the value is on it and the last step is a number that Optuna finds divisible."""
    if step is None or step <= 0:
        return None
    steps = (value - low) / step
    if abs(steps - round(steps)) >= _TOLERANCE:
        return None
    last = _last_step(low, high, step)
    return step if (_decimal(last) - _decimal(low)) % _decimal(step) == 0 else None


def _last_step(low: float, high: float, step: float) -> float:
    return float((_decimal(high) - _decimal(low)) // _decimal(step) * _decimal(step) + _decimal(low))


def _decimal(value: float) -> Decimal:
    return Decimal(str(value))
