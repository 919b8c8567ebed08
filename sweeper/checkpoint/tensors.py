"""Whether a tensor's dtype, shape and strides fit the bytes it is said to have."""

from __future__ import annotations

import math
import re

from sweeper.errors import CheckpointCorrupt
from sweeper.model.staging import TensorEntry

_TORCH_NAME = re.compile(r"(?:torch\.)?(?P<kind>[a-z]+?)(?:(?P<bits>[0-9]+)(?:x[0-9]+)?)?(?:_[a-z0-9_]+)?")
_NUMPY_CODE = re.compile(r"[<>=|][a-zA-Z](?P<bytes>[0-9]{0,6})(?:\[[a-zA-Z0-9]+\])?")


def item_bytes(dtype: str) -> int:
    """Give bytes of one element by the dtype's name, torch's (`bfloat16`) or NumPy's (`<f8`); 1 if it tells none.

    Raises:
        CheckpointCorrupt: not the name of a dtype.
    """
    if match := _NUMPY_CODE.fullmatch(dtype):
        return int(match["bytes"] or 1)
    match = _TORCH_NAME.fullmatch(dtype) if len(dtype) <= 40 else None
    if match is None:
        raise CheckpointCorrupt(f"{dtype!r:.60} is not the name of a dtype")
    return max(1, min(int(match["bits"] or 8), 512) // 8)


def check_tensor(entry: TensorEntry) -> None:
    """The elements, laid out by strides (in elements), stay inside `size_bytes`.

    Raises:
        CheckpointCorrupt: they would not.
    """
    if len(entry.strides) != len(entry.shape):
        raise CheckpointCorrupt(f"a tensor of {len(entry.shape)} dimensions has {len(entry.strides)} strides")
    item = item_bytes(entry.dtype)
    count = math.prod(entry.shape)
    if count * item > entry.size_bytes:
        raise CheckpointCorrupt(f"{count} elements of {entry.dtype} do not fit {entry.size_bytes} bytes")
    reach = 1 + sum((n - 1) * stride for n, stride in zip(entry.shape, entry.strides, strict=True)) if count else 0
    if reach * item > entry.size_bytes:
        raise CheckpointCorrupt(f"strides reach behind the {entry.size_bytes} bytes of a tensor")
