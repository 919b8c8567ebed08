"""A damaged checkpoint is never used and never looks like anything else (FALLBACK, CK-03)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sweeper.checkpoint.outcomes import find_outcomes
from sweeper.checkpoint.reader import CheckpointMissing, newest_valid_manifest
from sweeper.checkpoint.store import ObjectStore
from sweeper.errors import CheckpointCorrupt, ObjectMissing, StoreDenied, StoreUnavailable
from sweeper.model.trial import CheckpointRef
from tests.checkpoint.saves import TRIAL, layout_of, load, noise, save, small_save, with_hash


@pytest.fixture
def ref(store: ObjectStore) -> CheckpointRef:
    layout = layout_of([2**20 + 5, 100_000, 70, 900], gap=64)
    return save(store, layout, noise(layout.buffer_bytes))


def pack_of(ref: CheckpointRef) -> str:
    return ref.manifest_key.replace("manifest.json", "p0")


def places(size: int) -> list[int]:
    """Every region of an object: its ends, and places between."""
    return sorted({0, 1, size - 1, size - 2, *random.Random(size).sample(range(size), 40)})


@pytest.mark.parametrize("part", ["pack", "manifest"])
def test_a_flipped_bit_anywhere_is_noticed(store: ObjectStore, ref: CheckpointRef, part: str) -> None:
    key = pack_of(ref) if part == "pack" else ref.manifest_key
    good = store.read(key)
    for place in places(len(good)):
        bad = bytearray(good)
        bad[place] ^= 1 << (place % 8)
        store.replace(key, bytes(bad))
        with pytest.raises(CheckpointCorrupt):
            load(store, ref)
    store.replace(key, good)
    load(store, ref)


def test_a_flipped_bit_in_a_manifest_is_noticed_without_its_row(store: ObjectStore, ref: CheckpointRef) -> None:
    """The seal stands in for the row's hash when the ledger was lost."""
    good = store.read(ref.manifest_key)
    for place in range(0, len(good), 7):
        bad = bytearray(good)
        bad[place] ^= 1
        store.replace(ref.manifest_key, bytes(bad))
        assert newest_valid_manifest(store, lineage=0, **TRIAL) is None


@pytest.mark.parametrize("part", ["pack", "manifest"])
def test_a_truncated_emptied_or_longer_object_is_noticed(store: ObjectStore, ref: CheckpointRef, part: str) -> None:
    key = pack_of(ref) if part == "pack" else ref.manifest_key
    good = store.read(key)
    for end in (0, 1, len(good) // 2, len(good) - 1):
        store.replace(key, good[:end])
        with pytest.raises(CheckpointCorrupt):
            load(store, ref)
    store.replace(key, good + b"\0")
    with pytest.raises(CheckpointCorrupt):
        load(store, ref)


@pytest.mark.parametrize("part", ["pack", "manifest"])
def test_a_missing_object_is_corrupt_and_can_be_told_apart(store: ObjectStore, ref: CheckpointRef, part: str) -> None:
    store.delete([pack_of(ref) if part == "pack" else ref.manifest_key])
    with pytest.raises(CheckpointMissing) as caught:
        load(store, ref)
    assert isinstance(caught.value, CheckpointCorrupt)
    assert isinstance(caught.value, ObjectMissing)


def test_damage_in_an_inline_block_is_noticed(store: ObjectStore) -> None:
    ref = save(store, layout_of([100]), noise(100))
    good = store.read(ref.manifest_key)
    at = good.index(b'"blocks"') + 90
    store.replace(ref.manifest_key, good[:at] + b"AAAA" + good[at + 4 :])
    with pytest.raises(CheckpointCorrupt):
        load(store, ref)


def test_another_saves_manifest_is_not_taken_for_this_one(store: ObjectStore) -> None:
    """Not even when a row names it with the right hash."""
    first, second = small_save(store, seq=1), small_save(store, seq=2, step=20)
    store.replace(second.manifest_key, store.read(first.manifest_key))
    with pytest.raises(CheckpointCorrupt):
        load(store, with_hash(second, first.manifest_hash))


class Failing:
    """A store that does not answer, or does not let us in, at its n-th call."""

    def __init__(self, store: ObjectStore, error: Exception, at: int) -> None:
        self._store, self._error, self._left = store, error, at

    def __getattr__(self, name: str):
        attribute = getattr(self._store, name)
        if not callable(attribute):
            return attribute

        def call(*args, **kwargs):
            self._left -= 1
            if self._left < 0:
                raise self._error
            return attribute(*args, **kwargs)

        return call


@pytest.mark.parametrize("error", [StoreUnavailable("away"), StoreDenied("door shut")], ids=["away", "denied"])
@pytest.mark.parametrize("at", range(3))
def test_not_being_able_to_tell_is_never_corrupt_or_missing(
    store: ObjectStore, ref: CheckpointRef, error: Exception, at: int
) -> None:
    failing = Failing(store, error, at)
    with pytest.raises(type(error)):
        load(failing, ref)
    failing = Failing(store, error, min(at, 2))
    with pytest.raises(type(error)):
        newest_valid_manifest(failing, lineage=0, **TRIAL)
    with pytest.raises(type(error)):
        find_outcomes(Failing(store, error, 0), **TRIAL)


def test_a_store_whose_folder_is_gone_is_unavailable_not_empty(
    store: ObjectStore, ref: CheckpointRef, tmp_path: Path
) -> None:
    """An unmounted file system must not read as "no checkpoint"."""
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreUnavailable):
        load(store, ref)
    with pytest.raises(StoreUnavailable):
        newest_valid_manifest(store, lineage=0, **TRIAL)
    with pytest.raises(StoreUnavailable):
        small_save(store, seq=2)
    assert not (tmp_path / "store").exists(), "nothing was written beside the real store"
