"""Writing a mirrored study as a whole, by COPY: only into tables of the revision that we know.

All in one transaction: readers see the study that there was until the new one is complete, and whatever goes wrong
leaves the former. The ledger's map changes with it, at the very end, so that no heartbeat waits for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

import psycopg
import sqlalchemy as sa

from sweeper.errors import LedgerUnavailable
from sweeper.ids import SweepId, TrialId
from sweeper.ledger.mirror_tables import MIRROR_SCHEMA
from sweeper.ledger.sql import statement
from sweeper.ledger.statements import Database
from sweeper.model.mirror import MirrorAck, MirrorRows

KNOWN_REVISION: Final = "v3.2.0.a"
"""Revision of Optuna's tables, as its own migrations name it."""
COPY_S: Final = 120.0
"""Longest wait for one answer of the server."""

_CHILDREN: Final = (
    "trial_user_attributes",
    "trial_system_attributes",
    "trial_params",
    "trial_values",
    "trial_intermediate_values",
    "trial_heartbeats",
)
_OF_STUDY: Final = ("study_user_attributes", "study_system_attributes", "study_directions")
_NOTE: Final = re.compile(r"(dashboard:)(\d+)(:.+)", re.DOTALL)
"""A study's attribute in which the dashboard keeps a note on a trial."""

_REVISION = sa.text(f"SELECT version_num FROM {MIRROR_SCHEMA}.alembic_version")
_ALONE = sa.text("SELECT pg_try_advisory_xact_lock(:key)")
_STUDY = sa.text(f"INSERT INTO {MIRROR_SCHEMA}.studies (study_name) VALUES (:name) RETURNING study_id")
_DIRECTION = sa.text(
    f"INSERT INTO {MIRROR_SCHEMA}.study_directions (study_id, direction, objective)"
    f" VALUES (:study_id, CAST(:direction AS {MIRROR_SCHEMA}.studydirection), :objective)"
)
_RESERVE = sa.text(
    f"SELECT nextval(pg_get_serial_sequence('{MIRROR_SCHEMA}.trials', 'trial_id')) FROM generate_series(1, :count)"
)
_PLACES = sa.text(
    "SELECT m.trial_id, m.optuna_trial_id FROM sweeper.mirrored m"
    " JOIN sweeper.trials t ON t.trial_id = m.trial_id WHERE t.sweep_id = :sweep_id"
)
# Entries of other people on our study, and those of ours that are over and have no trial any more.
_KEEP = sa.text(f"""
WITH kept AS (
    SELECT t.trial_id, row_number() OVER (ORDER BY t.number) AS place
    FROM {MIRROR_SCHEMA}.trials t
    WHERE t.study_id = :old_id AND (
        NOT EXISTS (SELECT FROM {MIRROR_SCHEMA}.trial_user_attributes a
                    WHERE a.trial_id = t.trial_id AND a.key = :hash_key)
        OR EXISTS (SELECT FROM {MIRROR_SCHEMA}.trial_user_attributes a
                   WHERE a.trial_id = t.trial_id AND a.key = :state_key AND a.value_json = :superseded))
)
UPDATE {MIRROR_SCHEMA}.trials t SET study_id = :new_id, number = :first + k.place - 1
FROM kept k WHERE t.trial_id = k.trial_id
""")
_ATTRIBUTES = sa.text(f"SELECT key, value_json FROM {MIRROR_SCHEMA}.study_system_attributes WHERE study_id = :old_id")
_USER_ATTRIBUTES = sa.text(
    f"SELECT key, value_json FROM {MIRROR_SCHEMA}.study_user_attributes WHERE study_id = :old_id"
)
_LOCK_STUDY = sa.text(f"SELECT FROM {MIRROR_SCHEMA}.studies WHERE study_id = :study_id FOR UPDATE")
_LOCK_TRIALS = sa.text(f"SELECT FROM {MIRROR_SCHEMA}.trials WHERE study_id = :study_id ORDER BY trial_id FOR UPDATE")
_RENAME = sa.text(f"UPDATE {MIRROR_SCHEMA}.studies SET study_name = :name WHERE study_id = :new_id")
_FORGET = sa.text(
    "DELETE FROM sweeper.mirrored m USING sweeper.trials t WHERE t.trial_id = m.trial_id AND t.sweep_id = :sweep_id"
)
_REMEMBER = statement("""
WITH given AS (
    SELECT g.trial_id, g.version, g.optuna_trial_id, g.lineage, g.at_step
    FROM unnest(:trial_ids, :versions, :optuna_trial_ids, :numbers, :at_steps)
        AS g (trial_id, version, optuna_trial_id, lineage, at_step)
), placed AS (
    INSERT INTO sweeper.mirrored (trial_id, optuna_trial_id, lineage, at_step, study)
    SELECT g.trial_id, g.optuna_trial_id, g.lineage, g.at_step, :study FROM given g
), due AS MATERIALIZED (
    SELECT t.trial_id, g.version FROM sweeper.trials t JOIN given g ON g.trial_id = t.trial_id
    WHERE t.version >= g.version AND t.mirrored_version <> g.version
    ORDER BY t.trial_id FOR NO KEY UPDATE OF t
)
UPDATE sweeper.trials t SET mirrored_version = d.version FROM due d WHERE t.trial_id = d.trial_id
""")


class StudyCopy:
    """A study that is being written, in an open transaction."""

    def __init__(self, connection: sa.Connection, study_id: int, *, count: int = 0) -> None:
        self.study_id = study_id
        self._connection = connection
        self._count = count

    def add(self, entries: Sequence[MirrorRows]) -> list[int]:
        """Append entries; give their ids, in order."""
        if not entries:
            return []
        ids = [int(row[0]) for row in self._connection.execute(_RESERVE, {"count": len(entries)})]
        pairs = list(zip(ids, entries, strict=True))
        first, self._count = self._count, self._count + len(entries)
        self._copy(
            "trials (trial_id, number, study_id, state, datetime_start, datetime_complete)",
            (
                (id_, first + at, self.study_id, entry.state, naive(entry.started_at), naive(entry.finished_at))
                for at, (id_, entry) in enumerate(pairs)
            ),
        )
        self._copy(
            "trial_params (trial_id, param_name, param_value, distribution_json)",
            ((id_, *param) for id_, entry in pairs for param in entry.params),
        )
        self._copy(
            "trial_values (trial_id, objective, value, value_type)",
            ((id_, at, *typed(value)) for id_, entry in pairs for at, value in enumerate(entry.values)),
        )
        for table, attrs in (("user", [e.user_attrs for e in entries]), ("system", [e.system_attrs for e in entries])):
            self._copy(
                f"trial_{table}_attributes (trial_id, key, value_json)",
                ((id_, *pair) for id_, pairs_of_one in zip(ids, attrs, strict=True) for pair in pairs_of_one),
            )
        self._copy(
            "trial_intermediate_values (trial_id, step, intermediate_value, intermediate_value_type)",
            ((id_, step, *typed(value)) for id_, entry in pairs for step, value in entry.reports),
        )
        return ids

    def set_attributes(self, *, user: Mapping[str, str], system: Mapping[str, str]) -> None:
        """Write the study's own attributes: JSON by key."""
        for table, attrs in (("user", user), ("system", system)):
            self._copy(
                f"study_{table}_attributes (study_id, key, value_json)",
                ((self.study_id, key, text) for key, text in attrs.items()),
            )

    def keep(self, old_id: int, *, hash_key: str, state_key: str, superseded: str) -> None:
        """Take over from the former study what no trial of the ledger stands for: entries of other people."""
        self._connection.execute(
            _KEEP,
            {
                "old_id": old_id,
                "new_id": self.study_id,
                "first": self._count,
                "hash_key": hash_key,
                "state_key": state_key,
                "superseded": superseded,
            },
        )

    def notes(self, old_id: int, sweep_id: SweepId, new_ids: Mapping[TrialId, int]) -> dict[str, str]:
        """Give the former study's system attributes, the dashboard's notes on trials under the new ids."""
        moved = {
            row.optuna_trial_id: new_ids[TrialId(row.trial_id)]
            for row in self._connection.execute(_PLACES, {"sweep_id": sweep_id})
            if row.trial_id in new_ids
        }
        return {
            _renamed(row.key, moved): row.value_json
            for row in self._connection.execute(_ATTRIBUTES, {"old_id": old_id})
        }

    def user_attributes(self, old_id: int) -> dict[str, str]:
        """Give the former study's user attributes."""
        return {row.key: row.value_json for row in self._connection.execute(_USER_ATTRIBUTES, {"old_id": old_id})}

    def finish(self, name: str, *, old_id: int | None, sweep_id: SweepId, acks: Sequence[MirrorAck]) -> None:
        """Put the study in the place of the former one, and the ledger's map with it; the last thing to do."""
        if old_id is not None:
            self._delete(old_id)
        self._connection.execute(_RENAME, {"name": name, "new_id": self.study_id})
        self._connection.execute(_FORGET, {"sweep_id": sweep_id})
        if acks:
            self._connection.execute(_REMEMBER, _columns(acks))

    def _delete(self, study_id: int) -> None:
        for lock in (_LOCK_STUDY, _LOCK_TRIALS):  # whoever writes a report just now would leave it without its trial
            self._connection.execute(lock, {"study_id": study_id})
        for table in _CHILDREN:
            self._connection.execute(
                sa.text(
                    f"DELETE FROM {MIRROR_SCHEMA}.{table} c USING {MIRROR_SCHEMA}.trials t"
                    " WHERE c.trial_id = t.trial_id AND t.study_id = :study_id"
                ),
                {"study_id": study_id},
            )
        for table in ("trials", *_OF_STUDY, "studies"):
            self._connection.execute(
                sa.text(f"DELETE FROM {MIRROR_SCHEMA}.{table} WHERE study_id = :study_id"), {"study_id": study_id}
            )

    def _copy(self, table: str, rows: Iterable[Sequence[object]]) -> None:
        driver: Any = self._connection.connection.driver_connection  # Any: SQLAlchemy knows no driver's type
        assert isinstance(driver, psycopg.Connection), "the ledger's driver is psycopg"
        with driver.cursor() as cursor, cursor.copy(f"COPY {MIRROR_SCHEMA}.{table} FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)


@contextmanager
def writing_study(url: str, sweep_id: SweepId, *, directions: Sequence[str]) -> Iterator[StudyCopy | None]:
    """Begin a study under a temporary name, in a transaction that ends with the block.

    Gives None, with nothing begun, where the tables are of another revision than `KNOWN_REVISION`.

    Raises:
        LedgerUnavailable: no answer, or another process is writing this sweep's study.
    """
    database = Database(url, "sweeper mirror", statement_s=COPY_S)
    with database.transaction(lock_timeout_s=30.0) as connection:
        if not connection.execute(_ALONE, {"key": int(sweep_id[:15], 16)}).scalar_one():
            raise LedgerUnavailable(f"database {database.where}: another process is writing the sweep's Optuna study")
        if not has_known_tables(connection):
            yield None
            return
        name = f"sweeper:{sweep_id}:new"
        study_id = int(connection.execute(_STUDY, {"name": name}).scalar_one())
        for objective, direction in enumerate(directions):
            connection.execute(
                _DIRECTION, {"study_id": study_id, "direction": direction.upper(), "objective": objective}
            )
        yield StudyCopy(connection, study_id)


def has_known_tables(connection: sa.Connection) -> bool:
    """Say whether Optuna's tables are of the revision for which rows are written here."""
    return bool(connection.execute(_REVISION).scalar_one() == KNOWN_REVISION)


def rename_study(url: str, study_id: int, name: str) -> None:
    """Give a study another name, which Optuna itself cannot."""
    with Database(url, "sweeper mirror") as database:
        database.run(_RENAME, {"name": name, "new_id": study_id})


def _columns(acks: Sequence[MirrorAck]) -> dict[str, object]:
    return {
        "study": acks[0].place.study,
        "trial_ids": [ack.trial_id for ack in acks],
        "versions": [ack.version for ack in acks],
        "optuna_trial_ids": [ack.place.optuna_trial_id for ack in acks],
        "numbers": [ack.place.lineage for ack in acks],
        "at_steps": [ack.place.last_step for ack in acks],
    }


def _renamed(key: str, moved: Mapping[int, int]) -> str:
    note = _NOTE.fullmatch(key)
    return key if note is None else f"{note[1]}{moved.get(int(note[2]), int(note[2]))}{note[3]}"


def typed(value: float) -> tuple[float | None, str]:
    """Give a number as Optuna keeps it: what is not finite has only a kind."""
    if math.isnan(value):
        return None, "NAN"
    if math.isinf(value):
        return None, "INF_POS" if value > 0 else "INF_NEG"
    return value, "FINITE"


def naive(when: datetime | None) -> datetime | None:
    """Give a time as Optuna keeps it: UTC that does not say so."""
    return None if when is None else when.astimezone(UTC).replace(tzinfo=None)
