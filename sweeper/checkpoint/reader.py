"""From a committed row back to verified bytes, and the search for a checkpoint when the row's objects are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sweeper.checkpoint.keys import AttemptKey, parse_manifest_key, trial_prefix
from sweeper.checkpoint.manifest import Manifest
from sweeper.checkpoint.objects import ObjectStore
from sweeper.checkpoint.parser import MAX_MANIFEST_BYTES, parse_manifest
from sweeper.checkpoint.sealed import digest_of, object_hash
from sweeper.errors import CheckpointCorrupt, ObjectMissing
from sweeper.ids import ConfigHash, SweepId
from sweeper.model.staging import Layout, SaveFacts
from sweeper.model.trial import CheckpointRef

PIECE_BYTES = 32 * 2**20
"""Most bytes fetched by one request, so that restoring needs little memory beyond its target."""
MANIFEST_FIRST_BYTES = 2**20
"""Asked for first: nearly every manifest is shorter, and a call may take the longer the more it asks for."""


class CheckpointMissing(CheckpointCorrupt, ObjectMissing):
    """A checkpoint's manifest or pack is not in the store, and the store is sure of it.

    A kind of `CheckpointCorrupt` (use another) that can be told apart: look for the newest valid manifest first.
    """


def read_checkpoint(
    store: ObjectStore,
    ref: CheckpointRef,
    *,
    sweep_id: SweepId,
    config_hash: ConfigHash,
    into: Callable[[int], memoryview],
) -> tuple[Layout, SaveFacts]:
    """Fill memory with a checkpoint's tensor bytes; nothing is to be used before this returns.

    The manifest must have the row's hash and be of this trial; each pack must have its length; each block its digest.

    Args:
        into: called once with the buffer's length in bytes, when the manifest and the packs' lengths have been
            checked; gives writable memory of at least that length.

    Raises:
        CheckpointMissing: an object is gone (a `CheckpointCorrupt`).
        CheckpointCorrupt: anything else about it is wrong. What `into` gave may hold damaged bytes.
        StoreUnavailable, StoreDenied: nothing can be concluded about this checkpoint.
    """
    named = parse_manifest_key(ref.manifest_key)
    if named is None:
        raise CheckpointCorrupt(f"{ref.manifest_key!r:.120} is not a manifest's key")
    data = _read_manifest(store, ref.manifest_key)
    if object_hash(data) != ref.manifest_hash:
        raise CheckpointCorrupt(f"{ref.manifest_key} does not have the hash that its row says")
    manifest = _parse_as(named, data, ref.manifest_key, sweep_id, config_hash)
    if manifest.facts.step != ref.step:
        raise CheckpointCorrupt(f"{ref.manifest_key} is of step {manifest.facts.step}, its row says {ref.step}")
    _check_lengths(store, manifest)
    memory = into(manifest.layout.buffer_bytes)
    for extent in _extents(manifest):
        _fetch(store, extent, memory)
    _verify(manifest, memory, ref.manifest_key)
    return manifest.layout, manifest.facts


def newest_valid_manifest(
    store: ObjectStore,
    *,
    sweep_id: SweepId,
    config_hash: ConfigHash,
    lineage: int,
    up_to_fence: int | None = None,
) -> CheckpointRef | None:
    """Find the checkpoint of this lineage that has come furthest, from the store alone (CK-08).

    With `up_to_fence`, only among those made under fences up to that one.

    One listing; then every manifest is read and must be sealed, of this trial, and as its key says. The highest step
    wins, then fence, then seq, as recorded inside; names and time stamps decide nothing. The packs' lengths are
    checked here, their digests when the checkpoint is read.

    Raises:
        StoreUnavailable, StoreDenied: cannot tell; never the same as None.
    """
    found: list[tuple[CheckpointRef, Manifest]] = []
    for key in store.list(trial_prefix(sweep_id, config_hash)):
        named = parse_manifest_key(key)
        if named is None or (up_to_fence is not None and named.fence > up_to_fence):
            continue
        try:
            data = _read_manifest(store, key)
            manifest = _parse_as(named, data, key, sweep_id, config_hash)
        except CheckpointCorrupt:
            continue
        if manifest.origin.lineage == lineage:
            ref = manifest.ref(key=key, hash_=object_hash(data), manifest_bytes=len(data))
            found.append((ref, manifest))
    for ref, manifest in sorted(found, key=lambda pair: _progress(pair[0]), reverse=True):
        try:
            _check_lengths(store, manifest)
        except CheckpointCorrupt:
            continue
        return ref
    return None


def _progress(ref: CheckpointRef) -> tuple[int, int, int, str]:
    return ref.step, ref.fence, ref.seq, ref.manifest_hash


def _read_manifest(store: ObjectStore, key: str) -> bytes:
    try:
        data = store.read_range(key, 0, MANIFEST_FIRST_BYTES)
        if len(data) < MANIFEST_FIRST_BYTES:
            return data
        return data + store.read_range(key, MANIFEST_FIRST_BYTES, MAX_MANIFEST_BYTES)
    except ObjectMissing as error:
        raise CheckpointMissing(f"{key} is not in the store") from error


def _parse_as(named: AttemptKey, data: bytes, key: str, sweep_id: SweepId, config_hash: ConfigHash) -> Manifest:
    manifest = parse_manifest(data)
    origin = manifest.origin
    inside = (origin.sweep_id, origin.config_hash, origin.fence, origin.lease_id[:8], manifest.facts.seq)
    if inside != (named.sweep_id, named.config_hash, named.fence, named.lease, named.seq):
        raise CheckpointCorrupt(f"{key} holds the manifest of another save")
    if (origin.sweep_id, origin.config_hash) != (sweep_id, config_hash):
        raise CheckpointCorrupt(f"{key} is of another trial")
    return manifest


def _check_lengths(store: ObjectStore, manifest: Manifest) -> None:
    for pack in manifest.packs:
        try:
            found = store.size(pack.key)
        except ObjectMissing as error:
            raise CheckpointMissing(f"{pack.key} is not in the store") from error
        if found != pack.size_bytes:
            raise CheckpointCorrupt(f"{pack.key} has {found} bytes instead of {pack.size_bytes}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extent:
    """Bytes that lie together both in a pack (or inline) and in the buffer."""

    at: int
    size_bytes: int
    key: str = ""
    offset: int = 0
    inline: bytes | None = None


def _extents(manifest: Manifest) -> Iterator[_Extent]:
    """Neighbouring blocks merged, so that restoring a pack takes few requests."""
    at = 0
    open_: _Extent | None = None
    for block in manifest.blocks:
        key = "" if block.pack is None else manifest.packs[block.pack].key
        if (
            open_ is not None
            and block.inline is None
            and key == open_.key
            and block.offset == open_.offset + open_.size_bytes
        ):
            open_ = _Extent(at=open_.at, size_bytes=open_.size_bytes + block.size_bytes, key=key, offset=open_.offset)
        else:
            if open_ is not None:
                yield open_
            open_ = _Extent(at=at, size_bytes=block.size_bytes, key=key, offset=block.offset, inline=block.inline)
        at += block.size_bytes
    if open_ is not None:
        yield open_


def _fetch(store: ObjectStore, extent: _Extent, memory: memoryview) -> None:
    if extent.inline is not None:
        memory[extent.at : extent.at + extent.size_bytes] = extent.inline
        return
    for done in range(0, extent.size_bytes, PIECE_BYTES):
        size = min(PIECE_BYTES, extent.size_bytes - done)
        try:
            piece = store.read_range(extent.key, extent.offset + done, size)
        except ObjectMissing as error:
            raise CheckpointMissing(f"{extent.key} is not in the store") from error
        if len(piece) != size:
            raise CheckpointCorrupt(f"{extent.key} ended {size - len(piece)} bytes early")
        memory[extent.at + done : extent.at + done + size] = piece


def _verify(manifest: Manifest, memory: memoryview, key: str) -> None:
    at = 0
    for index, block in enumerate(manifest.blocks):
        if digest_of(memory[at : at + block.size_bytes]) != block.digest:
            where = "inline" if block.pack is None else manifest.packs[block.pack].key
            raise CheckpointCorrupt(f"block {index} of {key} ({where}) does not match its digest")
        at += block.size_bytes
