"""How a buffer is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sweeper.checkpoint.packs import BLOCK_BYTES, MAX_PACK_BYTES, PACK_BYTES, cut_blocks, group_packs
from tests.checkpoint.saves import layout_of

SIZES = st.lists(
    st.sampled_from([0, 1, 1000, 2**18, 2**20 - 1, 2**20, 5 * 2**20, 70 * 2**20, 300 * 2**20]), max_size=40
)


@given(sizes=SIZES, gap=st.integers(0, 64))
def test_blocks_tile_the_buffer_and_no_tensor_lies_across_two(sizes: list[int], gap: int) -> None:
    layout = layout_of(sizes, gap=gap)
    blocks = cut_blocks(layout)
    if layout.buffer_bytes and any(sizes):
        assert [start for start, _ in blocks] == [0, *(end for _, end in blocks[:-1])]
        assert blocks[-1][1] == layout.buffer_bytes
    for entry in layout.tensors:
        if entry.size_bytes:
            assert any(start <= entry.offset and entry.offset + entry.size_bytes <= end for start, end in blocks)


@given(sizes=SIZES)
def test_packs_hold_all_blocks_in_order_and_keep_to_their_size(sizes: list[int]) -> None:
    blocks = cut_blocks(layout_of(sizes))
    packs = group_packs(blocks)
    assert [block for pack in packs for block in pack] == blocks
    lengths = [pack[-1][1] - pack[0][0] for pack in packs]
    assert all(length <= MAX_PACK_BYTES or len(pack) == 1 for length, pack in zip(lengths, packs, strict=True))
    for length, following in zip(lengths, packs[1:], strict=False):
        assert length >= PACK_BYTES or length + following[0][1] - following[0][0] > MAX_PACK_BYTES


def test_ten_thousand_small_tensors_have_few_digests() -> None:
    assert len(cut_blocks(layout_of([1600] * 10_000))) <= 10_000 * 1600 // BLOCK_BYTES + 1


def test_a_large_tensor_is_a_block_of_its_own() -> None:
    """So that its digest is its identity."""
    blocks = cut_blocks(layout_of([10, 2**20, 2**21, 10]))
    assert (10, 10 + 2**20) in blocks
    assert (10 + 2**20, 10 + 2**20 + 2**21) in blocks
