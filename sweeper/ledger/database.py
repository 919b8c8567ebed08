"""Opening the ledger: connect, make or check the tables. What callers need is exported here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sweeper.ledger.first_contact import insist
from sweeper.ledger.schema import prepare_schema
from sweeper.ledger.statements import Database, Statements

__all__ = ["Database", "Statements", "open_database"]


def open_database(
    url: str,
    application_name: str = "sweeper",
    now: Callable[[], datetime | None] = lambda: None,
    *,
    patience_s: float = 2.0,
) -> Database:
    """Connect, and make or check the tables; safe when many processes do it at once.

    `patience_s` is how long a server that refuses to answer is tried again (it may be starting, or out of
    connections); one that asks for a password and does not like it fails at once.

    Raises:
        UserError: unreachable, wrong password, unknown database, TLS demanded in vain, older or newer tables.
    """
    database = Database(url, application_name, now)
    try:
        insist(database, lambda: prepare_schema(database), patience_s=patience_s)
    except BaseException:
        database.close()
        raise
    return database
