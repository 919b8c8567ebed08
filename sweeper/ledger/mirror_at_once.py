"""Many changes of a mirrored study in one transaction: only in tables of the revision that we know."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import psycopg
import sqlalchemy as sa

from sweeper.ledger.mirror_copy import StudyCopy, has_known_tables, naive, typed
from sweeper.ledger.mirror_tables import MIRROR_SCHEMA
from sweeper.ledger.statements import Database
from sweeper.model.mirror import MirrorChange, MirrorRows

_LOCK_STUDY = sa.text(
    f"SELECT s.study_id FROM {MIRROR_SCHEMA}.studies s JOIN {MIRROR_SCHEMA}.study_user_attributes a"
    " ON a.study_id = s.study_id AND a.key = :key AND a.value_json = :mark"
    " WHERE s.study_id = :study_id FOR UPDATE OF s"
)
_COUNT = sa.text(f"SELECT count(*) FROM {MIRROR_SCHEMA}.trials WHERE study_id = :study_id")
_ASYNCHRONOUS = sa.text("SELECT set_config('synchronous_commit', 'off', true)")
_LOCK_OPEN = sa.text(
    f"SELECT t.trial_id FROM {MIRROR_SCHEMA}.trials t"
    " WHERE t.study_id = :study_id AND t.trial_id = ANY (:ids) AND t.state = 'RUNNING'"
    " ORDER BY t.trial_id FOR UPDATE"
)

# The kinds of a number are enumerations, which a parameter of unknown type becomes by itself.
_END: Final = f"UPDATE {MIRROR_SCHEMA}.trials SET state = %s, datetime_complete = %s WHERE trial_id = %s"
_VALUE: Final = f"""
INSERT INTO {MIRROR_SCHEMA}.trial_values (trial_id, objective, value, value_type) VALUES (%s, %s, %s, %s)
ON CONFLICT (trial_id, objective) DO UPDATE SET value = excluded.value, value_type = excluded.value_type
"""
_REPORT: Final = f"""
INSERT INTO {MIRROR_SCHEMA}.trial_intermediate_values
    (trial_id, step, intermediate_value, intermediate_value_type) VALUES (%s, %s, %s, %s)
ON CONFLICT (trial_id, step) DO UPDATE
SET intermediate_value = excluded.intermediate_value, intermediate_value_type = excluded.intermediate_value_type
"""
_ATTRIBUTE: Final = """
INSERT INTO {schema}.trial_{kind}_attributes (trial_id, key, value_json) VALUES (%s, %s, %s)
ON CONFLICT (trial_id, key) DO UPDATE SET value_json = excluded.value_json
"""
_USER_ATTRIBUTE: Final = _ATTRIBUTE.format(schema=MIRROR_SCHEMA, kind="user")
_SYSTEM_ATTRIBUTE: Final = _ATTRIBUTE.format(schema=MIRROR_SCHEMA, kind="system")


def write_at_once(
    url: str,
    study_id: int,
    *,
    mark_key: str,
    mark: str,
    entries: Sequence[MirrorRows],
    changes: Sequence[MirrorChange],
) -> list[int] | None:
    """Add entries to a study and change running ones, all or nothing.

    Args:
        url: of the ledger.
        study_id: Optuna's.
        mark_key: the study's attribute that tells by whom and when it was written.
        mark: what it must say.
        entries: to be added.
        changes: of entries that run.

    Returns:
        Ids of the added entries, in order. None, with nothing changed, where the tables are of a revision that is not
        known.

    Raises:
        LedgerUnavailable: no answer.
        KeyError: the study is gone or was written anew by somebody, or so it is with an entry that was to be changed.
    """
    database = Database(url, "sweeper mirror")
    with database.transaction() as connection:
        if not has_known_tables(connection):
            return None
        # As Optuna does: the row is locked while numbers are given.
        parameters = {"study_id": study_id, "key": mark_key, "mark": json.dumps(mark)}
        if connection.execute(_LOCK_STUDY, parameters).first() is None:
            raise KeyError(study_id)
        connection.execute(_ASYNCHRONOUS)
        if changes:
            ids = sorted({change.optuna_trial_id for change in changes})
            found = [row.trial_id for row in connection.execute(_LOCK_OPEN, {"study_id": study_id, "ids": ids})]
            if found != ids:
                raise KeyError(next(id_ for id_ in ids if id_ not in found))
            _change(connection, changes)
        if not entries:
            return []
        count = connection.execute(_COUNT, {"study_id": study_id}).scalar_one()
        return StudyCopy(connection, study_id, count=count).add(entries)


def _change(connection: sa.Connection, changes: Sequence[MirrorChange]) -> None:
    driver: Any = connection.connection.driver_connection  # Any: SQLAlchemy knows no driver's type
    assert isinstance(driver, psycopg.Connection), "the ledger's driver is psycopg"
    pairs = [(change.optuna_trial_id, change) for change in changes]
    statements: list[tuple[str, list[tuple[object, ...]]]] = [
        (_REPORT, [(id_, step, *typed(value)) for id_, change in pairs for step, value in change.reports]),
        (_USER_ATTRIBUTE, [(id_, *pair) for id_, change in pairs for pair in change.user_attrs]),
        (_SYSTEM_ATTRIBUTE, [(id_, *pair) for id_, change in pairs for pair in change.system_attrs]),
        (_VALUE, [(id_, at, *typed(value)) for id_, change in pairs for at, value in enumerate(change.values)]),
        (_END, [(one.state, naive(one.finished_at), id_) for id_, one in pairs if one.finished_at is not None]),
    ]
    with driver.cursor() as cursor:
        for sql, rows in statements:
            if rows:
                cursor.executemany(sql.encode(), rows)
