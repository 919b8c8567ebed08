"""Which checkpoint is the newest: by what valid manifests record, the same on every backend (CK-08)."""

from __future__ import annotations

from sweeper.checkpoint.keys import manifest_key, trial_prefix
from sweeper.checkpoint.reader import newest_valid_manifest
from sweeper.checkpoint.store import ObjectStore
from sweeper.ids import ConfigHash, LeaseId, SweepId
from sweeper.model.trial import CheckpointRef
from tests.checkpoint.saves import CONFIG, SWEEP, TRIAL, load, small_save

pytest_plugins = ["tests.s3_server"]

SECOND = LeaseId("0" * 32)


def newest(store: ObjectStore, lineage: int = 0) -> CheckpointRef | None:
    return newest_valid_manifest(store, lineage=lineage, **TRIAL)


def test_the_step_decides_not_the_name_or_the_time_of_writing(any_store: ObjectStore) -> None:
    """Steps 9, 10 and 100 of attempt 1, then step 60 of attempt 2 written later."""
    small_save(any_store, seq=1, step=9)
    furthest = small_save(any_store, seq=3, step=100)
    small_save(any_store, seq=2, step=10)
    small_save(any_store, seq=1, step=60, fence=2, lease_id=SECOND)
    assert newest(any_store) == furthest


def test_seq_ten_is_after_seq_nine(store: ObjectStore) -> None:
    small_save(store, seq=9, step=5)
    later = small_save(store, seq=10, step=5)
    assert newest(store) == later


def test_at_the_same_step_the_higher_fence_wins(store: ObjectStore) -> None:
    small_save(store, seq=5, step=5, fence=9)
    later = small_save(store, seq=1, step=5, fence=10, lease_id=SECOND)
    assert newest(store) == later


def test_another_lineage_is_void(store: ObjectStore) -> None:
    small_save(store, seq=1, step=900, lineage=0)
    assert newest(store, lineage=1) is None
    mine = small_save(store, seq=1, step=3, lineage=1, fence=2, lease_id=SECOND)
    assert newest(store, lineage=1) == mine


def test_the_newest_that_is_damaged_or_incomplete_is_passed_over(store: ObjectStore) -> None:
    good = small_save(store, seq=1, step=10)
    flipped, headless, packless = (small_save(store, seq=n, step=10 * n) for n in (2, 3, 4))
    store.replace(flipped.manifest_key, store.read(flipped.manifest_key)[:-1])
    store.delete([headless.manifest_key])
    store.delete([packless.manifest_key.replace("manifest.json", "p0")])
    assert newest(store) == good
    load(store, good)


def test_a_manifest_of_another_trial_under_this_ones_prefix_is_passed_over(store: ObjectStore) -> None:
    foreign = store.read(small_save(store, seq=1, step=10).manifest_key)
    other = ConfigHash("d0" * 32)
    key = manifest_key(f"{trial_prefix(SWEEP, other)}1-1ea5e000/", 1)
    store.create(key, foreign)
    assert newest_valid_manifest(store, sweep_id=SWEEP, config_hash=other, lineage=0) is None


def test_a_trial_without_checkpoints_has_none(any_store: ObjectStore) -> None:
    assert newest(any_store) is None
    assert newest_valid_manifest(any_store, sweep_id=SweepId("0" * 32), config_hash=CONFIG, lineage=0) is None
