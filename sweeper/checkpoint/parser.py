"""From the bytes of a manifest to a checked `Manifest`, or `CheckpointCorrupt`; nothing else can come out.

Manifests come from a store that others may write to. Sizes and counts are capped before anything is allocated by them;
every range must lie inside what it is a range of; every key inside the sweep's prefix. No value in it names code.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, NoReturn

from sweeper.checkpoint.keys import is_pack_key, parse_manifest_key
from sweeper.checkpoint.manifest import SCHEMA, Block, Manifest, Origin, Pack
from sweeper.checkpoint.sealed import unseal
from sweeper.checkpoint.tensors import check_tensor
from sweeper.errors import CheckpointCorrupt
from sweeper.ids import ConfigHash, LeaseId, SweepId
from sweeper.model.staging import Layout, SaveFacts, TensorEntry
from sweeper.model.trial import CheckpointRef, Json

MAX_MANIFEST_BYTES = 64 * 2**20
MAX_BUFFER_BYTES = 2**42
MAX_INLINE_BYTES = 64 * 2**10
MAX_PACKS = 2**17
MAX_BLOCKS = 2**20
MAX_TENSORS = 2**20
MAX_DEPTH = 100
MAX_COUNTER = 2**53

_FIELDS = frozenset(
    {"schema", "sweep_id", "config_hash", "lineage", "fence", "lease_id", "seq", "step", "epoch", "position", "metrics"}
    | {"exact", "inexact_reasons", "provenance", "finite", "previous", "packs", "blocks", "tensors", "buffer_bytes"}
    | {"tree"}
)
_PREVIOUS_FIELDS = frozenset({"fence", "seq", "step", "manifest_key", "manifest_hash", "size_bytes"})
_TENSOR_FIELDS = frozenset({"dtype", "shape", "strides", "offset", "size_bytes"})

Raw = dict[str, Any]  # Any: parsed JSON, each value is checked at its use


def parse_manifest(data: bytes) -> Manifest:
    """Parse and check a manifest on its own; whether its packs hold what it says is `read_checkpoint`'s matter.

    Raises:
        CheckpointCorrupt: anything is wrong.
    """
    if len(data) > MAX_MANIFEST_BYTES:
        _corrupt(f"a manifest of {len(data)} bytes is over the limit")
    raw = _mapping(unseal(data), _FIELDS, "manifest")
    if raw["schema"] != SCHEMA or isinstance(raw["schema"], bool):
        _corrupt(f"manifest schema {raw['schema']!r:.40} is not {SCHEMA}")
    manifest = Manifest(
        origin=_origin(raw),
        facts=_facts(raw),
        layout=_layout(raw),
        packs=_packs(raw["packs"], SweepId(_hex(raw["sweep_id"], 32, "sweep_id"))),
        blocks=_blocks(raw["blocks"]),
        previous=_previous(raw["previous"]),
    )
    check_ranges(manifest)
    return manifest


def check_ranges(manifest: Manifest) -> None:
    """Blocks tile the buffer and lie disjoint inside packs; tensors lie inside blocks; the tree is not too deep.

    Raises:
        CheckpointCorrupt: something does not fit.
    """
    _check_depth(manifest.layout.tree, manifest.facts)
    total = sum(block.size_bytes for block in manifest.blocks)
    if total != manifest.layout.buffer_bytes:
        _corrupt(f"blocks of {total} bytes do not tile a buffer of {manifest.layout.buffer_bytes}")
    if sum(len(block.inline) for block in manifest.blocks if block.inline is not None) > MAX_INLINE_BYTES:
        _corrupt("too much is inline")
    _check_packed(manifest)
    for entry in manifest.layout.tensors:
        check_tensor(entry)
    _check_placed(manifest)


def _check_packed(manifest: Manifest) -> None:
    ends = [0] * len(manifest.packs)
    for block in sorted((b for b in manifest.blocks if b.pack is not None), key=lambda b: (b.pack, b.offset)):
        assert block.pack is not None, "filtered above"
        if block.pack >= len(ends):
            _corrupt(f"a block names pack {block.pack} of {len(ends)}")
        if block.offset < ends[block.pack]:
            _corrupt(f"blocks overlap in pack {block.pack}")
        ends[block.pack] = block.offset + block.size_bytes
        if ends[block.pack] > manifest.packs[block.pack].size_bytes:
            _corrupt(f"a block ends behind its pack {block.pack}")


def _check_placed(manifest: Manifest) -> None:
    """Each tensor with bytes lies inside one block, and no two share a byte."""
    blocks = iter(manifest.blocks)
    block_end, tensor_end = 0, 0
    for entry in sorted(manifest.layout.tensors, key=lambda t: t.offset):
        if entry.size_bytes == 0:
            continue
        if entry.offset < tensor_end:
            _corrupt("tensors overlap")
        tensor_end = entry.offset + entry.size_bytes
        if tensor_end > manifest.layout.buffer_bytes:
            _corrupt("a tensor ends behind the buffer")
        while block_end <= entry.offset:
            block_end += next(blocks).size_bytes
        if tensor_end > block_end:
            _corrupt("a tensor lies across blocks")


def _origin(raw: Raw) -> Origin:
    return Origin(
        sweep_id=SweepId(_hex(raw["sweep_id"], 32, "sweep_id")),
        config_hash=ConfigHash(_hex(raw["config_hash"], 64, "config_hash")),
        lineage=_count(raw["lineage"], "lineage"),
        fence=_count(raw["fence"], "fence"),
        lease_id=LeaseId(_hex(raw["lease_id"], 32, "lease_id")),
    )


def _facts(raw: Raw) -> SaveFacts:
    reasons = _list(raw["inexact_reasons"], 1000, "inexact_reasons")
    if not all(isinstance(reason, str) for reason in reasons):
        _corrupt("inexact_reasons are not text")
    return SaveFacts(
        seq=_count(raw["seq"], "seq"),
        step=_count(raw["step"], "step"),
        epoch=_count(raw["epoch"], "epoch"),
        position=raw["position"],
        metrics=raw["metrics"],
        exact=_flag(raw["exact"], "exact"),
        inexact_reasons=tuple(reasons),
        provenance=raw["provenance"],
        finite=_flag(raw["finite"], "finite"),
    )


def _layout(raw: Raw) -> Layout:
    return Layout(
        tree=raw["tree"],
        tensors=tuple(_tensor(row) for row in _list(raw["tensors"], MAX_TENSORS, "tensors")),
        buffer_bytes=_count(raw["buffer_bytes"], "buffer_bytes", most=MAX_BUFFER_BYTES),
    )


def _tensor(value: Json) -> TensorEntry:
    raw = _mapping(value, _TENSOR_FIELDS, "tensor")
    if not isinstance(raw["dtype"], str):
        _corrupt("a dtype is not text")
    return TensorEntry(
        dtype=raw["dtype"],
        shape=tuple(_count(n, "shape", most=MAX_BUFFER_BYTES) for n in _list(raw["shape"], 64, "shape")),
        strides=tuple(_count(n, "strides", most=MAX_BUFFER_BYTES) for n in _list(raw["strides"], 64, "strides")),
        offset=_count(raw["offset"], "offset", most=MAX_BUFFER_BYTES),
        size_bytes=_count(raw["size_bytes"], "size_bytes", most=MAX_BUFFER_BYTES),
    )


def _packs(value: Json, sweep_id: SweepId) -> tuple[Pack, ...]:
    packs = []
    for row in _list(value, MAX_PACKS, "packs"):
        key, size = _row(row, 2, "pack")
        if not isinstance(key, str) or not is_pack_key(key, sweep_id):
            _corrupt(f"pack key {key!r:.120} lies outside the sweep")
        packs.append(Pack(key=key, size_bytes=_count(size, "pack size", most=MAX_BUFFER_BYTES)))
    return tuple(packs)


def _blocks(value: Json) -> tuple[Block, ...]:
    return tuple(_block(row) for row in _list(value, MAX_BLOCKS, "blocks"))


def _block(value: Json) -> Block:
    row = _list(value, 4, "block")
    if len(row) == 3:
        size, digest, encoded = row
        inline = _base64(encoded)
        if size != len(inline):
            _corrupt("an inline block is not as long as it says")
        return Block(size_bytes=_size(size), digest=_hex(digest, 64, "digest"), inline=inline)
    size, digest, pack, offset = _row(value, 4, "block")
    return Block(
        size_bytes=_size(size),
        digest=_hex(digest, 64, "digest"),
        pack=_count(pack, "pack"),
        offset=_count(offset, "block offset", most=MAX_BUFFER_BYTES),
    )


def _previous(value: Json) -> CheckpointRef | None:
    if value is None:
        return None
    raw = _mapping(value, _PREVIOUS_FIELDS, "previous")
    key = raw["manifest_key"]
    if not isinstance(key, str) or parse_manifest_key(key) is None:
        _corrupt("the previous checkpoint's key is not one")
    return CheckpointRef(
        fence=_count(raw["fence"], "fence"),
        seq=_count(raw["seq"], "seq"),
        step=_count(raw["step"], "step"),
        manifest_key=key,
        manifest_hash=_hex(raw["manifest_hash"], 64, "manifest_hash"),
        size_bytes=_count(raw["size_bytes"], "size_bytes"),
    )


def _check_depth(tree: Json, facts: SaveFacts) -> None:
    level: list[Json] = [tree, facts.position, facts.metrics, facts.provenance]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in _children(node)]
        if not level:
            return
    _corrupt(f"values are nested deeper than {MAX_DEPTH}")


def _children(node: Json) -> list[Json]:
    if isinstance(node, dict):
        return list(node.values())
    return node if isinstance(node, list) else []


def _mapping(value: Json, fields: frozenset[str], what: str) -> Raw:
    if not isinstance(value, dict) or value.keys() != fields:
        _corrupt(f"a {what} does not have the fields it must have")
    return value


def _list(value: Json, most: int, what: str) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        _corrupt(f"{what} is not a list of at most {most}")
    return value


def _row(value: Json, length: int, what: str) -> list[Any]:
    row = _list(value, length, what)
    if len(row) != length:
        _corrupt(f"a {what} does not have {length} members")
    return row


def _count(value: Json, what: str, *, most: int = MAX_COUNTER) -> int:
    if type(value) is not int or not 0 <= value <= most:
        _corrupt(f"{what} is not a count up to {most}")
    return value


def _size(value: Json) -> int:
    size = _count(value, "block size", most=MAX_BUFFER_BYTES)
    if size == 0:
        _corrupt("a block is empty")
    return size


def _flag(value: Json, what: str) -> bool:
    if not isinstance(value, bool):
        _corrupt(f"{what} is not true or false")
    return value


def _hex(value: Json, digits: int, what: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(rf"[0-9a-f]{{{digits}}}", value):
        _corrupt(f"{what} is not {digits} hexadecimal digits")
    return value


def _base64(value: Json) -> bytes:
    if not isinstance(value, str) or len(value) > 2 * MAX_INLINE_BYTES:
        _corrupt("an inline block is not base64 text within the limit")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CheckpointCorrupt("an inline block is not base64") from error


def _corrupt(text: str) -> NoReturn:
    raise CheckpointCorrupt(text)
