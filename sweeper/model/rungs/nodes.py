"""The `scheduler` node of a search, read and checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sweeper.errors import UserError
from sweeper.model.trial import Json

KINDS = ("asha", "hyperband", "pbt")


@dataclass(frozen=True, slots=True, kw_only=True)
class AshaRules:
    """Asynchronous successive halving; resources are counted in the unit of reports' steps."""

    promote: bool = True
    """Whether trials pause at rungs and the best are promoted; otherwise they are stopped there or go on."""
    min_resource: int = 1
    max_resource: int | None = None
    reduction_factor: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class HyperbandRules:
    """Synchronous Hyperband."""

    max_resource: int
    min_resource: int = 1
    reduction_factor: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PbtRules:
    """Population-based training."""

    interval: int
    max_resource: int | None = None
    """Where training ends, if known: nobody pauses there."""
    quantile: float = 0.25
    resample_probability: float = 0.25
    perturb_factors: tuple[float, ...] = (0.8, 1.2)
    mutate: tuple[str, ...] | None = None
    """Parameters that an heir explores; the others it takes over as they are. None: all."""


def read_node(node: Mapping[str, Json], *, names: Iterable[str]) -> AshaRules | HyperbandRules | PbtRules:
    """Read a scheduler's node; `names` are the parameters of the space.

    Raises:
        UserError: unknown kind or key, or a value that cannot be.
    """
    kind = node.get("kind")
    if kind not in KINDS:
        raise UserError(f"scheduler.kind is {kind!r}", remedy=f"It is one of {', '.join(KINDS)}.")
    reader = _Reader(node, str(kind))
    match kind:
        case "asha":
            rules: AshaRules | HyperbandRules | PbtRules = AshaRules(
                promote=reader.word("mode", ("promote", "stop"), "promote") == "promote",
                min_resource=reader.count("min_resource", 1),
                max_resource=reader.perhaps("max_resource"),
                reduction_factor=reader.count("reduction_factor", 3, least=2),
            )
        case "hyperband":
            rules = HyperbandRules(
                max_resource=reader.count("max_resource", None),
                min_resource=reader.count("min_resource", 1),
                reduction_factor=reader.count("reduction_factor", 3, least=2),
            )
        case _:
            rules = PbtRules(
                interval=reader.count("interval", None),
                max_resource=reader.perhaps("max_resource"),
                quantile=reader.share("quantile", 0.25, most=0.5),
                resample_probability=reader.share("resample_probability", 0.25, most=1.0),
                perturb_factors=reader.factors("perturb_factors", (0.8, 1.2)),
                mutate=reader.names("mutate", tuple(names)),
            )
    reader.nothing_else()
    first, name = (rules.interval, "interval") if isinstance(rules, PbtRules) else (rules.min_resource, "min_resource")
    if rules.max_resource is not None and rules.max_resource <= first:
        raise UserError(
            f"scheduler.max_resource is {rules.max_resource}, scheduler.{name} is {first}: nothing would be compared",
            remedy="max_resource is the last step that a full training reports; it must be larger.",
        )
    return rules


class _Reader:
    """Takes known keys out of a node, each with what may stand there."""

    def __init__(self, node: Mapping[str, Json], kind: str) -> None:
        self._left = {key: value for key, value in node.items() if key != "kind"}
        self._kind = kind
        self._known: list[str] = []

    def count(self, key: str, default: int | None, *, least: int = 1) -> int:
        value = self._take(key, default)
        if value is None:
            raise UserError(
                f"scheduler.{key} is not set, and {self._kind} needs it",
                remedy=f"Set scheduler.{key} to a number of steps, as the script reports them.",
            )
        if isinstance(value, float) and value.is_integer():  # 1e3
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self._wrong(key, value, f"a whole number, at least {least}")
        return value

    def perhaps(self, key: str) -> int | None:
        if self._left.get(key) is not None:
            return self.count(key, None)
        self._take(key, None)
        return None

    def word(self, key: str, words: tuple[str, ...], default: str) -> str:
        value = self._take(key, default)
        if value not in words:
            raise self._wrong(key, value, f"one of {', '.join(words)}")
        return str(value)

    def share(self, key: str, default: float, *, most: float) -> float:
        value = self._take(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= most:
            raise self._wrong(key, value, f"a number from 0 to {most:g}")
        return float(value)

    def factors(self, key: str, default: tuple[float, ...]) -> tuple[float, ...]:
        value = self._take(key, list(default))
        numbers = [
            float(one)
            for one in (value if isinstance(value, list) else ())
            if isinstance(one, int | float) and not isinstance(one, bool) and 0 < one < float("inf")
        ]
        if not isinstance(value, list) or not numbers or len(numbers) < len(value):
            raise self._wrong(key, value, "a list of positive numbers, such as [0.8, 1.2]")
        return tuple(numbers)

    def names(self, key: str, known: tuple[str, ...]) -> tuple[str, ...] | None:
        value = self._take(key, None)
        if value is None:
            return None
        names = [str(one) for one in value] if isinstance(value, list) else None
        if names is None or any(name not in known for name in names):
            raise self._wrong(key, value, f"a list of swept parameters: {', '.join(known) or 'there are none'}")
        return tuple(names)

    def nothing_else(self) -> None:
        if self._left:
            raise UserError(
                f"scheduler.{next(iter(self._left))} is no setting of {self._kind}",
                remedy=f"Its settings are {', '.join(self._known)}.",
            )

    def _take(self, key: str, default: Json) -> Json:
        self._known.append(key)
        return self._left.pop(key, default)

    def _wrong(self, key: str, value: Json, wanted: str) -> UserError:
        return UserError(f"scheduler.{key} is {value!r}", remedy=f"It has to be {wanted}.")
