"""The first call to a database that someone named: tried for a moment, then explained to them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from sweeper.clock import SystemClock
from sweeper.errors import LedgerUnavailable, UserError
from sweeper.ledger import connections
from sweeper.ledger.statements import Database

RETRY_S = 0.2


def insist(database: Database, action: Callable[[], object], *, patience_s: float) -> None:
    """Do the first thing on a database, trying again for `patience_s`; what fails then is the user's to mend.

    Raises:
        UserError: in place of `LedgerUnavailable`, with the cause and what to check.
    """
    clock, pause = SystemClock(), threading.Event()
    deadline_s = clock.monotonic_s() + patience_s
    while True:
        try:
            action()
        except LedgerUnavailable as error:
            cause = error.__cause__
            if connections.asked_for_password(cause) or clock.monotonic_s() > deadline_s:
                raise _cannot_use(database, error) from cause
            pause.wait(RETRY_S)
        else:
            return


def _cannot_use(database: Database, error: LedgerUnavailable) -> UserError:
    settings = connections.connection_parameters(database.url, application_name="")
    advice = "Check that the server runs and that host and port in SWEEPER_DATABASE_URL are right."
    if connections.asked_for_password(error.__cause__):
        advice = "Check user, password and database name in SWEEPER_DATABASE_URL."
    elif str(settings.get("sslmode", "")) in ("require", "verify-ca", "verify-full"):
        advice += f" The URL demands TLS (sslmode={settings['sslmode']}): a server without TLS refuses that."
    return UserError(f"cannot use the {error}", remedy=advice)
