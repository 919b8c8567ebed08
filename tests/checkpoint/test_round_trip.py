"""What was saved comes back, byte for byte, over any layout and on any backend."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.checkpoint.keys import parse_manifest_key
from sweeper.checkpoint.store import ObjectStore, open_store
from sweeper.errors import ObjectExists
from sweeper.model.staging import Layout, SaveFacts, TensorEntry
from tests.checkpoint.saves import layout_of, load, noise, save, small_save

pytest_plugins = ["tests.s3_server"]

JSON_LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON_VALUES = st.recursive(
    JSON_LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
SIZES = st.lists(st.integers(0, 3000) | st.sampled_from([2**16, 2**20 - 1, 2**20, 2**20 + 1]), max_size=12)


@pytest.fixture(scope="module")
def memory_store() -> ObjectStore:
    return open_store(f"memory://{uuid.uuid4().hex}")


@settings(max_examples=80)
@given(sizes=SIZES, gap=st.sampled_from([0, 1, 63]), tree=JSON_VALUES, metrics=JSON_VALUES)
def test_any_layout_comes_back_as_it_was(memory_store: ObjectStore, sizes: list[int], gap: int, tree, metrics) -> None:
    layout = layout_of(sizes, gap=gap, tree=tree)
    staged = noise(layout.buffer_bytes + 17)
    facts = SaveFacts(
        seq=uuid.uuid4().int >> 80, step=3, epoch=1, metrics=metrics, exact=False, inexact_reasons=("threads",)
    )
    ref = save(memory_store, layout, staged, facts=facts)

    got_layout, got_facts, memory = load(memory_store, ref)

    assert (got_layout, got_facts) == (layout, facts)
    assert repr(got_layout.tree) == repr(tree), "types, signs of zero and the order of keys as well"
    assert memory == staged[: layout.buffer_bytes]


def test_a_save_comes_back_on_every_backend(any_store: ObjectStore) -> None:
    layout = layout_of([3 * 2**20, 500, 7, 0, 2**20], gap=64)
    staged = noise(layout.buffer_bytes)
    ref = save(any_store, layout, staged)
    got_layout, _, memory = load(any_store, ref)
    assert got_layout == layout
    assert memory == staged
    total = sum(any_store.size(key) for key in any_store.list("sweeps/"))
    assert ref.size_bytes == total


def test_a_state_of_many_packs_comes_back(store: ObjectStore) -> None:
    layout = layout_of([40 * 2**20] * 4 + [100] * 50)
    staged = noise(layout.buffer_bytes)
    ref = save(store, layout, staged)
    assert len([key for key in store.list("sweeps/") if not key.endswith(".json")]) == 3
    assert load(store, ref)[2] == staged


def test_a_small_state_is_one_object(store: ObjectStore) -> None:
    ref = save(store, layout_of([30_000, 2, 5_000]), noise(35_002))
    assert store.list("sweeps/") == [ref.manifest_key]


def test_repeating_a_save_whose_reply_was_lost_gives_the_same_row(store: ObjectStore) -> None:
    assert small_save(store) == small_save(store)


def test_a_save_never_overwrites_another_of_its_attempt(store: ObjectStore) -> None:
    small_save(store, step=10)
    with pytest.raises(ObjectExists):
        small_save(store, step=11)


def test_strided_and_empty_tensors_are_legal(store: ObjectStore) -> None:
    entries = (
        TensorEntry(dtype="torch.bfloat16", shape=(2, 3), strides=(1, 2), offset=0, size_bytes=12),
        TensorEntry(dtype="float32", shape=(0, 5), strides=(5, 1), offset=12, size_bytes=0),
        TensorEntry(dtype="complex128", shape=(), strides=(), offset=16, size_bytes=16),
        TensorEntry(dtype="<f8", shape=(1,), strides=(1,), offset=32, size_bytes=8),
        TensorEntry(dtype="float8_e4m3fn", shape=(8,), strides=(1,), offset=40, size_bytes=8),
    )
    layout = Layout(tree=[{"$tensor": 0}], tensors=entries, buffer_bytes=48)
    assert load(store, save(store, layout, noise(48)))[0] == layout


def one_tensor(*, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> Layout:
    entry = TensorEntry(dtype=dtype, shape=shape, strides=strides, offset=0, size_bytes=8)
    return Layout(tree=None, tensors=(entry,), buffer_bytes=8)


@pytest.mark.parametrize(
    "layout",
    [
        Layout(tree=None, tensors=(), buffer_bytes=100),
        layout_of([10], tree=float("nan")),
        layout_of([10], tree=b"bytes"),  # type: ignore[arg-type]
        Layout(tree=None, tensors=(*layout_of([10]).tensors, *layout_of([5]).tensors), buffer_bytes=10),
        one_tensor(dtype="int64", shape=(2,), strides=(1,)),
        one_tensor(dtype="int8", shape=(2,), strides=(9,)),
    ],
    ids=["short buffer", "NaN", "bytes", "overlap", "too many elements", "strides reach out"],
)
def test_what_could_not_be_read_back_fails_at_the_save(store: ObjectStore, layout: Layout) -> None:
    with pytest.raises(ValueError):
        save(store, layout, noise(10))
    assert store.list("sweeps/") == []


def test_a_tree_that_is_too_deep_fails_at_the_save(store: ObjectStore) -> None:
    deep: list = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(ValueError):
        save(store, layout_of([10], tree=deep), noise(10))


def test_the_manifest_lies_under_the_attempts_own_prefix(store: ObjectStore) -> None:
    """FENCE: what a stale holder still uploads lies where nobody else writes."""
    ref = small_save(store, fence=7)
    named = parse_manifest_key(ref.manifest_key)
    assert named is not None
    assert (named.fence, named.lease, named.seq) == (7, "1ea5e000", 1)
