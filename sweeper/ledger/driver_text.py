"""A statement's text as the server takes it: SQLAlchemy's own way through an execution takes the client four times as
long as the driver's, and longer than the server's. Parameters are numbered here, once: the driver would look for named
ones in each text anew, since it remembers none as long as ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.engine.result import IteratorResult, SimpleResultMetaData

_DIALECT: Final = PGDialect_psycopg(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]
_texts: WeakKeyDictionary[sa.TextClause, DriverText] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverText:
    """What a text is compiled to, once."""

    sql: bytes
    """With `$1`, `$2`, …"""
    names: tuple[str, ...]
    """Of its parameters, in that order."""
    convert: tuple[tuple[int, Callable[[Any], Any]], ...]  # Any: a parameter's value, and what the driver makes of it
    """How parameters whose type is not plain are given to the driver, by position."""

    @property
    def binds_now(self) -> bool:
        """Whether the time is among its parameters."""
        return "now" in self.names

    def values(self, parameters: Mapping[str, Any]) -> list[Any]:  # Any: as above
        """Give the parameters as the driver takes them.

        Raises:
            KeyError: one is missing.
        """
        values = [parameters[name] for name in self.names]
        for position, convert in self.convert:
            values[position] = convert(values[position])
        return values


def driver_text(text: sa.TextClause) -> DriverText:
    """Give the compiled form of a text; texts are few and live in modules, so each is compiled once."""
    found = _texts.get(text)
    if found is None:
        found = _texts[text] = _compiled(text)
    return found


def rows_of(names: tuple[bytes | None, ...], values: Sequence[Any]) -> Sequence[sa.Row[Any]]:  # Any: tuples of columns
    """Give what the driver fetched as rows with named columns."""
    result: IteratorResult[Any] = IteratorResult(_columns(names), iter(values))
    return result.all()


@lru_cache(maxsize=512)
def _columns(names: tuple[bytes | None, ...]) -> SimpleResultMetaData:
    return SimpleResultMetaData([(name or b"").decode() for name in names])


def _compiled(text: sa.TextClause) -> DriverText:
    compiled = text.compile(dialect=_DIALECT)
    names = tuple(compiled.positiontup or ())
    found = [compiled.binds[name].type.dialect_impl(_DIALECT).bind_processor(_DIALECT) for name in names]
    return DriverText(
        sql=compiled.string.encode(),
        names=names,
        convert=tuple((position, convert) for position, convert in enumerate(found) if convert is not None),
    )
