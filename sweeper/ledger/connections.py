"""How we connect: libpq parameters, bounded waiting, and what a failure means."""

from __future__ import annotations

import select
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import generators, pq
from psycopg.adapt import Transformer
from psycopg.conninfo import conninfo_to_dict

from sweeper.errors import UserError
from sweeper.ledger.urls import SETTING

CONNECT_S = 5
STATEMENT_S = 10.0
CANCEL_S = 1.0
BUSY_AFTER = 20
"""Statements after which a connection is worth a look at where it leads; most commands make fewer."""
KEEP_AFTER = 3
"""Times that a statement comes before the server is asked to keep its plan."""
KEEP_FOR = 4
"""Times as often as it has come by then, until its plan is made anew. One that was made for empty tables walks over all
of them, and they grow about as fast as statements come; the server itself looks again only once they were analyzed."""
KEEPALIVE = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""A peer that vanished is noticed within about 20 s, and firewalls see traffic on idle connections."""

_TRANSIENT_CLASSES = frozenset({"08", "40", "53", "57", "58"})
_TRANSIENT_STATES = frozenset({"25006", "25P02", "25P03", "25P04", "26000", "42P05", "55006", "55P03", "72000"})
_NEW_CONNECTION = frozenset({"25006", "26000", "42P05", "57P01", "57P02", "57P03", "57P04", "57P05"})
"""Read-only (a demoted primary answers reads for days), shutdown, restart: another server may be the right one now.
Somebody discarded the plans that the session kept for us, or has one of that name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeptPlan:
    name: bytes
    until_times: int


class BoundedConnection(psycopg.Connection[Any]):
    """A connection on which nothing waits longer than `bound_s`.

    The bound is kept on this side, so it needs no session state (a pooler would lose or leak a SET, and refuses
    `options` at connect) and holds in a black hole too. On time-out the statement is cancelled on the server if that
    can be reached within `CANCEL_S`, and the connection is closed: what the server did is unknown.
    """

    bound_s: float = STATEMENT_S
    _sent: int = 0
    _named: int = 0
    _keeps_plans: bool = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # Any: as the driver's
        super().__init__(*args, **kwargs)
        self._times: Counter[bytes] = Counter()
        self._kept: dict[bytes, _KeptPlan] = {}
        self._reader = Transformer(self)

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:  # Any: psycopg's generators
        """As psycopg's, with a bound; OperationalError without a SQLSTATE when it is reached."""
        bound_s = self.bound_s if timeout is None else timeout
        try:
            return super().wait(gen, interval=interval, timeout=bound_s)
        except psycopg.OperationalError as error:
            if error.sqlstate is not None or self.pgconn.status != pq.ConnStatus.OK:
                raise
            if self.pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
                self._give_up()
                raise psycopg.OperationalError(f"no answer within {bound_s:g} s") from error
            raise

    def send(
        self, sql: bytes, types: Sequence[int], values: Sequence[bytes | None]
    ) -> tuple[tuple[bytes | None, ...], list[tuple[Any, ...]]]:  # Any: columns
        """Run a statement with numbered parameters, straight through libpq; give the columns' names, and all rows.

        Args:
            sql: with `$1`, `$2`, …
            types: object ids of the parameters' types.
            values: the parameters as text.

        Raises:
            psycopg.Error: as a cursor of this connection would.
        """
        self._sent += 1
        if self._sent == BUSY_AFTER:
            self._look_where_it_leads()
        name = self._name_of_plan(sql, types) if self._keeps_plans else None
        if name is None:
            self.pgconn.send_query_params(sql, values, types)
        else:
            self.pgconn.send_query_prepared(name, values)
        result = self._result()
        self._reader.set_pgresult(result)
        names = tuple(result.fname(column) for column in range(result.nfields))
        return names, self._reader.load_rows(0, result.ntuples, tuple)

    def _name_of_plan(self, sql: bytes, types: Sequence[int]) -> bytes | None:
        times = self._times[sql] = self._times[sql] + 1
        kept = self._kept.get(sql)
        if times < KEEP_AFTER or (kept is not None and times < kept.until_times):
            return None if kept is None else kept.name
        if kept is not None:
            del self._kept[sql]  # whatever becomes of it now: each plan has a name of its own
            self.execute(b"DEALLOCATE " + kept.name)
        self._named += 1
        name = b"sweeper_%d" % self._named
        self.pgconn.send_prepare(name, sql, types)
        self._result()
        self._kept[sql] = _KeptPlan(name=name, until_times=times * KEEP_FOR)
        return name

    def _result(self) -> pq.abc.PGresult:
        result: pq.abc.PGresult = self.wait(generators.execute(self.pgconn))[-1]
        if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            raise psycopg.errors.error_from_result(result, encoding="utf-8")
        return result

    def _look_where_it_leads(self) -> None:
        """Have the server keep the plans of statements that come again, if it is the server that we are talking to.

        Planning one of ours takes longer than running it. Behind a transaction pooler each statement may reach another
        server session, which knows nothing of it; but a pooler answers before there is any, so the process number that
        it told us is not that of the session which runs our statement.
        """
        if self.execute("SELECT pg_backend_pid()").fetchone() != (self.pgconn.backend_pid,):
            return
        # A kept plan stays while tables grow: made for ten rows, it would go on reading a million from end to end.
        self.execute("SET enable_seqscan = off")
        # Left to itself the server plans a statement with arrays each time: it takes an unknown one for a long one.
        self.execute("SET plan_cache_mode = force_generic_plan")
        self._keeps_plans = True

    def _give_up(self) -> None:
        try:
            self.cancel_safe(timeout=CANCEL_S)
        except psycopg.Error:
            pass  # cannot be reached: the server finds out by itself
        finally:
            self.pgconn.finish()


def connection_parameters(url: str, *, application_name: str) -> dict[str, Any]:
    """libpq parameters of a normalised URL, with our defaults where it says nothing. UserError: unknown parameter."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise UserError(f"the database URL cannot be read: {error}", remedy=f"See {SETTING}.") from None
    defaults: dict[str, Any] = {"connect_timeout": CONNECT_S, "application_name": application_name, **KEEPALIVE}
    return {**defaults, **given, "client_encoding": "utf8"}  # as we write it, whatever environment and database say


def connect(parameters: dict[str, Any], *, bound_s: float) -> BoundedConnection:
    """Open a connection in AUTOCOMMIT, without prepared statements (they do not survive a transaction pooler)."""
    connection = BoundedConnection.connect(**parameters, autocommit=True, prepare_threshold=None)
    connection.bound_s = bound_s
    return connection


def has_news(connection: BoundedConnection) -> bool:
    """Whether an idle connection was closed, or the server said something (always bad news); costs no round trip."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def is_transient(error: BaseException | None) -> bool:
    """Whether the same statement may succeed later: judged by SQLSTATE, never by text.

    Without a SQLSTATE it is libpq that failed: no connection, a lost one, or our time bound. Everything else
    (constraints, syntax, types, permissions) is a bug or a decision of the administrator and passes through.
    """
    if not isinstance(error, psycopg.Error):
        return False
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state[:2] in _TRANSIENT_CLASSES or state in _TRANSIENT_STATES


def needs_new_connection(error: BaseException | None) -> bool:
    """Whether all idle connections should go too, so that the next call looks for a writable server."""
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    return state is None or state in _NEW_CONNECTION or state.startswith("08")


def cause_of(error: BaseException, *, secret: str | None) -> str:
    """The driver's own words on one line, with its SQLSTATE; the password cannot be in it."""
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    text = "; ".join(line.strip() for line in (primary or str(error)).splitlines() if line.strip())
    if secret:
        text = text.replace(secret, "***")
    return f"{text} (SQLSTATE {state})" if state else text


def asked_for_password(error: BaseException | None) -> bool:
    """Whether a server answered a failed connect and wanted a password: it is there, so waiting will not help."""
    connection = error.pgconn if isinstance(error, psycopg.Error) else None
    return bool(connection and (connection.needs_password or connection.used_password))
