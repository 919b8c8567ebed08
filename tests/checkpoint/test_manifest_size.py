"""A state of very many tensors has a manifest longer than one first read."""

from __future__ import annotations

from sweeper.checkpoint.reader import MANIFEST_FIRST_BYTES
from sweeper.checkpoint.store import ObjectStore
from tests.checkpoint.saves import layout_of, load, noise, save


def test_a_long_manifest_is_read_whole(store: ObjectStore) -> None:
    layout = layout_of([4] * 20_000)
    ref = save(store, layout, noise(layout.buffer_bytes))
    assert store.size(ref.manifest_key) > MANIFEST_FIRST_BYTES
    got, _, memory = load(store, ref)
    assert got == layout
    assert memory == noise(layout.buffer_bytes)
