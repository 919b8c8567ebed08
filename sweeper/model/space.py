"""The search space: named dimensions, as data that the ledger can hold and any sampler can be given."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, assert_never

from sweeper.model.trial import Json

MAX_NAME_CHARACTERS: Final = 512
"""What an Optuna study can hold as a parameter's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatRange:
    """Floats from `low` to `high`, both included; `step` and `log` exclude each other."""

    low: float
    high: float
    step: float | None = None
    log: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IntRange:
    """Integers from `low` to `high`, both included where the step reaches them."""

    low: int
    high: int
    step: int = 1
    log: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """One of several values of any kind, each as tagged JSON (`sweeper.model.tagged`), in the order given."""

    values: tuple[Json, ...]

    def position(self, value: Json) -> int | None:
        """Where a value stands, compared by type and value (`1`, `1.0` and `true` differ); None: nowhere."""
        wanted = choice_text(value)
        return next((at for at, known in enumerate(self.values) if choice_text(known) == wanted), None)


Dimension = FloatRange | IntRange | Choices
Space = Mapping[str, Dimension]
"""By parameter name, in the order in which they were given."""


def choice_text(value: Json) -> str:
    """Canonical text of a choice: equal exactly for values of equal type and value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def dimension_as_json(dimension: Dimension) -> dict[str, Json]:
    """Give the stored form; floats stay floats."""
    match dimension:
        case FloatRange():
            return {
                "kind": "float",
                "low": float(dimension.low),
                "high": float(dimension.high),
                "step": None if dimension.step is None else float(dimension.step),
                "log": dimension.log,
            }
        case IntRange():
            return {
                "kind": "int",
                "low": dimension.low,
                "high": dimension.high,
                "step": dimension.step,
                "log": dimension.log,
            }
        case Choices():
            return {"kind": "choice", "values": list(dimension.values)}
        case _:
            assert_never(dimension)


def dimension_from_json(stored: Mapping[str, Json]) -> Dimension:
    """Read the stored form back.

    Raises:
        ValueError: not a dimension of a kind we know.
    """
    fields: dict[str, Any] = dict(stored)  # Any: what is wrong with it shows below
    try:
        match fields.pop("kind"):
            case "float":
                return FloatRange(**fields)
            case "int":
                return IntRange(**fields)
            case "choice":
                return Choices(values=tuple(fields["values"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a dimension: {error}") from error
    raise ValueError(f"not a dimension: {stored!r:.80}")
