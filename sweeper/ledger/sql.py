"""Statements as named, module-level SQL texts whose parameters all have one declared type.

A type per parameter name, kept here once, means that every bind is cast: Postgres infers nothing from a NULL or a
small integer, and a statement has one prepared form. A misspelt parameter fails at import.
"""

from __future__ import annotations

import re
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import TypeEngine

_TEXT = sa.Text()
_INTEGER = sa.Integer()
_BIG = sa.BigInteger()
_DOUBLE: TypeEngine[float] = sa.Double()
_BOOLEAN = sa.Boolean()
_JSON = sa.JSON(none_as_null=True)

_TYPES: Final[dict[str, TypeEngine[Any]]] = {
    "now": sa.DateTime(timezone=True),
    **dict.fromkeys(
        (
            "sweep_id",
            "lease_id",
            "worker_id",
            "asker_id",
            "coordinator_id",
            "standing_id",
            "config_hash",
            "key",
            "kind",
        ),
        _TEXT,
    ),
    **dict.fromkeys(("name", "task", "source_digest", "sweep_dir", "store_url", "state"), _TEXT),
    **dict.fromkeys(("host", "boot_id", "lock_path", "lock_inode", "pool"), _TEXT),
    **dict.fromkeys(("outcome", "reason", "error", "adopted_from", "outcome_key", "outcome_hash"), _TEXT),
    **dict.fromkeys(("manifest_key", "manifest_hash", "evidence", "fault", "config_text", "action", "source"), _TEXT),
    **dict.fromkeys(("trial_id", "fence", "step", "last_step", "head_step", "size_bytes", "ref_fence", "seed"), _BIG),
    **dict.fromkeys(("version", "seen_fence", "checkpoint_id", "after"), _BIG),
    **dict.fromkeys(
        ("code", "number_floor", "threads", "pid", "exit_code", "limit", "keep", "seq", "lineage"), _INTEGER
    ),
    **dict.fromkeys(
        ("max_crashes", "max_no_progress", "checkpoint_keep", "expected", "number", "first", "priority"), _INTEGER
    ),
    **dict.fromkeys(
        ("lease_s", "heartbeat_s", "delay_jitter", "save_s", "older_than_s", "recent_s", "decided_value"), _DOUBLE
    ),
    **dict.fromkeys(("backoff_s", "backoff_max_s"), _DOUBLE),
    **dict.fromkeys(("child_started", "outcome_stored", "from_zero", "default_named", "constrained"), _BOOLEAN),
    **dict.fromkeys(
        (
            "result",
            "identity",
            "search",
            "proposal",
            "overrides_of_one",
            "params_of_one",
            "decided_facts",
        ),
        _JSON,
    ),
    **dict.fromkeys(
        (
            "texts",
            "hashes",
            "overrides",
            "params",
            "metrics",
            "manifest_keys",
            "kinds",
            "actions",
            "facts",
            "keys",
            "attr_keys",
            "attr_values",
            "points",
            "reasons",
            "proposals",
        ),
        ARRAY(_TEXT),
    ),
    **dict.fromkeys(("steps", "at_steps", "trial_ids", "versions", "optuna_trial_ids", "mirror_ids"), ARRAY(_BIG)),
    "study": _TEXT,
    **dict.fromkeys(("numbers", "lineages"), ARRAY(_INTEGER)),
    "values": ARRAY(_DOUBLE),
}


def statement(sql: str) -> sa.TextClause:
    """Give the SQL as an executable whose `:name` parameters are typed by their names."""
    if bare := re.search(r"(?<!:):\w+::", sql):
        raise ValueError(f"{bare.group()} is not taken for a parameter; put it in parentheses")
    names = sa.text(sql).compile().params
    return sa.text(sql).bindparams(*(sa.bindparam(name, type_=_TYPES[name]) for name in names))
