"""From one swept override to a dimension: Hydra's override grammar, read as the Optuna sweeper plugin reads it.

`interval(a,b)` is a float range, an integer one where it is cast or tagged (`int(interval(1,8))`, `tag(int,…)`).
`range(a,b,step)` includes its end where the step reaches it, as that plugin has it; for a grid, and wherever Hydra's
own order of values was asked for (descending, sorted, shuffled), it has exactly Hydra's values, without the end.
Everything else is a choice between values, each re-emitted as Hydra would write it.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from typing import Any, Final, TypeVar

from hydra.core.override_parser.types import ChoiceSweep, Glob, IntervalSweep, Override, RangeSweep, Sweep

from sweeper.errors import UserError
from sweeper.hydra.value_texts import Parse, plain_value, value_text
from sweeper.model.space import Choices, Dimension, FloatRange, IntRange, choice_text
from sweeper.model.tagged import to_tagged
from sweeper.model.trial import Json

MAX_CHOICES: Final = 10_000
MAX_INTEGER: Final = 2**53
"""Beyond it, a sampler's floats cannot tell integers apart."""
KNOWN_TAGS: Final = ("log", "int")
_SORTED: Final = re.compile(r"\bsort\s*\(")
_TAGS: Final = re.compile(r"\btag\s*\(\s*((?:\w+\s*,\s*)+)")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a swept override says."""

    dimension: Dimension
    texts: Mapping[str, str] = field(default_factory=dict)
    """For choices: how each is written in an override, by its canonical text (`choice_text`)."""
    notices: tuple[str, ...] = ()


class SweptReader:
    """Reads swept overrides for one search."""

    def __init__(self, *, seed: int, grid: bool, parse: Parse, options: Callable[[str], list[str]]) -> None:
        """Remember what reading depends on.

        Args:
            seed: the sweep's; what is shuffled is in the same order whenever the command is given again (SAME).
            grid: whether every value will be enumerated.
            parse: parses one override line.
            options: the names in a config group, for `glob`.
        """
        self._seed = seed
        self._grid = grid
        self._parse = parse
        self._options = options

    def read(self, override: Override) -> Swept:
        """Read one.

        Raises:
            UserError: it describes nothing that can be searched; names the override.
        """
        value: Any = override._value  # Any: one of Hydra's classes, or what a later Hydra adds
        match value:
            case IntervalSweep() as interval:
                return self._interval(override, interval)
            case RangeSweep() as given:
                return self._range(override, given)
            case ChoiceSweep() as choices:
                values = self._shuffled(override, choices.list) if choices.shuffle else choices.list
                return self._choices(override, values, _tag_notices(override, _tags(override, choices), useful=()))
            case Glob() as glob:
                names = glob.filter(self._options(override.key_or_group))
                if not names:
                    raise UserError(f"{override.input_line}: no config in group {override.key_or_group!r} matches")
                return self._choices(override, names, ())
            case _:
                raise UserError(f"{override.input_line}: this kind of sweep is not known")

    def _interval(self, override: Override, interval: IntervalSweep) -> Swept:
        low, high = _bounds(override, interval.start, interval.end)
        tags = _tags(override, interval)
        log = "log" in tags
        _check_log(override, low, log)
        notices = _tag_notices(override, tags, useful=KNOWN_TAGS)
        if low > high:
            raise UserError(f"{override.input_line}: the interval is empty", remedy="write the lower bound first")
        if "int" in tags or (isinstance(low, int) and isinstance(high, int)):
            return Swept(dimension=_integers(override, int(low), int(high), log=log), notices=notices)
        return Swept(dimension=FloatRange(low=float(low), high=float(high), log=log), notices=notices)

    def _range(self, override: Override, given: RangeSweep) -> Swept:
        start, stop = _bounds(override, given.start, given.stop)
        step = given.step
        if not math.isfinite(step) or step == 0:
            raise UserError(f"{override.input_line}: the step cannot be {step}")
        tags = _tags(override, given)
        if "int" in tags:
            start, stop, step = (_whole(override, value) for value in (start, stop, step))
        notices = _tag_notices(override, tags, useful=KNOWN_TAGS)
        if given.shuffle:
            values = self._shuffled(override, _hydras_values(override, given, tags))
            return self._choices(override, values, notices)
        if step < 0:
            if self._grid:
                return self._choices(override, _hydras_values(override, given, tags), notices)
            low, high, size = _turned(override, start, stop, step)
            return Swept(dimension=_stepped(override, low, high, size, tags), notices=notices)
        exact = self._grid or _SORTED.search(override.get_value_string()) is not None
        last = _last(override, start, stop, step, inclusive=not exact)
        return Swept(dimension=_stepped(override, start, last, step, tags), notices=notices)

    def _choices(self, override: Override, values: Iterable[object], notices: tuple[str, ...]) -> Swept:
        texts: dict[str, str] = {}
        kept: list[Json] = []
        repeated = []
        for value in values:
            text = value_text(value, self._parse)
            tagged = to_tagged(plain_value(value))
            if choice_text(tagged) in texts:
                repeated.append(text)
                continue
            texts[choice_text(tagged)] = text
            kept.append(tagged)
        if len(kept) > MAX_CHOICES:
            raise UserError(f"{override.key_or_group}: {len(kept)} choices are more than the {MAX_CHOICES} allowed")
        if repeated:
            told = ", ".join(dict.fromkeys(repeated))
            notices = (*notices, f"{override.key_or_group}: {told} is given more than once and counts once")
        return Swept(dimension=Choices(values=tuple(kept)), texts=texts, notices=notices)

    def _shuffled(self, override: Override, values: Sequence[T]) -> list[T]:
        mixed = list(values)
        random.Random(f"{self._seed}:{override.key_or_group}").shuffle(mixed)
        return mixed


def _bounds(override: Override, start: Any, stop: Any) -> tuple[Any, Any]:  # Any: Hydra's int or float
    for bound in (start, stop):
        if not isinstance(bound, int | float) or isinstance(bound, bool) or not math.isfinite(bound):
            raise UserError(f"{override.input_line}: a bound cannot be {bound}")
    return start, stop


def _check_log(override: Override, low: float, log: bool) -> None:
    if log and low <= 0:
        raise UserError(
            f"{override.input_line}: a log scale needs a lower bound above 0", remedy="raise the bound, or drop the tag"
        )


def _integers(override: Override, low: int, high: int, *, step: int = 1, log: bool = False) -> IntRange:
    for bound in (low, high):
        if abs(bound) > MAX_INTEGER:
            raise UserError(f"{override.input_line}: {bound} is beyond the integers that a sampler can tell apart")
    _check_log(override, low, log)
    return IntRange(low=low, high=high, step=step, log=log)


def _stepped(
    override: Override, low: Any, high: Any, step: Any, tags: frozenset[str]
) -> Dimension:  # Any: int or float
    log = "log" in tags
    if log and step != 1:
        raise UserError(
            f"{override.input_line}: a range with a step has no log scale",
            remedy="write tag(log,interval(a,b)), or tag(log,int(interval(a,b))) for integers",
        )
    if all(isinstance(value, int) for value in (low, high, step)):
        return _integers(override, low, high, step=step, log=log)
    if log:
        raise UserError(
            f"{override.input_line}: a range of floats has no log scale", remedy="write tag(log,interval(a,b))"
        )
    return FloatRange(low=float(low), high=float(high), step=float(step))


def _last(override: Override, start: Any, stop: Any, step: Any, *, inclusive: bool) -> Any:  # Any: int or float
    """The last value that a step upwards from `start` reaches; decimal, since 0.1 is meant as a tenth."""
    span = (_decimal(stop) - _decimal(start)) / _decimal(step)
    steps = math.floor(span) if inclusive else math.ceil(span) - 1
    if steps < 0:
        raise UserError(f"{override.input_line}: the range is empty")
    last = _decimal(start) + steps * _decimal(step)
    return int(last) if all(isinstance(value, int) for value in (start, stop, step)) else float(last)


def _turned(override: Override, start: Any, stop: Any, step: Any) -> tuple[Any, Any, Any]:  # Any: int or float
    """A descending range, from its lowest value up."""
    lowest = -_last(override, -start, -stop, -step, inclusive=False)
    return lowest, start, -step


def _hydras_values(override: Override, given: RangeSweep, tags: frozenset[str]) -> list[Any]:  # Any: int or float
    values = list(islice(given.range(), MAX_CHOICES + 1))
    if not values:
        raise UserError(f"{override.input_line}: the range is empty")
    if len(values) > MAX_CHOICES:
        raise UserError(f"{override.input_line}: more than the {MAX_CHOICES} values allowed")
    if "int" in tags:
        return [_whole(override, value) for value in values]
    return values


def _whole(override: Override, value: float) -> int:
    if value != int(value):
        raise UserError(f"{override.input_line}: {value} is not an integer", remedy="drop the tag int, or write int(…)")
    return int(value)


def _decimal(value: float) -> Decimal:
    return Decimal(repr(value))


def _tags(override: Override, sweep: Sweep) -> frozenset[str]:
    """All tags: Hydra forgets the inner one of `tag(log,tag(int,…))`, and those of a range that is cast."""
    written = _TAGS.findall(override.get_value_string())
    return frozenset(sweep.tags) | {tag for names in written for tag in names.replace(",", " ").split()}


def _tag_notices(override: Override, tags: frozenset[str], *, useful: tuple[str, ...]) -> tuple[str, ...]:
    """Hydra takes any tag; one that does nothing is often misspelt."""
    idle = sorted(tag for tag in tags if tag not in useful)
    return tuple(f"{override.input_line}: the tag {tag!r} has no effect here" for tag in idle)
