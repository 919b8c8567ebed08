"""The canonical text of a config and its SHA-256: what "the same config" means (docs/config-identity.md).

Pure and small on purpose: plain values in, text out. What a value *is* (interpolations, enums of a structured config,
what is left out) is decided by `sweeper.hydra.identity`, which hands the outcome to `canonical_document`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import Final

from sweeper.errors import UserError
from sweeper.ids import ConfigHash
from sweeper.model.tagged import to_tagged
from sweeper.model.trial import Json

FORMAT: Final = 1
"""Raised when the rules change; part of the text, so hashes of different rules never meet."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A leaf that counts by what was written, because its value depends on the machine or the moment."""

    text: str


_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_PLAIN: Final = frozenset({int, float, bool, type(None)})


@dataclass(frozen=True, slots=True)
class Missing:
    """A mandatory value that was not given (`???`) and is allowed to be absent."""


def canonical_value(value: object, key: str = "") -> Json:
    """Give the JSON form in which `value` counts.

    Enums count by name, paths by their text, tuples as lists, sets sorted; integers beyond 2**53, non-finite floats,
    -0.0, bytes, and mappings with keys that are not text (or that start with `$`) are tagged and exact.

    Args:
        value: a plain Python value, `Expression` or `Missing`, nested.
        key: the dotted key of the value, for messages.

    Raises:
        UserError: an object without a plain form, text that no database can hold, or two keys that count the same.
    """
    if type(value) in _PLAIN:  # nearly all, and most are asked for in every proposal
        return to_tagged(value)
    match value:
        case Enum():
            return value.name
        case Expression():
            return {"$expression": _checked_text(value.text, key)}
        case Missing():
            return {"$missing": True}
        case str():
            return _checked_text(str(value), key)
        case PurePath():
            return _checked_text(str(value), key)
        case None | bool() | int() | float() | bytes():
            return to_tagged(value)
        case list() | tuple():
            return [canonical_value(item, f"{key}[{index}]") for index, item in enumerate(value)]
        case set() | frozenset():
            items = [canonical_value(item, f"{key}{{}}") for item in value]
            return {"$set": sorted(items, key=_dump)}
        case Mapping():
            return _canonical_mapping(value, key)
        case _:
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            raise UserError(
                f"config key {key!r} holds an object of type {kind}, which has no text form to identify a trial by",
                remedy="describe it with plain values (for example a `_target_` node), or leave it out of the identity "
                f"(hydra.launcher.identity.ignore=[{key}])",
            )


def canonical_document(config: object, *, version: str | None = None) -> str:
    """Give the canonical text of a whole config: UTF-8 JSON, keys sorted by code point, no white space.

    Raises:
        UserError: as `canonical_value`.
    """
    identity = None if version is None else _checked_text(version, "identity.version")
    return _dump({"config": canonical_value(config), "format": FORMAT, "version": identity})


def hash_text(text: str) -> ConfigHash:
    """Give the SHA-256 of a canonical text as 64 hex digits."""
    return ConfigHash(hashlib.sha256(text.encode()).hexdigest())


def _canonical_mapping(value: Mapping[object, object], key: str) -> Json:
    pairs: list[tuple[Json, Json]] = []
    for name, item in value.items():
        child = f"{key}.{name}" if key else str(name)
        pairs.append((canonical_value(name, child), canonical_value(item, child)))
    plain: dict[str, Json] = {name: item for name, item in pairs if isinstance(name, str) and not name.startswith("$")}
    if len(plain) == len(pairs):
        return plain
    seen: set[str] = set()
    for name_form, _ in pairs:
        dumped = _dump(name_form)
        if dumped in seen:
            raise UserError(f"config key {key!r} has two entries that both count as {dumped}")
        seen.add(dumped)
    rows: list[Json] = [[name, item] for name, item in sorted(pairs, key=lambda pair: _dump(pair[0]))]
    return {"$dict": rows}


def _checked_text(text: str, key: str) -> str:
    if "\x00" in text:
        raise UserError(f"config key {key!r} holds a NUL character, which no database text can hold: {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UserError(
            f"config key {key!r} holds text that is not valid Unicode: {text!r}",
            remedy="the argument or file was not UTF-8; check the terminal's encoding",
        ) from None
    return text


def _dump(value: Json) -> str:
    return _ENCODER.encode(value)
