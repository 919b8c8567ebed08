"""What Hydra's override grammar should accept and does not: null among the arguments of `choice` (OP-08)."""

from __future__ import annotations

from typing import Any, Final, Union

from hydra._internal.grammar import grammar_functions

_TAKE_VALUES: Final = (grammar_functions.choice, grammar_functions.shuffle)


def allow_null_choices() -> None:
    """Let `choice` and `shuffle` take null.

    Hydra checks the arguments of a function in an override against its annotations, each time it makes a parser. They
    leave out null, by oversight: the same values without the function's name may hold it. Done before Hydra parses the
    command line; once or many times is the same.
    """
    for function in _TAKE_VALUES:
        annotations: dict[str, Any] = function.__annotations__  # Any: typing's own forms
        accepted = annotations["args"]
        annotations["args"] = Union[accepted, None]  # noqa: UP007 Hydra looks into a typing.Union only
