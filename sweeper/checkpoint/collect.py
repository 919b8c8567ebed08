"""Objects of retired checkpoints are removed: rows are retired first, objects go an hour later, then the rows."""

from __future__ import annotations

from collections.abc import Iterable

from sweeper.checkpoint.keys import parse_manifest_key
from sweeper.checkpoint.objects import ObjectStore
from sweeper.ids import SweepId
from sweeper.model.states import CheckpointState
from sweeper.model.trial import CheckpointRef


def delete_checkpoints(store: ObjectStore, refs: Iterable[CheckpointRef], *, sweep_id: SweepId) -> list[CheckpointRef]:
    """Delete everything these retired checkpoints own; give them back, for `forget_checkpoints`. Safe to repeat.

    The manifest goes first, so that what a kill leaves behind is never taken for a checkpoint.

    Raises:
        ValueError: a checkpoint is live, or not of this sweep; nothing of it was deleted.
        StoreUnavailable, StoreDenied: some may be gone; repeat the call.
    """
    done = []
    for ref in refs:
        named = parse_manifest_key(ref.manifest_key)
        if named is None or named.sweep_id != sweep_id or ref.state is CheckpointState.LIVE:
            raise ValueError(f"{ref.manifest_key!r:.160} ({ref.state}) may not be deleted")
        folder = ref.manifest_key.removesuffix("manifest.json")
        store.delete([ref.manifest_key])
        store.delete(store.list(folder))
        done.append(ref)
    return done
