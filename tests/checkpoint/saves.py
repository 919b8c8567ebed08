"""Small saves to write and read in the tests of this folder."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sweeper.checkpoint.keys import attempt_prefix
from sweeper.checkpoint.objects import ObjectStore
from sweeper.checkpoint.reader import read_checkpoint
from sweeper.checkpoint.writer import write_checkpoint
from sweeper.ids import ConfigHash, LeaseId, SweepId
from sweeper.model.staging import Layout, SaveFacts, TensorEntry
from sweeper.model.trial import CheckpointRef, Json

SWEEP = SweepId("5e" * 16)
CONFIG = ConfigHash("c0" * 32)
LEASE = LeaseId("1ea5e0" + "0" * 26)
TRIAL: dict[str, Any] = {"sweep_id": SWEEP, "config_hash": CONFIG}


def layout_of(sizes: Sequence[int], *, gap: int = 0, tree: Json = None) -> Layout:
    """One-dimensional uint8 tensors of these sizes, `gap` bytes apart."""
    entries, at = [], 0
    for size in sizes:
        entries.append(TensorEntry(dtype="uint8", shape=(size,), strides=(1,), offset=at, size_bytes=size))
        at += size + gap
    return Layout(tree=tree, tensors=tuple(entries), buffer_bytes=at)


def noise(size: int, seed: int = 0) -> memoryview:
    return memoryview(random.Random(seed).randbytes(size))


def save(
    store: ObjectStore,
    layout: Layout,
    staged: memoryview,
    *,
    facts: SaveFacts | None = None,
    lineage: int = 0,
    fence: int = 1,
    lease_id: LeaseId = LEASE,
    previous: CheckpointRef | None = None,
) -> CheckpointRef:
    return write_checkpoint(
        store,
        prefix=attempt_prefix(SWEEP, CONFIG, fence, lease_id),
        staged=staged,
        layout=layout,
        facts=facts or SaveFacts(seq=1, step=10, epoch=0),
        lineage=lineage,
        fence=fence,
        lease_id=lease_id,
        previous=previous,
        **TRIAL,
    )


def small_save(store: ObjectStore, *, seq: int = 1, step: int = 10, size: int = 200_000, **grant: Any) -> CheckpointRef:
    """A save that needs one pack and one manifest."""
    facts = SaveFacts(seq=seq, step=step, epoch=0)
    return save(store, layout_of([size]), noise(size, seed=step), facts=facts, **grant)


def load(store: ObjectStore, ref: CheckpointRef) -> tuple[Layout, SaveFacts, bytearray]:
    memory = bytearray()

    def into(size: int) -> memoryview:
        memory.extend(bytes(size))
        return memoryview(memory)

    layout, facts = read_checkpoint(store, ref, into=into, **TRIAL)
    return layout, facts, memory


def with_hash(ref: CheckpointRef, hash_: str) -> CheckpointRef:
    return replace(ref, manifest_hash=hash_)
