"""How a staged buffer is cut into blocks (one digest each) and packs (one object each); pure.

A tensor of a block's size or more is a block of its own, so its digest is its identity. Smaller ones lie end to end in
blocks of about 1 MiB: 10,000 digests for 10,000 small parameters would weigh more than the parameters. Packs are
contiguous ranges of the buffer, so nothing is copied to upload them.
"""

from __future__ import annotations

from sweeper.model.staging import Layout

BLOCK_BYTES = 2**20
PACK_BYTES = 64 * 2**20
"""A pack is closed once it has this many bytes."""
MAX_PACK_BYTES = 256 * 2**20
"""A pack grows beyond this only for one larger block."""
INLINE_BYTES = 64 * 2**10
"""A buffer up to this size travels in the manifest itself."""

Span = tuple[int, int]
"""Start and end in the buffer, in bytes."""


def cut_blocks(layout: Layout) -> list[Span]:
    """Tile `[0, buffer_bytes)` with blocks; no tensor lies across two. Gaps between tensors belong to the block before.

    Raises:
        ValueError: tensors overlap or lie outside the buffer.
    """
    starts: list[int] = []
    end = 0
    for entry in sorted((t for t in layout.tensors if t.size_bytes), key=lambda t: t.offset):
        if entry.offset < end or entry.offset + entry.size_bytes > layout.buffer_bytes:
            raise ValueError("staged tensors overlap or lie outside the buffer")
        alone = entry.size_bytes >= BLOCK_BYTES or (starts and end - starts[-1] >= BLOCK_BYTES)
        if not starts or alone:
            starts.append(entry.offset)
        end = entry.offset + entry.size_bytes
    if layout.buffer_bytes and (not starts or starts[0] > 0):
        starts[:1] = [0]
    return list(zip(starts, [*starts[1:], layout.buffer_bytes][: len(starts)], strict=True))


def group_packs(blocks: list[Span]) -> list[list[Span]]:
    """Group consecutive blocks into packs of 64 to 256 MiB; a small buffer gives one smaller pack."""
    packs: list[list[Span]] = []
    for start, end in blocks:
        if packs and _fits(packs[-1], end):
            packs[-1].append((start, end))
        else:
            packs.append([(start, end)])
    return packs


def _fits(pack: list[Span], end: int) -> bool:
    first, last = pack[0][0], pack[-1][1]
    return last - first < PACK_BYTES and end - first <= MAX_PACK_BYTES
