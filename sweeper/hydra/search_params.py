"""`hydra.sweeper.params` as override lines, whatever kinds of YAML it is written in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final

from sweeper.errors import UserError
from sweeper.hydra.value_texts import Parse, value_text

SETTING: Final = "hydra.sweeper.params"
_OLD_KINDS: Final = ("float", "int", "categorical")


def params_lines(params: object, parse: Parse) -> list[str]:
    """Give one override line for each entry, in order.

    A text is Hydra's grammar, as on the command line (`x: interval(0,1)`); a number, null or list is that value; a
    mapping goes on with a dotted key, as nested configs do.

    Args:
        params: the node as plain containers.
        parse: parses one override line.

    Raises:
        UserError: an entry that is none of these; names its key.
    """
    if params is None:
        return []
    if not isinstance(params, Mapping):
        raise UserError(f"{SETTING}={params!r:.80} is no mapping", remedy="write {x: 'interval(0,1)'}")
    return list(_entries(params, "", parse))


def refuse_old_space(search_space: object) -> None:
    """Refuse the plugin's former `search_space`, saying how each of its entries is written today.

    Raises:
        UserError: it is not empty.
    """
    if not search_space:
        return
    today = "a mapping of names to interval(…), range(…) or choice(…)"
    if isinstance(search_space, Mapping):
        written = [f"{name}: {_today(entry)}" for name, entry in search_space.items() if isinstance(entry, Mapping)]
        today = f"{{{', '.join(written)}}}" if written else today
    raise UserError("hydra.sweeper.search_space is no longer read", remedy=f"write hydra.sweeper.params: {today}")


def _entries(params: Mapping[Any, Any], prefix: str, parse: Parse) -> Iterator[str]:  # Any: YAML
    for name, value in params.items():
        key = f"{prefix}{name}"
        match value:
            case None if key.startswith("~"):
                yield key
            case Enum():
                yield f"{key}={value.name}"
            case str():
                yield f"{key}={value}"
            case Mapping() if not value:
                yield f"{key}={{}}"
            case Mapping() if value.get("type") in _OLD_KINDS:
                raise UserError(
                    f"{SETTING}.{key} is written as the plugin's former search_space",
                    remedy=f"write {key}: {_today(value)}",
                )
            case Mapping():
                yield from _entries(value, f"{key}.", parse)
            case _:
                yield f"{key}={value_text(value, parse)}"


def _today(entry: Mapping[Any, Any]) -> str:  # Any: YAML
    if entry.get("type") == "categorical":
        choices = entry.get("choices")
        listed = choices if isinstance(choices, Sequence) and not isinstance(choices, str) else ()
        return f"choice({','.join(str(choice) for choice in listed)})"
    low, high, step = (entry.get(key) for key in ("low", "high", "step"))
    if step is not None and not entry.get("log"):
        return f"range({low},{high},step={step})"
    interval = f"interval({low},{high})"
    interval = f"int({interval})" if entry.get("type") == "int" else interval
    return f"tag(log,{interval})" if entry.get("log") else interval
