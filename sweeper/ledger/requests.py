"""Requests: what commands ask to have run, and the numbers that new configs get.

A config has one trial a sweep, numbered once, for life. Numbers are given by compare-and-set on the sweep's
`next_number`, and a trial is never added without raising it, so whoever wins knows that its configs are still new.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sweeper.errors import LedgerUnavailable
from sweeper.ids import AskerId, ConfigHash, SweepId
from sweeper.ledger.guards import NOW
from sweeper.ledger.reads import trials_with_hashes
from sweeper.ledger.sql import statement
from sweeper.ledger.statements import Statements
from sweeper.model.trial import AskerRecord, NewTrial, Trial

BATCH: Final = 200
"""Configs per statement."""

MAX_ROUNDS: Final = 1000
"""Lost races for the next number before we take the ledger for overloaded; each is lost to somebody who won."""

_REGISTER = statement(f"""
INSERT INTO sweeper.askers (asker_id, sweep_id, host, boot_id, lock_path, lock_inode, pid, seen_at)
VALUES (:asker_id, :sweep_id, :host, :boot_id, :lock_path, :lock_inode, :pid, {NOW})
ON CONFLICT (asker_id) DO UPDATE SET seen_at = excluded.seen_at
""")

_TOUCH = statement(f"UPDATE sweeper.askers a SET seen_at = {NOW} WHERE a.asker_id = :asker_id")

_RETIRE = statement("""
WITH freed AS (
    UPDATE sweeper.coordinators c SET coordinator_id = NULL, lease_expires_at = NULL
    FROM sweeper.askers a
    WHERE a.asker_id = :asker_id AND c.sweep_id = a.sweep_id AND c.coordinator_id = a.asker_id
    RETURNING c.sweep_id
)
DELETE FROM sweeper.askers a
WHERE a.asker_id = :asker_id AND NOT a.standing AND (SELECT count(*) FROM freed) >= 0
""")

_LIST = statement(f"""
SELECT a.asker_id, a.host, a.boot_id, a.lock_path, a.lock_inode, a.pid,
       greatest(0, extract(epoch FROM {NOW} - greatest(a.seen_at, p.awake_since))) AS seconds_silent
FROM sweeper.askers a CROSS JOIN sweeper.pulse p
WHERE a.sweep_id = :sweep_id AND NOT a.standing
ORDER BY a.seen_at, a.asker_id
""")

_LOOK = statement("""
SELECT c.next_number, ARRAY(
    SELECT t.config_hash FROM sweeper.trials t WHERE t.sweep_id = :sweep_id AND t.config_hash = ANY (:hashes)
) AS known
FROM sweeper.coordinators c WHERE c.sweep_id = :sweep_id
""")

_ADD = statement("""
WITH taken AS (
    UPDATE sweeper.coordinators c SET next_number = c.next_number + cardinality(:hashes)
    WHERE c.sweep_id = :sweep_id AND c.next_number = :expected
    RETURNING c.sweep_id
), given AS (
    SELECT n.config_hash, n.config_text, n.overrides, n.params, :expected + n.position::int - 1 AS number
    FROM taken, unnest(:hashes, :texts, :overrides, :params) WITH ORDINALITY
         AS n (config_hash, config_text, overrides, params, position)
), added AS (
    INSERT INTO sweeper.trials (sweep_id, number, config_hash)
    SELECT :sweep_id, g.number, g.config_hash FROM given g
    RETURNING trial_id, number
), configured AS (
    INSERT INTO sweeper.configs (trial_id, lineage, config_text, overrides, params)
    SELECT a.trial_id, 0, g.config_text, g.overrides::json, g.params::json
    FROM added a JOIN given g ON g.number = a.number
), numbered AS (
    INSERT INTO sweeper.numbers (sweep_id, number, trial_id) SELECT :sweep_id, a.number, a.trial_id FROM added a
), asked AS (
    INSERT INTO sweeper.requests (trial_id, asker_id, sweep_id) SELECT a.trial_id, :asker_id, :sweep_id FROM added a
)
SELECT a.trial_id FROM added a
""")

_ASK = statement("""
INSERT INTO sweeper.requests (trial_id, asker_id, sweep_id)
SELECT t.trial_id, :asker_id, :sweep_id FROM sweeper.trials t
WHERE t.sweep_id = :sweep_id AND t.config_hash = ANY (:hashes)
ON CONFLICT (trial_id, asker_id) DO NOTHING
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker(AskerRecord):
    """A command that asks for trials, and for how long it has said nothing."""

    seconds_silent: float


def register_asker(db: Statements, sweep_id: SweepId, asker: AskerRecord) -> None:
    """Write down who asks and how its death can be proved."""
    parameters = {
        "now": db.now,
        "sweep_id": sweep_id,
        "asker_id": asker.asker_id,
        "host": asker.host,
        "boot_id": asker.boot_id,
        "lock_path": asker.lock_path,
        "lock_inode": asker.lock_inode,
        "pid": asker.pid,
    }
    db.run(_REGISTER, parameters)


def touch_asker(db: Statements, asker_id: AskerId) -> None:
    """Say that the command is still there."""
    db.run(_TOUCH, {"now": db.now, "asker_id": asker_id})


def retire_asker(db: Statements, asker_id: AskerId) -> None:
    """Withdraw everything that the command asked for. Trials that run go on; pending ones wait for another command.

    If it was the sweep's coordinator, another may lead at once: the dead keep nobody waiting until their lease ends.
    """
    db.run(_RETIRE, {"asker_id": asker_id})


def list_askers(db: Statements, sweep_id: SweepId) -> list[Asker]:
    """The sweep's commands, longest silent first; without the standing one that `retry_trials` asks through.

    A time in which nobody could reach the ledger is no silence (BLIND).
    """
    return [
        Asker(
            asker_id=AskerId(row.asker_id),
            host=row.host,
            boot_id=row.boot_id,
            lock_path=row.lock_path,
            lock_inode=row.lock_inode,
            pid=row.pid,
            seconds_silent=float(row.seconds_silent),
        )
        for row in db.run(_LIST, {"now": db.now, "sweep_id": sweep_id})
    ]


def request_trials(db: Statements, sweep_id: SweepId, asker_id: AskerId, trials: Sequence[NewTrial]) -> list[Trial]:
    """Ask for trials: gives one per config, in order; the same object's row for the same hash.

    A new config becomes a trial with the sweep's next number, in the order given; a known one takes no number. The
    asker is registered before. Any number of askers may ask for the same configs at once.

    Raises:
        LedgerUnavailable: as any call; repeated, it goes on where it stopped.
    """
    unique = {trial.config_hash: trial for trial in trials}
    hashes = list(unique)
    found: dict[ConfigHash, Trial] = {}
    for start in range(0, len(hashes), BATCH):
        batch = hashes[start : start + BATCH]
        _request(db, sweep_id, asker_id, [unique[hash_] for hash_ in batch])
        found |= {trial.config_hash: trial for trial in trials_with_hashes(db, sweep_id, batch)}
    return [found[trial.config_hash] for trial in trials]


def _request(db: Statements, sweep_id: SweepId, asker_id: AskerId, batch: Sequence[NewTrial]) -> None:
    hashes = [trial.config_hash for trial in batch]
    for _ in range(MAX_ROUNDS):
        seen = db.run(_LOOK, {"sweep_id": sweep_id, "hashes": hashes})[0]
        known = set(seen.known)
        new = [trial for trial in batch if trial.config_hash not in known]
        if new and not db.run(_ADD, _rows(sweep_id, asker_id, seen.next_number, new)):
            continue
        if known:
            db.run(_ASK, {"sweep_id": sweep_id, "asker_id": asker_id, "hashes": sorted(known)})
        return
    raise LedgerUnavailable(f"no number was free in {MAX_ROUNDS} tries: too many commands add trials to this sweep")


def _rows(sweep_id: SweepId, asker_id: AskerId, expected: int, new: Sequence[NewTrial]) -> Mapping[str, Any]:
    return {
        "sweep_id": sweep_id,
        "asker_id": asker_id,
        "expected": expected,
        "hashes": [trial.config_hash for trial in new],
        "texts": [trial.config_text for trial in new],
        "overrides": [json.dumps(list(trial.overrides)) for trial in new],
        "params": [json.dumps(dict(trial.params), allow_nan=False) for trial in new],
    }
