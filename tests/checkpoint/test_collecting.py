"""Only what retired checkpoints own is removed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweeper.checkpoint.collect import delete_checkpoints
from sweeper.checkpoint.outcomes import write_outcome
from sweeper.checkpoint.reader import newest_valid_manifest
from sweeper.checkpoint.store import ObjectStore
from sweeper.errors import StoreUnavailable
from sweeper.ids import SweepId
from sweeper.model.states import CheckpointState
from tests.checkpoint.saves import SWEEP, TRIAL, load, small_save
from tests.checkpoint.test_outcomes import OUTCOME


def retired(ref):
    return replace(ref, state=CheckpointState.RETIRED)


def test_a_retired_checkpoint_goes_and_everything_else_stays(store: ObjectStore) -> None:
    old, new = small_save(store, seq=1, step=10), small_save(store, seq=11, step=20)
    key, _ = write_outcome(store, replace(OUTCOME, fence=1))
    assert delete_checkpoints(store, [retired(old)], sweep_id=SWEEP) == [retired(old)]
    load(store, new)
    assert store.list("sweeps/") == sorted([new.manifest_key, new.manifest_key.replace("manifest.json", "p0"), key])


def test_collecting_is_repeatable(store: ObjectStore) -> None:
    ref = retired(small_save(store))
    for _ in range(2):
        assert delete_checkpoints(store, [ref], sweep_id=SWEEP) == [ref]
    assert store.list("sweeps/") == []


def test_what_a_killed_collector_leaves_is_no_checkpoint(store: ObjectStore) -> None:
    class Dying:
        def __init__(self) -> None:
            self.deletes = 0

        def __getattr__(self, name: str):
            return getattr(store, name)

        def delete(self, keys) -> None:
            self.deletes += 1
            if self.deletes == 2:
                raise StoreUnavailable("killed here")
            store.delete(keys)

    ref = retired(small_save(store))
    with pytest.raises(StoreUnavailable):
        delete_checkpoints(Dying(), [ref], sweep_id=SWEEP)
    assert store.list("sweeps/") != []
    assert newest_valid_manifest(store, lineage=0, **TRIAL) is None


def test_a_live_or_foreign_checkpoint_is_refused(store: ObjectStore) -> None:
    ref = small_save(store)
    with pytest.raises(ValueError):
        delete_checkpoints(store, [ref], sweep_id=SWEEP)
    with pytest.raises(ValueError):
        delete_checkpoints(store, [retired(ref)], sweep_id=SweepId("0" * 32))
    with pytest.raises(ValueError):
        delete_checkpoints(store, [retired(replace(ref, manifest_key="sweeps/x"))], sweep_id=SWEEP)
    load(store, ref)
