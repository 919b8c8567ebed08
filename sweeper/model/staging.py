"""What a child stages and a worker stores: a tagged value tree over one flat buffer of tensor bytes.

The child encodes live objects into this form and decodes it back (`sweeper.trial.values`, the only place that knows
torch); the worker hashes, packs, uploads and verifies it without knowing torch (`sweeper.checkpoint`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sweeper.model.trial import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """One block of tensor bytes in the staging buffer: contiguous storage of `shape` in `dtype`, laid out by `strides`.

    `offset` and `size_bytes` are in bytes from the start of the buffer. Ties and views are expressed in the tree, which
    may name an entry several times.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Everything about a staged save but the tensor bytes."""

    tree: Json
    """Tagged JSON; `{"$tensor": i, …}` refers to `tensors[i]`."""
    tensors: tuple[TensorEntry, ...]
    buffer_bytes: int
    """Length of the used part of the buffer."""

    def to_bytes(self) -> bytes:
        """The JSON that lies behind the tensor bytes in a staging or restore file."""
        tensors = [
            {"dtype": entry.dtype, "shape": entry.shape, "strides": entry.strides, "offset": entry.offset,
             "size_bytes": entry.size_bytes}
            for entry in self.tensors
        ]  # fmt: skip
        value = {"tree": self.tree, "tensors": tensors, "buffer_bytes": self.buffer_bytes}
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Layout:
        """Read it back.

        Raises:
            ValueError: not a layout.
        """
        try:
            raw: dict[str, Any] = json.loads(bytes(data))
            tensors = tuple(
                TensorEntry(**{**entry, "shape": tuple(entry["shape"]), "strides": tuple(entry["strides"])})
                for entry in raw["tensors"]
            )
            return cls(tree=raw["tree"], tensors=tensors, buffer_bytes=raw["buffer_bytes"])
        except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"not a layout: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveFacts:
    """Where in training a save was taken."""

    seq: int
    """Rises within an attempt, from 1."""
    step: int
    epoch: int
    position: Json = None
    """Loader position, for people; the exact one is in the tree."""
    metrics: Json = None
    """History of means and reports, for people."""
    exact: bool = True
    inexact_reasons: tuple[str, ...] = ()
    provenance: Json = None
    """Library versions, device type, threads, hash seed, code revision."""
    finite: bool = True
    """Whether the last known loss or report was finite; retention keeps the last healthy one."""
