"""The door to the ledger: one statement at a time in AUTOCOMMIT, every wait bounded, failures sorted.

Each call may fail with `LedgerUnavailable`; its effect is then unknown and the caller repeats it with backoff.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Protocol

import psycopg
import sqlalchemy as sa
from sqlalchemy.sql import visitors

from sweeper.errors import LedgerUnavailable
from sweeper.ledger import connections
from sweeper.ledger.driver_text import DriverText, driver_text, rows_of
from sweeper.ledger.urls import describe, normalise_url

MAX_CONNECTIONS = 2
"""Per Database, and a process needs one Database."""


class Statements(Protocol):
    """Where every statement passes: the simulator wraps it to refuse calls, lose replies and tell the time."""

    @property
    def now(self) -> datetime | None:
        """Bound as `:now` in every statement that has it; None means the database's own clock."""
        ...

    def run(self, statement: sa.Executable, parameters: Mapping[str, Any] = {}) -> Sequence[sa.Row[Any]]:
        """Run ONE statement in AUTOCOMMIT and return all its rows."""
        ...


class Database:
    """`Statements` on a real Postgres, direct or behind a transaction pooler.

    At most `MAX_CONNECTIONS` connections, usable from several threads. No session state behind a pooler: only a busy
    connection that proves to lead straight to the server has it keep plans. In a forked child the parent's connections
    are dropped unused and new ones are made.
    """

    def __init__(
        self,
        url: str,
        application_name: str = "sweeper",
        now: Callable[[], datetime | None] = lambda: None,
        *,
        statement_s: float = connections.STATEMENT_S,
    ) -> None:
        self.url = normalise_url(url)
        self.where = describe(self.url)
        self._now = now
        self._bound_s = statement_s
        self._parameters = connections.connection_parameters(self.url, application_name=application_name)
        self._pid = os.getpid()
        self._engine = self._make_engine(
            poolclass=sa.pool.QueuePool,
            pool_size=1,
            max_overflow=MAX_CONNECTIONS - 1,
            pool_timeout=statement_s,
            pool_reset_on_return=None,
        )
        sa.event.listen(self._engine, "checkout", _refuse_dead)

    @property
    def now(self) -> datetime | None:
        """The time given to statements; None in production."""
        return self._now()

    def run(self, statement: sa.Executable, parameters: Mapping[str, Any] = {}) -> Sequence[sa.Row[Any]]:
        """Run one statement, bounded by connect and statement time-outs.

        Raises:
            LedgerUnavailable: no answer, lost connection, read-only server, deadlock, too many connections, …
            sqlalchemy.exc.DBAPIError: anything that repeating cannot mend (constraint, syntax): a bug.
        """
        text = driver_text(statement) if isinstance(statement, sa.TextClause) else None
        if text is not None:
            given = {**parameters, "now": self._now()} if text.binds_now else parameters
            with self._sorted_errors():
                return self._send(text, given)
        values = {**parameters, "now": self._now()} if _has_now(statement) else dict(parameters)
        with self._sorted_errors(), self._own_engine().connect() as connection:
            result = connection.execute(statement, values)
            return result.all() if result.returns_rows else ()

    @contextmanager
    def transaction(self, *, lock_timeout_s: float = 5.0) -> Iterator[sa.Connection]:
        """A real transaction on a connection of its own, for migrations and rebuild only.

        Waits for locks at most `lock_timeout_s` and cannot sit idle for more than a minute.
        """
        engine = self._make_engine(poolclass=sa.pool.NullPool, isolation_level="READ COMMITTED")
        with self._sorted_errors(), engine.begin() as connection:
            connection.execute(sa.text(f"SET LOCAL lock_timeout = {int(lock_timeout_s * 1000)}"))
            connection.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = 60000"))
            yield connection

    def close(self) -> None:
        """Close idle connections; a later call would open new ones."""
        self._own_engine().dispose()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make_engine(self, **settings: Any) -> sa.Engine:  # Any: SQLAlchemy's engine arguments
        settings = {"isolation_level": "AUTOCOMMIT", **settings}
        return sa.create_engine(
            "postgresql+psycopg://",
            creator=lambda: connections.connect(self._parameters, bound_s=self._bound_s),
            hide_parameters=True,  # configs and values stay out of error texts
            use_native_hstore=False,  # spares a round trip at connect
            **settings,
        )

    def _own_engine(self) -> sa.Engine:
        if self._pid != os.getpid():
            self._engine.dispose(close=False)  # the sockets are the parent's: not even a farewell may be sent on them
            self._pid = os.getpid()
        return self._engine

    def _send(self, text: DriverText, parameters: Mapping[str, Any]) -> Sequence[sa.Row[Any]]:  # Any: values, columns
        """Let the driver run it on a pooled connection. Whatever goes wrong comes as it would from SQLAlchemy."""
        pooled = connection = None
        try:
            pooled = self._own_engine().raw_connection()
            connection = pooled.driver_connection
            assert isinstance(connection, connections.BoundedConnection), "as `connect` made it"
            names, rows = connection.send(text.sql, text.types, text.values(parameters))
            return rows_of(names, rows) if names else ()
        except psycopg.Error as error:
            if pooled is not None and connection is not None and connection.closed:
                pooled.invalidate(error)
            told = text.sql.decode()
            raise sa.exc.DBAPIError.instance(told, None, error, psycopg.Error, hide_parameters=True) from error
        except BaseException:
            if pooled is not None:
                pooled.invalidate()  # in the middle of something
            raise
        finally:
            if pooled is not None:
                pooled.close()

    @contextmanager
    def _sorted_errors(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as error:
            if not connections.is_transient(error.orig):
                raise
            if connections.needs_new_connection(error.orig):
                self._engine.dispose()
            raise self._unavailable(error.orig or error) from error.orig
        except sa.exc.TimeoutError as error:
            raise LedgerUnavailable(f"all {MAX_CONNECTIONS} connections of this process are busy") from error

    def _unavailable(self, error: BaseException) -> LedgerUnavailable:
        cause = connections.cause_of(error, secret=self._parameters.get("password"))
        return LedgerUnavailable(f"database {self.where}: {cause}")


def _refuse_dead(
    connection: Any, record: Any, _proxy: object
) -> None:  # Any: the driver's connection, the pool's entry
    """At each checkout but a connection's first: a dead one is replaced before anybody uses it."""
    if record.info.get("used") and connections.has_news(connection):
        raise sa.exc.InvalidatePoolError  # all pooled ones are suspect; the pool connects anew
    record.info["used"] = True


def _has_now(statement: sa.Executable) -> bool:
    elements = visitors.iterate(statement)  # type: ignore[arg-type]  # every executable we use is a clause
    return any(isinstance(part, sa.BindParameter) and part.key == "now" for part in elements)
