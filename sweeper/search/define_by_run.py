"""What a define-by-run function suggests through: parameters beyond the plain space, and those that do not apply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from sweeper.errors import UserError
from sweeper.model.space import Choices, Dimension, FloatRange, IntRange
from sweeper.model.tagged import to_tagged
from sweeper.model.trial import Json
from sweeper.search.asked import asked
from sweeper.search.axes import Axis, Code, External, axis
from sweeper.search.points import coerced


class TrialProxy:
    """The trial that is being suggested, as a define-by-run function sees it: the calls of `optuna.Trial` and `drop`.

    A parameter that was suggested already keeps its value, also one of the plain space.
    """

    def __init__(
        self,
        trial: optuna.Trial,
        number: int,
        plain: Mapping[Axis, Code],
        fixed: Mapping[str, Json],
    ) -> None:
        self.number = number
        self.extra: dict[str, Dimension] = {}
        """Dimensions that the function brought in, in its order."""
        self._trial = trial
        self._plain = {axis.name for axis in plain}
        self._fixed = fixed
        self._codes = {axis.name: (axis, code) for axis, code in plain.items()}
        self._dropped: set[str] = set()

    @property
    def params(self) -> dict[str, Any]:  # Any: values of any kind
        """All parameters that apply, as plain values."""
        return {name: found.plain(code) for name, (found, code) in self.chosen().items()}

    def chosen(self) -> dict[str, tuple[Axis, Code]]:
        """All parameters that apply, by name."""
        return {name: found for name, found in self._codes.items() if name not in self._dropped}

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """Suggest a float from `low` to `high`, both included."""
        dimension = FloatRange(low=float(low), high=float(high), step=None if step is None else float(step), log=log)
        return float(self._suggest(name, dimension))

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """Suggest an integer from `low` to `high`, both included."""
        return int(self._suggest(name, IntRange(low=int(low), high=int(high), step=int(step), log=log)))

    def suggest_categorical(self, name: str, choices: Sequence[object]) -> Any:  # Any: one of the choices
        """Suggest one of the choices: values of any kind that a config can have, lists and mappings too."""
        try:
            values = tuple(to_tagged(choice) for choice in choices)
        except TypeError as error:
            raise UserError(
                f"custom_search_space: a choice of {name} cannot be put into a config: {error}",
                remedy="Choices are null, booleans, numbers, text, and lists or mappings of them.",
            ) from error
        return self._suggest(name, Choices(values=values))

    def drop(self, name: str) -> None:
        """Say that a parameter does not apply to this trial: it is left out of its config.

        Raises:
            UserError: there is no such parameter.
        """
        if name not in self._codes:
            raise UserError(
                f"custom_search_space: there is no parameter {name!r} to drop",
                remedy=f"Parameters so far: {', '.join(self._codes) or 'none'}.",
            )
        self._dropped.add(name)

    def _suggest(self, name: str, dimension: Dimension) -> Any:  # Any: values of any kind
        self._dropped.discard(name)
        if name not in self._codes:
            found = axis(name, dimension)
            code = coerced(found, dimension, self._fixed[name]) if name in self._fixed else self._drawn(found)
            self._codes[name] = (found, code)
            self.extra[name] = dimension
        found, code = self._codes[name]
        if name not in self._plain and self.extra[name] != dimension:
            raise UserError(
                f"custom_search_space: {name} was suggested as {self.extra[name]} and then as {dimension}",
                remedy="Suggest a parameter once in a trial, or with the same arguments.",
            )
        return found.plain(code)

    def _drawn(self, found: Axis) -> Code:
        with asked("sampler"):
            return found.code_of(self._external(found))

    def _external(self, found: Axis) -> External:
        match found.distribution:
            case FloatDistribution(low=low, high=high, step=step, log=log):
                return self._trial.suggest_float(found.name, low, high, step=step, log=log)
            case IntDistribution(low=low, high=high, step=step, log=log):
                return self._trial.suggest_int(found.name, low, high, step=step, log=log)
            case CategoricalDistribution(choices=choices):
                return str(self._trial.suggest_categorical(found.name, choices))
            case _:
                raise AssertionError(found.distribution)


SuggestMore = Callable[[TrialProxy], None]
"""A define-by-run function, or what stands for it: user code runs in a child of its own."""
