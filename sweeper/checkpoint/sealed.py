"""Sealed JSON: a document that carries the digest of its own bytes.

``{"digest":"<64 hex>","content":<JSON>}``, the digest being BLAKE3-256 of exactly the content's bytes. A ledger row
names a manifest or an outcome by the SHA-256 of the whole object; the seal is for the day when the row is gone and a
flipped digit must still be noticed (FALLBACK, ONCE). It protects from damage, not from an attacker, who can seal anew:
so the content is parsed strictly as well.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

from blake3 import blake3

from sweeper.errors import CheckpointCorrupt
from sweeper.model.trial import Json

_HEAD, _MIDDLE, _TAIL = b'{"digest":"', b'","content":', b"}"
_CONTENT_AT = len(_HEAD) + 64 + len(_MIDDLE)


def digest_of(data: bytes | memoryview) -> str:
    """BLAKE3-256, 64 hex digits: the digest of everything inside a checkpoint."""
    return blake3(data).hexdigest()


def object_hash(data: bytes) -> str:
    """SHA-256 of a whole object, 64 hex digits: what ledger rows name objects by."""
    return hashlib.sha256(data).hexdigest()


def seal(content: Json) -> bytes:
    """Give the bytes to store: no spaces, ASCII only, mappings in their own order (it may matter to who reads them).

    Raises:
        ValueError: not JSON (NaN, Infinity, a foreign type), or nested too deeply for Python's encoder.
    """
    try:
        body = json.dumps(content, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    return b"".join((_HEAD, digest_of(body).encode(), _MIDDLE, body, _TAIL))


def unseal(data: bytes) -> Json:
    """Check the seal and parse; duplicate keys, NaN, Infinity and numbers out of range are refused.

    Raises:
        CheckpointCorrupt: anything is wrong.
    """
    body = data[_CONTENT_AT : -len(_TAIL)]
    digest = data[len(_HEAD) : len(_HEAD) + 64]
    if data != b"".join((_HEAD, digest, _MIDDLE, body, _TAIL)) or digest_of(body).encode() != digest:
        raise CheckpointCorrupt(f"a sealed object of {len(data)} bytes does not match its digest")
    try:
        content: Json = json.loads(
            body, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite_float
        )
    except (ValueError, RecursionError) as error:
        raise CheckpointCorrupt(f"a sealed object is not strict JSON: {error}") from error
    return content


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError("a key appears twice")
    return mapping


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is out of range")
    return value
