"""A statement's text and parameters as the server takes them, for libpq to send.

Every parameter of ours has one declared type, so nothing is left to find out at each execution: texts are compiled
once, with numbered parameters, and values are written in the form that Postgres reads for their type. What SQLAlchemy
and the driver find out anew for each execution takes the client longer than all the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final
from weakref import WeakKeyDictionary

import psycopg
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.engine.result import IteratorResult, SimpleResultMetaData
from sqlalchemy.types import TypeEngine

Write = Callable[[Any], bytes]  # Any: a parameter's value; never None, which is NULL for every type

_DIALECT: Final = PGDialect_psycopg(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]
_types: Final = psycopg.adapters.types
_texts: WeakKeyDictionary[sa.TextClause, DriverText | None] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverText:
    """What a text is compiled to, once."""

    sql: bytes
    """With `$1`, `$2`, …"""
    names: tuple[str, ...]
    """Of its parameters, in that order."""
    types: tuple[int, ...]
    """Their types' object ids."""
    writers: tuple[Write, ...]

    @property
    def binds_now(self) -> bool:
        """Whether the time is among its parameters."""
        return "now" in self.names

    def values(self, parameters: Mapping[str, Any]) -> list[bytes | None]:  # Any: as above
        """Give the parameters as the server reads them.

        Raises:
            KeyError: one is missing.
            psycopg.DataError: a text has a NUL character.
        """
        given = [parameters[name] for name in self.names]
        return [None if value is None else write(value) for value, write in zip(given, self.writers, strict=True)]


def driver_text(text: sa.TextClause) -> DriverText | None:
    """Give the compiled form of a text; None if the type of a parameter is not declared.

    Texts are few and live in modules, so each is compiled once.
    """
    if text not in _texts:
        _texts[text] = _compiled(text)
    return _texts[text]


def rows_of(names: tuple[bytes | None, ...], values: Sequence[Any]) -> Sequence[sa.Row[Any]]:  # Any: tuples of columns
    """Give what the driver fetched as rows with named columns."""
    result: IteratorResult[Any] = IteratorResult(_columns(names), iter(values))
    return result.all()


@lru_cache(maxsize=512)
def _columns(names: tuple[bytes | None, ...]) -> SimpleResultMetaData:
    return SimpleResultMetaData([(name or b"").decode() for name in names])


def _compiled(text: sa.TextClause) -> DriverText | None:
    compiled = text.compile(dialect=_DIALECT)
    names = tuple(compiled.positiontup or ())
    wires = [_wire(compiled.binds[name].type) for name in names]
    if None in wires:
        return None
    return DriverText(
        sql=compiled.string.encode(),
        names=names,
        types=tuple(wire[0] for wire in wires if wire),
        writers=tuple(wire[1] for wire in wires if wire),
    )


def _wire(type_: TypeEngine[Any]) -> tuple[int, Write] | None:  # Any: a value
    """Give the object id of a type, and how its values are written."""
    if isinstance(type_, sa.ARRAY):
        item = _wire(type_.item_type)
        return item and (_types[_name_of(type_.item_type)].array_oid, _array_of(item[1]))
    name = _name_of(type_)
    return (_types[name].oid, _WRITERS[name]) if name else None


def _name_of(type_: TypeEngine[Any]) -> str:  # Any: a value
    found = [name for declared, name in _NAMES.items() if isinstance(type_, declared)]
    return found[0] if found else ""


def _text(value: str) -> bytes:
    if "\0" in value:
        raise psycopg.DataError("PostgreSQL text cannot contain NUL (0x00) characters")
    return value.encode()


def _array_of(write: Write) -> Write:
    """Elements are quoted whatever they are: then no content can be taken for structure, or for NULL."""

    def element(value: Any) -> bytes:  # Any: as in `Write`
        if value is None:
            return b"NULL"
        return b'"%b"' % write(value).replace(b"\\", rb"\\").replace(b'"', rb"\"")

    return lambda values: b"{%b}" % b",".join(map(element, values))


def _moment(value: datetime) -> bytes:
    return value.isoformat().encode()


_NAMES: Final[Mapping[type[TypeEngine[Any]], str]] = {
    sa.Text: "text",
    sa.BigInteger: "int8",
    sa.Integer: "int4",
    sa.Double: "float8",
    sa.Boolean: "bool",
    sa.DateTime: "timestamptz",
    sa.JSON: "json",
}
"""Of the types that parameters are declared with; the more special ones come first."""

_WRITERS: Final[Mapping[str, Write]] = {
    "text": _text,
    "int8": b"%d".__mod__,
    "int4": b"%d".__mod__,
    "float8": lambda value: repr(float(value)).encode(),
    "bool": lambda value: b"true" if value else b"false",
    "timestamptz": _moment,
    "json": lambda value: _text(json.dumps(value)),
}
