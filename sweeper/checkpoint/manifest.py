"""The manifest: what a checkpoint consists of, and where each byte of it lies.

The tensor bytes of a save are one flat buffer (`sweeper.model.staging`). **Blocks** tile that buffer in order; each has
one digest and lies in a **pack**, at some offset, or inline. A **tensor** is a range of the buffer inside one block. So
a reader fetches ranges of packs straight into memory, and checks them by block.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

from sweeper.ids import ConfigHash, LeaseId, SweepId
from sweeper.model.staging import Layout, SaveFacts, TensorEntry
from sweeper.model.trial import CheckpointRef, Json

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """An object that holds tensor bytes."""

    key: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The next `size_bytes` of the buffer, verified as one; either in `packs[pack]` or inline."""

    size_bytes: int
    digest: str
    pack: int | None = None
    offset: int = 0
    """In the pack, in bytes."""
    inline: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Which trial a checkpoint is of, and under which grant it was written."""

    sweep_id: SweepId
    config_hash: ConfigHash
    lineage: int
    fence: int
    lease_id: LeaseId


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A checkpoint but for the bytes in its packs."""

    origin: Origin
    facts: SaveFacts
    layout: Layout
    packs: tuple[Pack, ...]
    blocks: tuple[Block, ...]
    previous: CheckpointRef | None
    """The head when this one was written; for people and for rebuild."""

    def to_json(self) -> Json:
        """The content that is sealed, in a fixed order of fields."""
        origin, facts = self.origin, self.facts
        return {
            "schema": SCHEMA,
            "sweep_id": origin.sweep_id,
            "config_hash": origin.config_hash,
            "lineage": origin.lineage,
            "fence": origin.fence,
            "lease_id": origin.lease_id,
            "seq": facts.seq,
            "step": facts.step,
            "epoch": facts.epoch,
            "position": facts.position,
            "metrics": facts.metrics,
            "exact": facts.exact,
            "inexact_reasons": list(facts.inexact_reasons),
            "provenance": facts.provenance,
            "finite": facts.finite,
            "previous": _previous_json(self.previous),
            "packs": [[pack.key, pack.size_bytes] for pack in self.packs],
            "blocks": [_block_json(block) for block in self.blocks],
            "tensors": [_tensor_json(entry) for entry in self.layout.tensors],
            "buffer_bytes": self.layout.buffer_bytes,
            "tree": self.layout.tree,
        }

    def ref(self, *, key: str, hash_: str, manifest_bytes: int) -> CheckpointRef:
        """The row that names this checkpoint; its size counts the manifest and all packs."""
        return CheckpointRef(
            fence=self.origin.fence,
            seq=self.facts.seq,
            step=self.facts.step,
            manifest_key=key,
            manifest_hash=hash_,
            size_bytes=manifest_bytes + sum(pack.size_bytes for pack in self.packs),
        )


def _previous_json(ref: CheckpointRef | None) -> Json:
    if ref is None:
        return None
    return {
        "fence": ref.fence,
        "seq": ref.seq,
        "step": ref.step,
        "manifest_key": ref.manifest_key,
        "manifest_hash": ref.manifest_hash,
        "size_bytes": ref.size_bytes,
    }


def _block_json(block: Block) -> Json:
    if block.inline is not None:
        return [block.size_bytes, block.digest, base64.b64encode(block.inline).decode()]
    return [block.size_bytes, block.digest, block.pack, block.offset]


def _tensor_json(entry: TensorEntry) -> Json:
    return {
        "dtype": entry.dtype,
        "shape": list(entry.shape),
        "strides": list(entry.strides),
        "offset": entry.offset,
        "size_bytes": entry.size_bytes,
    }
