"""Values as Hydra's override grammar writes them: a text that is read back as exactly that value, type and all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hydra._internal.grammar.utils import escape_special_characters
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException

from sweeper.errors import UserError
from sweeper.model.space import choice_text
from sweeper.model.tagged import to_tagged

Parse = Callable[[str], Override]
"""Parses one override line (`TemplateLoader.parse`)."""


def value_text(value: object, parse: Parse) -> str:
    """Write a value so that `key=<text>` sets exactly it (TRUTH, OP-08).

    Text is written plainly where that is read back as the same text, in quotes where not (`null`, `1`, `a,b`). An
    interpolation stays one. What the user has quoted stays quoted.

    Args:
        value: a plain value, nested or not; texts in it may be Hydra's `QuotedString`.
        parse: Hydra's parser; each text is tried with it before it is trusted.

    Raises:
        UserError: the grammar has no way to write it.
    """
    wanted = exact_text(value)
    for text in _candidates(value):
        if _read(text, parse) == wanted:
            return text
    raise UserError(
        f"the value {plain_value(value)!r} cannot be written as a Hydra override",
        remedy="put it into a config file and choose between files, as a config group",
    )


def number_text(value: float) -> str:
    """Write an int or a float; every float has a point or an exponent and is read back to the last bit."""
    return repr(value)


def plain_value(value: object) -> Any:  # Any: any plain value
    """Take Hydra's quotes off, nested or not."""
    match value:
        case QuotedString():
            return value.text
        case list():
            return [plain_value(item) for item in value]
        case dict():
            return {key: plain_value(item) for key, item in value.items()}
        case _:
            return value


def exact_text(value: object) -> str:
    """Text that is equal exactly for values of equal type and value."""
    return choice_text(to_tagged(plain_value(value)))


def _candidates(value: object) -> Iterator[str]:
    yield _written(value, quote=False)
    yield _written(value, quote=True)


def _written(value: object, *, quote: bool) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return number_text(value)
        case QuotedString():
            return value.with_quotes()
        case str():
            return QuotedString(value, Quote.single).with_quotes() if quote else escape_special_characters(value)
        case list() | tuple():
            return f"[{','.join(_written(item, quote=quote) for item in value)}]"
        case dict():
            # Keys cannot be quoted in this grammar.
            return f"{{{','.join(f'{_written(k, quote=False)}:{_written(v, quote=quote)}' for k, v in value.items())}}}"
        case _:
            raise UserError(f"{value!r:.80} ({type(value).__name__}) is no value that an override can hold")


def _read(text: str, parse: Parse) -> str | None:
    try:
        override = parse(f"key={text}")
        return None if override.is_sweep_override() else exact_text(override.value())
    except (HydraException, TypeError):
        return None
