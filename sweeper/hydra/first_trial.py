"""A trial before there is any: what a define-by-run function makes of the first config is seen before the first row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sweeper.errors import UserError
from sweeper.hydra.search_arguments import first_value
from sweeper.model.space import Choices, Dimension, FloatRange, IntRange
from sweeper.model.tagged import from_tagged, to_tagged
from sweeper.model.trial import Json


class FirstTrial:
    """A trial that gets lowest values and first choices, to see whether a function's configs can be composed."""

    def __init__(self, params: Mapping[str, Json]) -> None:
        self.number = 0
        self.stored: dict[str, Json] = dict(params)
        """What was chosen, as tagged JSON."""

    @property
    def params(self) -> dict[str, object]:
        """Parameters so far."""
        return {name: from_tagged(value) for name, value in self.stored.items()}

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """Choose the lowest value."""
        return float(self._first(name, FloatRange(low=low, high=high, step=step, log=log)))

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """Choose the lowest value."""
        return int(self._first(name, IntRange(low=low, high=high, step=step, log=log)))

    def suggest_categorical(self, name: str, choices: Sequence[object]) -> Any:  # Any: values of any kind
        """Choose the first value.

        Raises:
            UserError: there is none.
        """
        if not choices:
            raise UserError(f"there is nothing to choose {name!r} from")
        return self._first(name, Choices(values=tuple(to_tagged(choice) for choice in choices)))

    def drop(self, name: str) -> None:
        """Leave a parameter out.

        Raises:
            UserError: there is none of that name.
        """
        if name not in self.stored:
            raise UserError(f"there is no parameter {name!r} to drop")
        del self.stored[name]

    def _first(self, name: str, dimension: Dimension) -> Any:  # Any: values of any kind
        return from_tagged(self.stored.setdefault(name, first_value(dimension)))
