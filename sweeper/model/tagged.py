"""Tagged JSON for plain values: exact, canonical, and never able to name code.

Plain JSON covers null, booleans, text, lists, integers within 2^53, finite floats other than -0.0, and mappings with
text keys of which none starts with `$`. Everything else is a mapping with one key that starts with `$`.
Floats always carry a point or exponent in JSON text (`1.0`), so `1` and `1.0` stay apart; `json` keeps that.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any

from sweeper.model.trial import Json

_SAFE_INTEGER = 2**53
_DECIMAL_BITS = 2000
"""The lowest limit that Python lets anybody set is 640 digits."""


def to_tagged(value: object) -> Json:
    """Give the tagged form of a plain Python value.

    Handles None, bool, int, float, complex, str, bytes, list, tuple, set, frozenset and mappings, nested.

    Raises:
        TypeError: the value (named by its type) has no tagged form.
    """
    match value:
        case None | bool() | str():
            return value
        case int():
            return int(value) if -_SAFE_INTEGER <= value <= _SAFE_INTEGER else {"$int": _integer_text(int(value))}
        case float():
            if math.isfinite(value) and not (value == 0.0 and math.copysign(1.0, value) < 0):
                return float(value)
            return {"$float": _sign(value) + str(abs(float(value)))}
        case complex():
            return {"$complex": [to_tagged(value.real), to_tagged(value.imag)]}
        case bytes() | bytearray():
            return {"$bytes": base64.b64encode(bytes(value)).decode()}
        case tuple():
            return {"$tuple": [to_tagged(item) for item in value]}
        case list():
            return [to_tagged(item) for item in value]
        case set() | frozenset():
            return {"$set": sorted((to_tagged(item) for item in value), key=repr)}
        case Mapping():
            if all(isinstance(key, str) and not key.startswith("$") for key in value):
                return {key: to_tagged(item) for key, item in value.items()}
            return {"$dict": [[to_tagged(key), to_tagged(item)] for key, item in value.items()]}
        case _:
            raise TypeError(f"{type(value).__module__}.{type(value).__qualname__} has no tagged form")


def from_tagged(tagged: Json) -> Any:  # Any: the value's type is in the data
    """Give back the value that `to_tagged` was given.

    Raises:
        ValueError: an unknown or malformed tag.
    """
    if isinstance(tagged, list):
        return [from_tagged(item) for item in tagged]
    if not isinstance(tagged, dict):
        return tagged
    if len(tagged) != 1 or not next(iter(tagged)).startswith("$"):
        return {key: from_tagged(item) for key, item in tagged.items()}
    tag, body = next(iter(tagged.items()))
    try:
        return _untag(tag, body)
    except (TypeError, KeyError, IndexError, OverflowError) as error:
        raise ValueError(f"malformed tag {tag!r}") from error


def _integer_text(value: int) -> str:
    """Decimal, or hexadecimal where Python limits the digits that it converts (`sys.set_int_max_str_digits`)."""
    return str(value) if value.bit_length() <= _DECIMAL_BITS else hex(value)


_TEXT_TAGS = frozenset({"$int", "$float", "$bytes"})


def _sign(value: float) -> str:
    """Give the sign as text; `str` leaves a NaN's out."""
    return "-" if math.copysign(1.0, value) < 0 else ""


def _untag(tag: str, body: Any) -> Any:  # Any: JSON of a shape that the tag decides
    _check_body(tag, body)
    match tag:
        case "$int":
            return int(body, 16 if body.lstrip("-").startswith("0x") else 10)
        case "$float":
            return float(body)
        case "$complex":
            return complex(from_tagged(body[0]), from_tagged(body[1]))
        case "$bytes":
            return base64.b64decode(body, validate=True)
        case "$tuple":
            return tuple(from_tagged(item) for item in body)
        case "$set":
            return {from_tagged(item) for item in body}
        case "$dict":
            return {from_tagged(key): from_tagged(item) for key, item in body}
        case _:
            raise ValueError(f"unknown tag {tag!r}")


def _check_body(tag: str, body: object) -> None:
    if type(body) is not (str if tag in _TEXT_TAGS else list):
        raise ValueError(f"{tag!r} does not hold {type(body).__name__}")
