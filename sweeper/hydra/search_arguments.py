"""What a search's command says of the task's config: parameters to search and fixed values, in the order given.

It is also the way back: parameters of a proposal become the overrides of its job.
"""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from sweeper.errors import UserError
from sweeper.hydra.search_params import SETTING
from sweeper.hydra.space_syntax import Swept, SweptReader
from sweeper.hydra.value_texts import Parse, number_text, value_text
from sweeper.model.space import MAX_NAME_CHARACTERS, Choices, Dimension, FloatRange, IntRange, Space, choice_text
from sweeper.model.tagged import from_tagged
from sweeper.model.trial import Json

_CALL: Final = re.compile(r"\s*\w+\s*\(")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One override of every job: fixed, or set by a parameter."""

    key: str
    """As overrides have it, with `+` or `++`."""
    line: str
    """The whole override where it is fixed."""
    swept: Swept | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchArguments:
    """Parameters and fixed values of a search."""

    slots: Mapping[str, Slot]
    """By parameter name (the key without `+`), in order."""
    notices: tuple[str, ...]
    parse: Parse

    @property
    def space(self) -> dict[str, Dimension]:
        """The dimensions, in order."""
        return {name: slot.swept.dimension for name, slot in self.slots.items() if slot.swept is not None}

    @property
    def fixed(self) -> tuple[str, ...]:
        """The overrides that every job has."""
        return tuple(slot.line for slot in self.slots.values() if slot.swept is None)

    @property
    def fixed_values(self) -> dict[str, str]:
        """What the fixed overrides set, by name, as they are written; deletions left out."""
        return {
            name: slot.line.partition("=")[2]
            for name, slot in self.slots.items()
            if slot.swept is None and not slot.key.startswith("~")
        }

    def overrides(self, params: Mapping[str, Json], keys: Mapping[str, str] | None = None) -> list[str]:
        """Give the overrides of the job with these parameters; an absent parameter has none.

        Args:
            params: by name, as `Proposal.params`.
            keys: how a define-by-run function wrote the names that are not in the space (`+w`).
        """
        lines = []
        for name, slot in self.slots.items():
            if slot.swept is None:
                lines.append(slot.line)
            elif name in params:
                lines.append(f"{slot.key}={self._text(slot.swept, params[name])}")
        for name, value in params.items():
            if name not in self.slots:
                key = (keys or {}).get(name, f"++{name}")
                lines.append(f"{key}={value_text(from_tagged(value), self.parse)}")
        return lines

    def first(self) -> dict[str, Json]:
        """Give the first config's parameters: lowest values and first choices."""
        return {name: first_value(dimension) for name, dimension in self.space.items()}

    def _text(self, swept: Swept, value: Json) -> str:
        plain = from_tagged(value)
        match swept.dimension:
            case FloatRange():
                return number_text(float(plain))
            case IntRange():
                return number_text(int(plain))
            case Choices():
                return swept.texts.get(choice_text(value)) or value_text(plain, self.parse)


def first_value(dimension: Dimension) -> Json:
    """Give a dimension's lowest value or first choice."""
    return dimension.values[0] if isinstance(dimension, Choices) else dimension.low


def grid_size(space: Space) -> int:
    """Give how many configs a space without continuous dimensions has; a continuous one counts as one value."""
    size = 1
    for dimension in space.values():
        match dimension:
            case Choices():
                size *= len(dimension.values)
            case IntRange() | FloatRange():
                size *= round((dimension.high - dimension.low) / dimension.step) + 1 if dimension.step else 1
    return size


def read_arguments(
    params: Sequence[str], task: Sequence[str], *, reader: SweptReader, parse: Parse, seed: int
) -> SearchArguments:
    """Read `hydra.sweeper.params` and the command line; of two values for one key the later one counts.

    Args:
        params: override lines of the config.
        task: override lines of the command line.
        reader: reads what is swept.
        parse: parses one line.
        seed: the sweep's; what the grammar itself shuffles is in the same order whenever it is read.

    Raises:
        UserError: a line that cannot be read, searched or stored.
    """
    slots: dict[str, Slot] = {}
    notices: list[str] = []
    for line, setting in (*((line, SETTING) for line in params), *((line, "") for line in task)):
        with _seeded(f"{seed}:{line}"):
            override = _parse(line, setting, parse)
        name = override.get_key_element().lstrip("+~")
        _check_name(name)
        if override.is_sweep_override():
            _check_swept(override)
            swept = reader.read(override)
            notices += swept.notices
            slots[name] = Slot(key=override.get_key_element(), line="", swept=swept)
        else:
            slots[name] = Slot(key=override.get_key_element(), line=_fixed(override, line, parse))
    return SearchArguments(slots=slots, notices=tuple(notices), parse=parse)


def _fixed(override: Override, line: str, parse: Parse) -> str:
    """The user's own text; the result of a function is written out, so that it is the same in every process."""
    if override.is_delete() or not _CALL.match(override.get_value_string()):
        return line
    return f"{override.get_key_element()}={value_text(override._value, parse)}"


def _parse(line: str, setting: str, parse: Parse) -> Override:
    try:
        return parse(line)
    except HydraException as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"{f'{setting}: ' if setting else ''}{line!r} cannot be read: {reason}",
            remedy="write it as on Hydra's command line; text outside ASCII, or with ,:=()[]{} in it, needs quotes",
        ) from None


def _check_name(name: str) -> None:
    if len(name) > MAX_NAME_CHARACTERS:
        raise UserError(
            f"the parameter {name[:60]!r}… has a name of {len(name)} characters; {MAX_NAME_CHARACTERS} is the most",
            remedy="give it a shorter path in the config",
        )


def _check_swept(override: Override) -> None:
    if override.is_delete():
        raise UserError(f"{override.input_line}: a deletion cannot be searched")
    if override.is_hydra_override():
        raise UserError(
            f"{override.input_line}: Hydra's own settings cannot be searched", remedy="they are the same for all trials"
        )


@contextlib.contextmanager
def _seeded(seed: str) -> Iterator[None]:
    """Hydra's `shuffle([…])` uses the global generator while it is parsed; the task's own numbers are left alone."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
