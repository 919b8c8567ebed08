"""Opening the ledger that there is, for those who only look."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sweeper.errors import UserError
from sweeper.ledger.database import Database, open_database
from sweeper.ledger.embedded import ensure_server
from sweeper.settings import Places, resolve_places


@contextmanager
def open_ledger(places: Places | None = None) -> Iterator[Database]:
    """Give the ledger that this environment means; the embedded server is started when it has ever been used.

    Raises:
        UserError: nothing there yet, unreachable, wrong password, older schema.
    """
    database = open_database(ledger_url(places or resolve_places()))
    try:
        yield database
    finally:
        database.close()


def ledger_url(places: Places) -> str:
    """Give the database's URL; a command that only looks does not create an embedded one.

    Raises:
        UserError: no database was named and none was ever started under `SWEEPER_HOME`.
    """
    if places.database_url is not None:
        return places.database_url
    if not (places.home / "postgres").exists():
        raise UserError(
            f"there is no ledger yet: no sweep was ever run with SWEEPER_HOME={places.home}",
            remedy="run a sweep (python train.py -m hydra/launcher=sweeper) or set SWEEPER_DATABASE_URL, SWEEPER_HOME",
        )
    return ensure_server(places.home)
