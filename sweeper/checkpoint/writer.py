"""A staged save becomes objects in the store: packs first, the manifest last; a row makes it a checkpoint."""

from __future__ import annotations

from sweeper.checkpoint.keys import attempt_prefix, manifest_key, pack_key
from sweeper.checkpoint.manifest import Block, Manifest, Origin, Pack
from sweeper.checkpoint.objects import ObjectStore
from sweeper.checkpoint.packs import INLINE_BYTES, Span, cut_blocks, group_packs
from sweeper.checkpoint.parser import MAX_MANIFEST_BYTES, check_ranges
from sweeper.checkpoint.sealed import digest_of, object_hash, seal
from sweeper.errors import CheckpointCorrupt, StoreUnavailable
from sweeper.ids import ConfigHash, LeaseId, SweepId
from sweeper.model.staging import Layout, SaveFacts
from sweeper.model.trial import CheckpointRef

MEASURED_FROM_BYTES = 8 * 2**20
"""From this size on a pack may go up in parts, so its length is asked for afterwards. Below, a store takes one request
whole or not at all, and asking would be a third request for a small state."""


def write_checkpoint(
    store: ObjectStore,
    *,
    prefix: str,
    staged: memoryview,
    layout: Layout,
    facts: SaveFacts,
    sweep_id: SweepId,
    config_hash: ConfigHash,
    lineage: int,
    fence: int,
    lease_id: LeaseId,
    previous: CheckpointRef | None,
) -> CheckpointRef:
    """Upload a save and give what its row must say; until the row is committed it is not a checkpoint (FALLBACK).

    Repeating the call with the same arguments is safe, and gives the same result: the bytes depend on nothing else.

    Args:
        prefix: `attempt_prefix` of the grant's own ids.
        staged: the buffer that `layout` describes; must not change meanwhile. Longer than the buffer is fine.
        previous: the head when the save was taken.

    Raises:
        StoreUnavailable, StoreDenied: nothing became visible; packs may have been left, without effect.
        ObjectExists: this attempt already stored another save under the same `seq` (a bug in the caller).
        ValueError: `layout` does not describe `staged`, or has no form that a reader would accept.
    """
    if prefix != attempt_prefix(sweep_id, config_hash, fence, lease_id):
        raise ValueError(f"{prefix} is not the prefix of this grant")
    if len(staged) < layout.buffer_bytes:
        raise ValueError(f"{len(staged)} staged bytes are fewer than the layout's {layout.buffer_bytes}")
    origin = Origin(sweep_id=sweep_id, config_hash=config_hash, lineage=lineage, fence=fence, lease_id=lease_id)
    packs, blocks = _plan(prefix, facts.seq, staged, layout)
    manifest = Manifest(
        origin=origin, facts=facts, layout=layout, packs=tuple(p for p, _ in packs), blocks=blocks, previous=previous
    )
    data = _encode(manifest)
    for pack, (start, end) in packs:
        _upload(store, pack, staged[start:end])
    key = manifest_key(prefix, facts.seq)
    store.create(key, data)
    return manifest.ref(key=key, hash_=object_hash(data), manifest_bytes=len(data))


def _plan(
    prefix: str, seq: int, staged: memoryview, layout: Layout
) -> tuple[list[tuple[Pack, Span]], tuple[Block, ...]]:
    spans = cut_blocks(layout)
    if layout.buffer_bytes <= INLINE_BYTES:
        return [], tuple(_inline(staged[start:end]) for start, end in spans)
    packs: list[tuple[Pack, Span]] = []
    blocks: list[Block] = []
    for index, group in enumerate(group_packs(spans)):
        first, last = group[0][0], group[-1][1]
        packs.append((Pack(key=pack_key(prefix, seq, index), size_bytes=last - first), (first, last)))
        blocks += [
            Block(size_bytes=end - start, digest=digest_of(staged[start:end]), pack=index, offset=start - first)
            for start, end in group
        ]
    return packs, tuple(blocks)


def _inline(data: memoryview) -> Block:
    return Block(size_bytes=len(data), digest=digest_of(data), inline=bytes(data))


def _encode(manifest: Manifest) -> bytes:
    """Hold ourselves to what readers accept: a checkpoint that cannot be read back must fail at the save."""
    try:
        check_ranges(manifest)
    except CheckpointCorrupt as error:
        raise ValueError(f"this save cannot be stored: {error}") from error
    data = seal(manifest.to_json())
    if len(data) > MAX_MANIFEST_BYTES:
        raise ValueError(f"this save cannot be stored: its manifest has {len(data)} bytes")
    return data


def _upload(store: ObjectStore, pack: Pack, data: memoryview) -> None:
    store.create(pack.key, data)
    if pack.size_bytes >= MEASURED_FROM_BYTES:
        found = store.size(pack.key)
        if found != pack.size_bytes:
            raise StoreUnavailable(f"{pack.key} arrived with {found} of {pack.size_bytes} bytes")
