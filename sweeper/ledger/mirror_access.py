"""The way to the mirror's tables: Optuna's own, in schema `optuna` of the ledger's database.

Optuna opens its own connections, with settings from here. They wait for nothing longer than a bound, and every
transaction begins by choosing the schema: that holds behind a transaction pooler too, where nothing lasts longer than a
transaction and start-up options are refused. Tables of the same names elsewhere in the database, another program's,
are never looked at.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakSet

import psycopg
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict

from sweeper.clock import SystemClock
from sweeper.errors import LedgerUnavailable, UserError
from sweeper.ledger import connections
from sweeper.ledger.connections import STATEMENT_S, BoundedConnection, connection_parameters
from sweeper.ledger.mirror_at_once import write_at_once
from sweeper.ledger.mirror_tables import MIRROR_SCHEMA
from sweeper.ledger.statements import Database
from sweeper.ledger.urls import normalise_url, sqlalchemy_url, with_setting
from sweeper.model.mirror import MirrorChange, MirrorRows

MIRROR_LOCK: Final = 0x5357_4545_4D49_5252
"""Key of the advisory lock under which the tables and a sweep's study are made."""
LOCK_WAIT_S: Final = 60.0
"""Ten processes at once make the tables one after another, half a second each."""
LOCK_FIRST_PAUSE_S: Final = 0.1
LOCK_MOST_PAUSE_S: Final = 1.0
SEARCH_PATH: Final = f"-csearch_path={MIRROR_SCHEMA}"

_GO_DIRECT: Final = (
    "Behind a pooler, give the database's own address in SWEEPER_DATABASE_URL; `sweeper dashboard` works behind it too."
)
_PLUGIN: Final = "sweeper_mirror"
_READY = sa.text(
    f"SELECT to_regclass('{MIRROR_SCHEMA}.version_info') IS NOT NULL"
    f" AND to_regclass('{MIRROR_SCHEMA}.alembic_version') IS NOT NULL AS there"
)
_STAMPED = sa.text(
    f"SELECT EXISTS (SELECT FROM {MIRROR_SCHEMA}.version_info)"
    f" AND EXISTS (SELECT FROM {MIRROR_SCHEMA}.alembic_version) AS stamped"
)
# Of several at once all but one would fail, and a lock alone does not help: who waited for it may still look at what
# the catalog was before.
_MAKE_SCHEMA = sa.text(
    f"DO $$ BEGIN CREATE SCHEMA {MIRROR_SCHEMA}; EXCEPTION WHEN duplicate_schema OR unique_violation THEN NULL; END $$"
)
_TRY_LOCK = sa.text(f"SELECT pg_try_advisory_xact_lock({MIRROR_LOCK})")
_HAS_SCHEMA = sa.text(f"SELECT to_regnamespace('{MIRROR_SCHEMA}') IS NOT NULL AS there")
_CHOOSE = f"SELECT set_config('search_path', '{MIRROR_SCHEMA}', true), set_config('synchronous_commit', 'off', true)"


class MirrorEngine(sa.engine.CreateEnginePlugin):
    """Makes every transaction of an engine that names this plugin choose the mirror's schema.

    Its commits do not wait for the disk: whatever is lost with a crashing server is before the ledger's acknowledgement
    in the same log, so what the ledger says is mirrored has survived.
    """

    def update_url(self, url: sa.URL) -> sa.URL:
        """Leave the URL as it is."""
        return url

    def engine_created(self, engine: sa.Engine) -> None:
        """See the class."""
        sa.event.listen(engine, "begin", _choose)


def _choose(connection: sa.Connection) -> None:
    connection.exec_driver_sql(_CHOOSE)


sa.dialects.plugins.register(_PLUGIN, __name__, MirrorEngine.__name__)


class MirrorAccess:
    """What an Optuna storage on the mirror's tables is opened with, and the lock under which they are made."""

    url: Final = "postgresql+psycopg://"
    """The storage's URL: no host, no password; the connections come from `engine_settings`."""

    def __init__(self, url: str, *, bound_s: float = STATEMENT_S, threads: int = 1) -> None:
        """Remember where; nothing is contacted.

        Args:
            url: the ledger's.
            bound_s: longest wait for an answer.
            threads: how many use the storage at a time.
        """
        self._url = normalise_url(url)
        self._parameters = connection_parameters(self._url, application_name="sweeper mirror")
        self._bound_s = bound_s
        self._threads = threads
        self._connections: WeakSet[BoundedConnection] = WeakSet()

    @property
    def engine_settings(self) -> dict[str, Any]:  # Any: SQLAlchemy's engine arguments
        """Arguments for `create_engine`, which `optuna.storages.RDBStorage` passes on."""
        return {
            "creator": self._connect,
            "plugins": [_PLUGIN],
            "pool_size": self._threads,
            "max_overflow": self._threads,  # Optuna's check of its tables' version uses a second one at the same time
            "hide_parameters": True,
            "use_native_hstore": False,
        }

    def prepare(self) -> bool:
        """Make the schema if it is missing; say whether Optuna's tables are all there.

        Raises:
            LedgerUnavailable: no answer.
            UserError: no permission.
        """
        with Database(self._url, "sweeper mirror") as database:
            try:
                if not database.run(_HAS_SCHEMA)[0].there:
                    database.run(_MAKE_SCHEMA)
            except sa.exc.ProgrammingError as error:
                raise _not_allowed(error) from error
            return bool(database.run(_READY)[0].there and database.run(_STAMPED)[0].stamped)

    @contextmanager
    def lock(self, *, unless: Callable[[], bool]) -> Iterator[bool]:
        """Be the only one, in this database, that makes tables or studies of a mirror.

        Gives False, with no lock held, as soon as somebody else has done what it was wanted for.

        Args:
            unless: whether that is so.

        Raises:
            LedgerUnavailable: no answer, or others held it for `LOCK_WAIT_S`.
        """
        clock, pause, pause_s = SystemClock(), threading.Event(), LOCK_FIRST_PAUSE_S
        give_up_s = clock.monotonic_s() + LOCK_WAIT_S
        database = Database(self._url, "sweeper mirror", statement_s=LOCK_WAIT_S)
        while not unless():
            with database.transaction() as connection:
                # Who waits holds no connection: a small pooler has none to spare for the one that works.
                if connection.execute(_TRY_LOCK).scalar_one():
                    yield True
                    return
            if clock.monotonic_s() > give_up_s:
                raise LedgerUnavailable(f"database {database.where}: others are making the mirror's tables")
            pause.wait(pause_s)
            pause_s = min(2 * pause_s, LOCK_MOST_PAUSE_S)  # each look is two connections, beside the one that works
        yield False

    def write_at_once(
        self,
        study_id: int,
        *,
        mark_key: str,
        mark: str,
        entries: Sequence[MirrorRows],
        changes: Sequence[MirrorChange],
    ) -> list[int] | None:
        """See `sweeper.ledger.mirror_at_once`."""
        return write_at_once(self._url, study_id, mark_key=mark_key, mark=mark, entries=entries, changes=changes)

    def close(self) -> None:
        """Close every connection that Optuna was given; one that could not be opened whole leaves some."""
        for connection in list(self._connections):
            connection.close()

    def explain(self, error: BaseException) -> str:
        """Say in one line what went wrong, without the password."""
        secret = self._parameters.get("password")
        found: BaseException | None = error
        while found is not None:
            if isinstance(found, psycopg.Error):
                return connections.cause_of(found, secret=secret)
            found = getattr(found, "orig", None) or found.__cause__
        return connections.cause_of(error, secret=secret) or type(error).__name__

    def _connect(self) -> BoundedConnection:
        # Not in AUTOCOMMIT: Optuna numbers trials under a row lock that has to last as long as its transaction.
        connection = BoundedConnection.connect(**self._parameters, prepare_threshold=None)
        connection.bound_s = self._bound_s
        self._connections.add(connection)
        return connection


def storage_url(url: str) -> str:
    """The URL with which plain Optuna and optuna-dashboard open the mirror; needs a direct connection."""
    normal = normalise_url(url)
    options = conninfo_to_dict(normal).get("options")
    return sqlalchemy_url(with_setting(normal, "options", f"{options} {SEARCH_PATH}" if options else SEARCH_PATH))


def refuse_pooler(url: str) -> None:
    """See that the storage URL works for programs that know nothing of us.

    Raises:
        UserError: something in between refuses or swallows start-up options, or the database does not answer.
    """
    parameters: Mapping[str, Any] = connection_parameters(
        "postgresql" + storage_url(url).partition("+psycopg")[2], application_name="sweeper"
    )
    try:
        with BoundedConnection.connect(**parameters, autocommit=True, prepare_threshold=None) as connection:
            row = connection.execute("SELECT current_schema()").fetchone()
    except psycopg.OperationalError as error:
        cause = connections.cause_of(error, secret=parameters.get("password"))
        raise UserError(
            f"plain Optuna cannot connect with the mirror's URL: {cause}",
            remedy=_GO_DIRECT,
        ) from error
    if row is None or row[0] != MIRROR_SCHEMA:
        raise UserError(
            "something between here and the database ignores start-up options: plain Optuna would not find the mirror",
            remedy=_GO_DIRECT,
        )


def _not_allowed(error: sa.exc.ProgrammingError) -> UserError:
    cause = error.orig.diag.message_primary if isinstance(error.orig, psycopg.Error) else str(error)
    return UserError(
        f"no permission to make schema {MIRROR_SCHEMA!r} for the mirror: {cause}",
        remedy=f"Have the database's owner run: CREATE SCHEMA {MIRROR_SCHEMA} AUTHORIZATION the_user",
    )
