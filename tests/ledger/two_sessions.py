"""Two sessions on one row: the first stands still after its statement, in an open transaction; the second follows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from sweeper.ledger.database import Database
from tests.ledger.world import Clock

T = TypeVar("T")
Databases = tuple[Clock, Database, Database, Database]
"""The clock, a session that looks, the first one and the second one."""
WAIT_S = 10.0


class Standing:
    """`Statements` inside one open transaction, as of a client that was stopped between statement and commit."""

    def __init__(self, connection: sa.Connection, now: Callable[[], datetime | None]) -> None:
        self.connection = connection
        self._now = now

    @property
    def now(self) -> datetime | None:
        return self._now()

    def run(self, statement: sa.Executable, parameters: Mapping[str, Any] = {}) -> Sequence[sa.Row[Any]]:
        result = self.connection.execute(statement, dict(parameters))
        return result.all() if result.returns_rows else ()


@contextmanager
def standing(database: Database) -> Iterator[Standing]:
    """A session whose transaction the test ends with `connection.commit()` or `.rollback()`."""
    with database.transaction() as connection:
        yield Standing(connection, lambda: database.now)


class Second(Generic[T]):
    """A call in another session, on its own thread."""

    def __init__(self, database: Database, call: Callable[[Database], T]) -> None:
        self._result: list[T] = []
        self._error: list[BaseException] = []

        def work() -> None:
            try:
                self._result.append(call(database))
            except BaseException as error:
                self._error.append(error)

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def blocked(self, observer: Database, application_name: str) -> bool:
        """Whether it waits for a lock; False once it is done."""
        pause = threading.Event()
        for _ in range(int(WAIT_S / 0.002)):
            if not self._thread.is_alive():
                return False
            waiting = observer.run(_WAITING, {"name": application_name})
            if waiting:
                return True
            pause.wait(0.002)
        raise AssertionError("the second session neither waits for a lock nor ends")

    def result(self) -> T:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the second session never ended"
        if self._error:
            raise self._error[0]
        return self._result[0]


_WAITING = sa.text(
    "SELECT pid FROM pg_stat_activity WHERE application_name = :name AND wait_event_type = 'Lock' AND state = 'active'"
)
