"""Outcome objects and config texts in the store: enough to know how a trial ended without the database (ONCE)."""

from __future__ import annotations

import json

from sweeper.checkpoint.keys import (
    AttemptKey,
    attempt_prefix,
    config_key,
    outcome_key,
    parse_manifest_key,
    parse_outcome_key,
    sweep_prefix,
    trial_prefix,
)
from sweeper.checkpoint.objects import ObjectStore
from sweeper.checkpoint.sealed import object_hash, seal, unseal
from sweeper.errors import CheckpointCorrupt, ObjectExists, ObjectMissing
from sweeper.ids import ConfigHash, SweepId
from sweeper.model.outcome import Outcome


def write_outcome(store: ObjectStore, outcome: Outcome) -> tuple[str, str]:
    """Store a trial's end under its attempt's own prefix; give the key and the SHA-256 of the object.

    Raises:
        ObjectExists: this attempt already ended differently.
        StoreUnavailable, StoreDenied: see `ObjectStore`.
    """
    prefix = attempt_prefix(outcome.sweep_id, outcome.config_hash, outcome.fence, outcome.lease_id)
    key = outcome_key(prefix)
    data = seal(json.loads(outcome.to_bytes()))
    store.create(key, data)
    return key, object_hash(data)


def supply_outcome(store: ObjectStore, outcome: Outcome) -> tuple[str, str]:
    """Store an end for an attempt that is over and may have left its own: that one stands. Give key and SHA-256.

    A worker can have written the object and then died, or a trial be cancelled after a failure whose object lies there.
    What is there but unsound is no outcome at all, and is replaced.

    Raises:
        StoreUnavailable, StoreDenied: see `ObjectStore`.
    """
    try:
        return write_outcome(store, outcome)
    except ObjectExists:
        key = outcome_key(attempt_prefix(outcome.sweep_id, outcome.config_hash, outcome.fence, outcome.lease_id))
    data = store.read(key)
    try:
        named = parse_outcome_key(key)
        assert named is not None, "made by `outcome_key`"
        _parse(named, data, key)
    except CheckpointCorrupt:
        data = seal(json.loads(outcome.to_bytes()))
        store.replace(key, data)
    return key, object_hash(data)


def highest_fence(store: ObjectStore, sweep_id: SweepId) -> int:
    """Give the highest fence under which anything of this sweep was saved or ended; 0 when nothing was.

    Raises:
        StoreUnavailable, StoreDenied: cannot tell.
    """
    found = (parse_manifest_key(key) or parse_outcome_key(key) for key in store.list(sweep_prefix(sweep_id)))
    return max((named.fence for named in found if named is not None), default=0)


def read_outcome(store: ObjectStore, key: str) -> Outcome:
    """Read one outcome; it must be sealed and of the attempt that its key names.

    Raises:
        ObjectMissing: there is none.
        CheckpointCorrupt: the object is not such an outcome; as evidence it is void.
    """
    named = parse_outcome_key(key)
    if named is None:
        raise CheckpointCorrupt(f"{key!r:.120} is not an outcome's key")
    return _parse(named, store.read(key), key)


def find_outcomes(store: ObjectStore, sweep_id: SweepId, config_hash: ConfigHash) -> list[tuple[str, str, Outcome]]:
    """Give key, SHA-256 and content of every sound outcome of a trial, of any lineage and state.

    Unsound ones are left out: they are no evidence.

    Raises:
        StoreUnavailable, StoreDenied: cannot tell; never the same as none.
    """
    found = []
    for key in store.list(trial_prefix(sweep_id, config_hash)):
        named = parse_outcome_key(key)
        if named is None:
            continue
        try:
            data = store.read(key)
            found.append((key, object_hash(data), _parse(named, data, key)))
        except (ObjectMissing, CheckpointCorrupt):
            continue
    return found


def write_config(store: ObjectStore, sweep_id: SweepId, config_hash: ConfigHash, lineage: int, text: str) -> None:
    """Store the canonical config text of a lineage, before its first manifest or outcome.

    Raises:
        ObjectExists: another text is there (it would have another hash: a bug, or a damaged object).
        StoreUnavailable, StoreDenied: see `ObjectStore`.
    """
    store.create(config_key(sweep_id, config_hash, lineage), seal({"text": text}))


def read_config(store: ObjectStore, sweep_id: SweepId, config_hash: ConfigHash, lineage: int) -> str:
    """Give the canonical config text of a lineage.

    Raises:
        ObjectMissing, CheckpointCorrupt: there is none, or it is damaged.
    """
    key = config_key(sweep_id, config_hash, lineage)
    content = unseal(store.read(key))
    if not isinstance(content, dict) or not isinstance(text := content.get("text"), str):
        raise CheckpointCorrupt(f"{key} holds no config text")
    return text


def _parse(named: AttemptKey, data: bytes, key: str) -> Outcome:
    content = unseal(data)
    try:
        outcome = Outcome.from_bytes(json.dumps(content).encode())
        inside = (outcome.sweep_id, outcome.config_hash, outcome.fence, outcome.lease_id[:8])
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointCorrupt(f"{key} is not an outcome: {error}") from error
    if inside != (named.sweep_id, named.config_hash, named.fence, named.lease):
        raise CheckpointCorrupt(f"{key} holds the outcome of another attempt")
    return outcome
