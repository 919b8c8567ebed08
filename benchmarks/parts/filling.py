"""Databases that hold a history already: the rows that each side would have written, by COPY."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import optuna
import psycopg
from optuna.distributions import distribution_to_json
from optuna.storages import RDBStorage
from parts.history import DISTRIBUTIONS, past
from parts.ours import CONFIGS, STUDY, begin, hex_id
from parts.servers import optuna_url

from sweeper.ledger.database import open_database
from sweeper.model.search import Proposal

Row = Sequence[object]


def fill_ours(url: str, count: int, *, sampler: str) -> None:
    """Give the ledger a sweep with that many completed trials, and one that is pending."""
    with open_database(url) as database:
        sweep_id, asker_id = begin(database, sampler)
    worker_id, now = hex_id(), datetime.now(UTC)
    history = list(past(count + 1))
    trials = [CONFIGS.identify(trial.params) for trial in history]
    with psycopg.connect(url) as session:
        _copy(
            session,
            "sweeper.trials (trial_id, sweep_id, number, config_hash, state, fence, attempts, step, result, reason,"
            " outcome_key, outcome_hash, outcome_stored, finished_at, version, mirrored_version)",
            (
                (number + 1, sweep_id, number, trial.config_hash, "completed", 1, 1, 5, json.dumps(known.value),
                 "returned", f"sweeps/{sweep_id}/trials/{trial.config_hash}/outcome.json", "0" * 64, True, now, 2, 2)
                for number, (known, trial) in enumerate(zip(history[:-1], trials, strict=False))
            ),
        )  # fmt: skip
        _copy(
            session,
            "sweeper.trials (trial_id, sweep_id, number, config_hash)",
            [(count + 1, sweep_id, count, trials[count].config_hash)],
        )
        _copy(
            session,
            "sweeper.configs (trial_id, lineage, config_text, overrides, params)",
            (
                (number + 1, 0, trial.config_text, json.dumps(list(trial.overrides)), json.dumps(dict(trial.params)))
                for number, trial in enumerate(trials)
            ),
        )
        _copy(
            session,
            "sweeper.numbers (sweep_id, number, trial_id, proposal)",
            (
                (sweep_id, number, number + 1, json.dumps(Proposal(params=known.params).as_json()))
                for number, known in enumerate(history)
            ),
        )
        _copy(
            session,
            "sweeper.attempts (lease_id, trial_id, fence, lineage, worker_id, host, pool, threads, started_at,"
            " first_step, ended_at, outcome, led_to, last_step)",
            (
                (secrets.token_hex(16), number + 1, 1, 0, worker_id, "bench", "local", 1, now, 0, now, "completed",
                 "completed", 5)
                for number in range(count)
            ),
        )  # fmt: skip
        _copy(
            session,
            "sweeper.reports (trial_id, step, at_step, value, metrics, fence, reported_at)",
            (
                (number + 1, step, step, value, "{}", 1, now)
                for number, known in enumerate(history[:-1])
                for step, value in enumerate(known.reports, 1)
            ),
        )
        _copy(session, "sweeper.requests (trial_id, asker_id, sweep_id)", [(count + 1, asker_id, sweep_id)])
        session.execute("UPDATE sweeper.coordinators SET next_number = %s WHERE sweep_id = %s", (count + 1, sweep_id))
        _set_sequence(session, "sweeper.trials", "trial_id", count + 1)
    _settle(url)


def fill_optuna(url: str, count: int) -> None:
    """Give Optuna's tables a study with the same completed trials."""
    study = optuna.create_study(storage=RDBStorage(optuna_url(url)), study_name=STUDY)
    now = datetime.now(UTC).replace(tzinfo=None)
    history = list(past(count))
    with psycopg.connect(url) as session:
        _copy(
            session,
            "trials (trial_id, number, study_id, state, datetime_start, datetime_complete)",
            ((number + 1, number, study._study_id, "COMPLETE", now, now) for number in range(count)),
        )
        _copy(
            session,
            "trial_params (trial_id, param_name, param_value, distribution_json)",
            (
                (number + 1, name, distribution.to_internal_repr(known.params[name]), text)
                for number, known in enumerate(history)
                for name, (distribution, text) in _DESCRIBED.items()
            ),
        )
        _copy(
            session,
            "trial_values (trial_id, objective, value, value_type)",
            ((number + 1, 0, known.value, "FINITE") for number, known in enumerate(history)),
        )
        _copy(
            session,
            "trial_intermediate_values (trial_id, step, intermediate_value, intermediate_value_type)",
            (
                (number + 1, step, value, "FINITE")
                for number, known in enumerate(history)
                for step, value in enumerate(known.reports, 1)
            ),
        )
        _set_sequence(session, "trials", "trial_id", count)
    _settle(url)


_DESCRIBED = {name: (distribution, distribution_to_json(distribution)) for name, distribution in DISTRIBUTIONS.items()}


def _copy(session: psycopg.Connection[object], columns: str, rows: Iterable[Row]) -> None:
    with session.cursor().copy(f"COPY {columns} FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


def _set_sequence(session: psycopg.Connection[object], table: str, column: str, last: int) -> None:
    session.execute("SELECT setval(pg_get_serial_sequence(%s, %s), %s)", (table, column, max(last, 1)))


def _settle(url: str) -> None:
    """What autovacuum would have done by then."""
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("VACUUM ANALYZE")
