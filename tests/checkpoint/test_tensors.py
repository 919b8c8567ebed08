"""How many bytes an element has, by the name of its dtype."""

from __future__ import annotations

import pytest

from sweeper.checkpoint.tensors import item_bytes
from sweeper.errors import CheckpointCorrupt

SIZES = {
    "float32": 4,
    "torch.float64": 8,
    "bfloat16": 2,
    "complex128": 16,
    "bool": 1,
    "uint8": 1,
    "int64": 8,
    "float8_e4m3fn": 1,
    "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1,
    "bits16": 2,
    "quint4x2": 1,
    "<f8": 8,
    "|b1": 1,
    "<c16": 16,
    "<M8[ns]": 8,
    "|V12": 12,
}


@pytest.mark.parametrize(("name", "size"), SIZES.items())
def test_names_of_torch_and_numpy_tell_a_size(name: str, size: int) -> None:
    assert item_bytes(name) == size


@pytest.mark.parametrize("name", ["", "os.system", "float 32", "f" * 1000, "<f8; import os", "float32\n", "../x", "９"])
def test_anything_else_is_no_dtype(name: str) -> None:
    with pytest.raises(CheckpointCorrupt):
        item_bytes(name)
