"""Checkpoints: the row is the pointer, there is no other (FALLBACK).

The trial's *head* is the checkpoint that it would resume from. Rows go first, objects later: a retired row's objects
may be deleted once it is old enough, nothing else's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from sweeper.ids import SweepId
from sweeper.ledger.guards import EXTENDED, HELD, NOW, held, receipt, refusal
from sweeper.ledger.pins import PINNED, freed
from sweeper.ledger.pulse import TOUCHED, heartbeat_of
from sweeper.ledger.rows import checkpoint_of
from sweeper.ledger.sql import statement
from sweeper.ledger.statements import Statements
from sweeper.ledger.storable import storable
from sweeper.ledger.superseding import NOT_DECIDED
from sweeper.model.trial import CheckpointRef, Lease

_REF: Final = "c.fence, c.seq, c.step, c.manifest_key, c.manifest_hash, c.size_bytes"

_HEAD: Final = "EXISTS (SELECT FROM sweeper.trials u WHERE u.head_id = c.checkpoint_id)"
"""Of whatever trial: an heir's head is another one's checkpoint."""

_COMMIT = statement(f"""
WITH guarded AS (
    SELECT t.trial_id, t.lineage FROM sweeper.trials t
    WHERE {HELD} AND t.saved_seq < :seq
    FOR NO KEY UPDATE
), committed AS (
    INSERT INTO sweeper.checkpoints
        (trial_id, lineage, lease_id, fence, seq, step, manifest_key, manifest_hash, size_bytes, save_s, committed_at)
    SELECT g.trial_id, g.lineage, :lease_id, :ref_fence, :seq, :step, :manifest_key, :manifest_hash, :size_bytes,
           :save_s, {NOW}
    FROM guarded g
    ON CONFLICT (trial_id, manifest_key) DO NOTHING
    RETURNING checkpoint_id, trial_id, step
), moved AS (
    UPDATE sweeper.trials t
    SET head_id = c.checkpoint_id, head_step = c.step, saved_seq = :seq, step = greatest(t.step, c.step), {EXTENDED}
    FROM committed c
    WHERE t.trial_id = c.trial_id
    RETURNING t.trial_id
), {TOUCHED}
SELECT m.trial_id FROM moved m
""")

_COMMITTED = statement("""
SELECT c.manifest_hash FROM sweeper.checkpoints c
WHERE c.trial_id = :trial_id AND c.manifest_key = :manifest_key AND c.lease_id = :lease_id
""")

_HOLDS = statement(f"SELECT t.saved_seq FROM sweeper.trials t WHERE {HELD}")

_RETIRE = statement(f"""
WITH guarded AS (
    SELECT t.trial_id, t.lineage, t.head_id FROM sweeper.trials t WHERE {HELD} FOR NO KEY UPDATE
), kept AS (
    SELECT c.checkpoint_id FROM sweeper.checkpoints c, guarded g
    WHERE c.trial_id = g.trial_id AND c.lineage = g.lineage AND c.state = 'live'
    ORDER BY c.fence DESC, c.seq DESC LIMIT :keep
), retired AS (
    UPDATE sweeper.checkpoints c SET state = 'retired', retired_at = {NOW}
    FROM guarded g
    WHERE c.trial_id = g.trial_id AND c.state = 'live' AND c.checkpoint_id IS DISTINCT FROM g.head_id
      AND c.checkpoint_id NOT IN (SELECT k.checkpoint_id FROM kept k) AND NOT {PINNED}
    RETURNING {_REF}, c.state
), unpinned AS (
    DELETE FROM sweeper.pins p USING guarded g
    WHERE p.trial_id = g.trial_id AND p.reason = 'heir' AND p.checkpoint_id IS DISTINCT FROM g.head_id
      AND (SELECT count(*) FROM kept) >= :keep
    RETURNING p.checkpoint_id, p.trial_id
), {freed("unpinned")}
SELECT true AS held, {_REF}, c.state FROM guarded LEFT JOIN retired c ON true ORDER BY c.fence, c.seq
""")

_MARK_SUSPECT = statement(f"""
WITH guarded AS (
    SELECT t.trial_id, t.fence, t.lineage, t.stop_step FROM sweeper.trials t WHERE {HELD} FOR NO KEY UPDATE
), known AS (
    SELECT c.checkpoint_id, true AS own FROM sweeper.checkpoints c, guarded g WHERE c.trial_id = g.trial_id
    UNION ALL
    SELECT p.checkpoint_id, false FROM sweeper.pins p, guarded g WHERE p.trial_id = g.trial_id AND p.reason = 'heir'
), marked AS (
    UPDATE sweeper.checkpoints c SET state = 'suspect', evidence = :evidence, retired_at = NULL
    FROM known k
    WHERE c.checkpoint_id = k.checkpoint_id AND c.manifest_key = :manifest_key
), previous AS (
    SELECT c.checkpoint_id, c.trial_id, {_REF}, c.state
    FROM known k JOIN sweeper.checkpoints c ON c.checkpoint_id = k.checkpoint_id CROSS JOIN guarded g
    WHERE c.state = 'live' AND c.manifest_key <> :manifest_key AND (c.lineage = g.lineage OR NOT k.own)
    ORDER BY k.own DESC, c.fence DESC, c.seq DESC, c.checkpoint_id DESC LIMIT 1
), moved AS (
    UPDATE sweeper.trials t SET head_id = p.checkpoint_id, head_step = p.step, step = coalesce(p.step, 0)
    FROM guarded g LEFT JOIN previous p ON true
    WHERE t.trial_id = g.trial_id
), begun AS (
    UPDATE sweeper.attempts a SET first_step = coalesce(p.step, 0)
    FROM guarded g LEFT JOIN previous p ON true
    WHERE a.lease_id = :lease_id AND a.trial_id = g.trial_id
), superseded AS (
    DELETE FROM sweeper.reports r
    USING guarded g LEFT JOIN previous p ON true
    WHERE r.trial_id = g.trial_id AND r.fence < g.fence AND (p.step IS NULL OR r.at_step > p.step) AND {NOT_DECIDED}
)
SELECT {_REF}, c.state, o.config_hash
FROM guarded g LEFT JOIN previous c ON true
LEFT JOIN sweeper.trials o ON o.trial_id = c.trial_id AND o.trial_id <> g.trial_id
""")

_ADOPT = statement(f"""
WITH guarded AS (
    SELECT t.trial_id, t.fence, t.lineage, t.stop_step FROM sweeper.trials t WHERE {HELD} FOR NO KEY UPDATE
), adopted AS (
    INSERT INTO sweeper.checkpoints AS c
        (trial_id, lineage, lease_id, fence, seq, step, manifest_key, manifest_hash, size_bytes, committed_at)
    SELECT g.trial_id, g.lineage, :lease_id, :ref_fence, :seq, :step, :manifest_key, :manifest_hash, :size_bytes, {NOW}
    FROM guarded g
    ON CONFLICT (trial_id, manifest_key) DO UPDATE
    SET state = 'live', retired_at = NULL, lineage = excluded.lineage, manifest_hash = excluded.manifest_hash
    RETURNING c.checkpoint_id, c.trial_id, c.step
), begun AS (
    UPDATE sweeper.attempts a SET first_step = b.step
    FROM adopted b
    WHERE a.lease_id = :lease_id AND a.trial_id = b.trial_id
), superseded AS (
    DELETE FROM sweeper.reports r USING guarded g
    WHERE r.trial_id = g.trial_id AND r.fence < g.fence AND r.at_step > :step AND {NOT_DECIDED}
), moved AS (
    UPDATE sweeper.trials t SET head_id = a.checkpoint_id, head_step = a.step, step = a.step
    FROM adopted a
    WHERE t.trial_id = a.trial_id
    RETURNING t.trial_id
)
SELECT m.trial_id FROM moved m
""")

_COLLECTABLE = statement(f"""
SELECT {_REF}, c.state
FROM sweeper.checkpoints c JOIN sweeper.trials t ON t.trial_id = c.trial_id
WHERE t.sweep_id = :sweep_id AND c.state = 'retired' AND c.retired_at <= {NOW} - make_interval(secs => :older_than_s)
  AND NOT {PINNED} AND NOT {_HEAD}
  AND NOT (t.state = 'running' AND (c.fence = t.fence OR c.lease_id = t.lease_id))
ORDER BY c.retired_at, c.checkpoint_id LIMIT :limit
""")

_FORGET = statement(f"""
DELETE FROM sweeper.checkpoints c
WHERE c.manifest_key = ANY (:manifest_keys) AND c.state = 'retired' AND NOT {PINNED} AND NOT {_HEAD}
""")


def commit_checkpoint(
    db: Statements, lease: Lease, ref: CheckpointRef, *, save_s: float, lease_s: float, heartbeat_s: float | None = None
) -> None:
    """Make the checkpoint the trial's head, and renew the lease. Its manifest is in the store already.

    `ref.seq` rises within a lease. `ref.fence` may be an earlier one of the same worker and lineage (leased again).

    Raises:
        LeaseLost: the lease has ended; stop, delete nothing.
        ValueError: a later save of this lease was committed before (a bug in the caller).
    """
    parameters = {
        "now": db.now,
        **held(lease),
        **_columns(ref),
        "save_s": save_s,
        "lease_s": lease_s,
        "heartbeat_s": heartbeat_of(lease_s, heartbeat_s),
    }
    if not db.run(_COMMIT, parameters):
        _explain(db, lease, ref)


def _explain(db: Statements, lease: Lease, ref: CheckpointRef) -> None:
    """Return if this very commit happened before; otherwise raise why it was refused."""
    rows = db.run(_COMMITTED, _name(lease, ref))
    if rows and rows[0].manifest_hash == ref.manifest_hash:
        return
    holds = db.run(_HOLDS, held(lease))
    if holds:
        raise ValueError(f"save {ref.seq} of {ref.manifest_key} comes after save {holds[0].saved_seq} was committed")
    raise refusal(lease, receipt(db, lease))


def _name(lease: Lease, ref: CheckpointRef) -> dict[str, Any]:
    return {"trial_id": lease.trial_id, "lease_id": lease.lease_id, "manifest_key": ref.manifest_key}


def retire_checkpoints(db: Statements, lease: Lease, *, keep: int) -> list[CheckpointRef]:
    """Retire this trial's live checkpoints except its head, the newest `keep` and the pinned; give those retired now.

    An heir that has as many of its own lets go of what it inherited.

    Raises:
        LeaseLost: the lease has ended.
    """
    rows = db.run(_RETIRE, {"now": db.now, **held(lease), "keep": keep})
    if not rows:
        raise refusal(lease, receipt(db, lease))
    return [checkpoint_of(row) for row in rows if row.manifest_key is not None]


def mark_suspect(db: Statements, lease: Lease, ref: CheckpointRef, *, evidence: str) -> CheckpointRef | None:
    """Set a checkpoint that failed verification aside, and give the trial's new head: the previous live one, or none.

    For an heir the one before its own first is what it inherited, as long as that is kept for it.

    For a holder whose child has not started: its attempt begins at the new head's step. Earlier attempts' reports from
    beyond the new head go: that training will be done again.

    Raises:
        LeaseLost: the lease has ended (a successor may have retired that checkpoint; its absence proves nothing).
    """
    parameters = {**held(lease), "manifest_key": ref.manifest_key, "evidence": storable(evidence)}
    rows = db.run(_MARK_SUSPECT, parameters)
    if not rows:
        raise refusal(lease, receipt(db, lease))
    row = rows[0]
    return None if row.manifest_key is None else replace(checkpoint_of(row), config_hash=row.config_hash)


def adopt_checkpoint(db: Statements, lease: Lease, ref: CheckpointRef) -> None:
    """Make a valid manifest of this lineage, found in the store, the trial's head, where this attempt begins.

    Raises:
        LeaseLost: the lease has ended.
    """
    if not db.run(_ADOPT, {"now": db.now, **held(lease), **_columns(ref)}):
        raise refusal(lease, receipt(db, lease))


def collectable_checkpoints(
    db: Statements, sweep_id: SweepId, *, older_than_s: float, limit: int
) -> list[CheckpointRef]:
    """Checkpoints retired at least `older_than_s` ago, oldest first: their objects may go.

    Never of a current lease, never a trial's head (whoever made it), and never a pinned one.
    """
    parameters = {"now": db.now, "sweep_id": sweep_id, "older_than_s": older_than_s, "limit": limit}
    return [checkpoint_of(row) for row in db.run(_COLLECTABLE, parameters)]


def forget_checkpoints(db: Statements, refs: Sequence[CheckpointRef]) -> None:
    """Drop the rows of retired checkpoints whose objects are gone."""
    if refs:
        db.run(_FORGET, {"manifest_keys": [ref.manifest_key for ref in refs]})


def _columns(ref: CheckpointRef) -> dict[str, Any]:
    return {
        "ref_fence": ref.fence,
        "seq": ref.seq,
        "step": ref.step,
        "manifest_key": ref.manifest_key,
        "manifest_hash": ref.manifest_hash,
        "size_bytes": ref.size_bytes,
    }
