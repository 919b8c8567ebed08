"""Values travel exactly, or are refused by their path when saved; reading back can name no code (SAFE)."""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.errors import CheckpointCorrupt, UnsavableValue
from sweeper.model.staging import Layout
from sweeper.trial.values import Decoder, encode


class Colour(Enum):
    RED = 1
    BLUE = "b"


def there_and_back(value: object) -> Any:
    """Through the buffer and through canonical JSON, as a checkpoint goes."""
    encoded = encode(value)
    memory = mmap.mmap(-1, max(encoded.layout.buffer_bytes, 1))
    encoded.copy_into(memory)
    raw = json.loads(json.dumps(json.loads(encoded.layout.to_bytes()), sort_keys=True))
    return Decoder(Layout.from_bytes(json.dumps(raw).encode()), memory).value()


def raw_bytes(tensor: torch.Tensor) -> list[int]:
    return tensor.contiguous().view(-1).view(torch.uint8).tolist() if tensor.numel() else []


def same(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        alike = (left.dtype, left.shape, left.stride()) == (right.dtype, right.shape, right.stride())
        return alike and raw_bytes(left) == raw_bytes(right)
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(left, np.generic):
        return left.dtype == right.dtype and left.tobytes() == right.tobytes()
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple, deque)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):  # of a number that is none, nothing but its pattern differs, and no arithmetic shows it
        return struct.pack("d", left) == struct.pack("d", right) or (math.isnan(left) and math.isnan(right))
    return bool(left == right)


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, 1, 2**53 + 1, -(2**200), 1.0, -0.0, 1e-320, math.inf, -math.inf, math.nan, 1 + 2j, "", "\ud800",
        b"\x00\xff", bytearray(b"x"), (1, (2,)), [1, [2.0]], {3, 4}, frozenset({"a"}), range(1, 9, 2),
        {"b": 1, "a": 2}, {"$tensor": 1}, {1: "x", (2, 3): "y", None: "z", 1.5: "w", True + 1: "v"},
        OrderedDict([("z", 1), ("a", 2)]), Counter({"x": 3, 7: 2}), deque([1, 2], maxlen=5), deque([1]),
        defaultdict(list, {"k": [1]}), defaultdict(None, {"k": 1}), Colour.RED, [Colour.BLUE],
        torch.float16, torch.device("cpu"), torch.Size([2, 3]),
        np.float32(1.5), np.int64(-3), np.bool_(True), np.complex64(1j), np.str_("é"), np.datetime64("2020-01-01"),
        np.float64(-0.0), np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.zeros((0, 4), np.int8), np.array(5), np.array(["ab", "c"]), np.arange(10)[::3], np.array([True, False]),
    ],
    ids=repr,
)  # fmt: skip
def test_plain_values_and_arrays_come_back_as_they_were(value: object) -> None:
    back = there_and_back({"value": value})["value"]
    assert same(value, back) or (value == back and type(value) is type(back))
    if isinstance(value, deque):
        assert back.maxlen == value.maxlen
    if isinstance(value, defaultdict):
        assert back.default_factory is value.default_factory


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int64,
     torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128],
    ids=str,
)  # fmt: skip
def test_tensors_of_every_dtype_come_back_bit_for_bit(dtype: torch.dtype) -> None:
    raw = torch.arange(48, dtype=torch.uint8)
    for tensor in (
        (raw % 2).bool() if dtype is torch.bool else raw.view(dtype),
        torch.zeros((), dtype=dtype), torch.zeros((0, 3), dtype=dtype),
    ):  # fmt: skip
        assert same(there_and_back(tensor), tensor)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(4, 6)[:, 1:3], lambda: torch.randn(4, 6).t(), lambda: torch.randn(6)[::2],
        lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), lambda: torch.randn(3, 1).expand(3, 7),
        lambda: torch.randn(10).as_strided((4, 3), (2, 1)), lambda: torch.randn(5, 5)[2],
    ],
    ids=["columns", "transposed", "strided", "channels_last", "expanded", "overlapping", "row"],
)  # fmt: skip
def test_views_keep_their_strides(make: Any) -> None:
    tensor = make()
    back = there_and_back(tensor)
    assert back.stride() == tensor.stride()
    assert torch.equal(back, tensor)


def test_conjugate_and_negative_views_are_resolved_first() -> None:
    tensor = torch.randn(4, dtype=torch.complex64)
    assert torch.equal(there_and_back(tensor.conj()), tensor.conj())
    assert torch.equal(there_and_back(tensor.conj().imag), tensor.conj().imag)


def test_ties_and_overlaps_hold_and_their_bytes_are_kept_once() -> None:
    base = torch.randn(100)
    value = {"a": base, "b": base[10:20], "c": base.view(10, 10).t(), "d": base.view(torch.int32), "e": torch.ones(1)}
    encoded = encode(value)
    assert len(encoded.layout.tensors) == 2
    back = there_and_back(value)
    back["a"][15] = 7.0
    assert back["b"][5] == 7.0
    assert back["c"][5, 1] == 7.0
    array = np.arange(3)
    one, two = there_and_back([array, array])
    assert one is two


def test_tensors_of_arrays_that_begin_together_are_saved_by_the_longer_one() -> None:
    """Their storages have one address and two lengths."""
    array = np.arange(6.0)
    first, whole = there_and_back([torch.from_numpy(array[:2]), torch.from_numpy(array)])
    assert (first.tolist(), whole.tolist()) == ([0, 1], [0, 1, 2, 3, 4, 5])
    first[0] = 7
    assert whole[0] == 7


def test_what_is_read_back_is_private_and_writable() -> None:
    tensor = torch.zeros(3)
    encoded = encode({"t": tensor})
    memory = mmap.mmap(-1, encoded.layout.buffer_bytes)
    encoded.copy_into(memory)
    for _ in range(2):
        back = Decoder(encoded.layout, memory).value("t")
        assert back.tolist() == [0, 0, 0]
        back += 1


def test_parameters_and_gradient_flags_come_back() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    leaf = torch.ones(2, requires_grad=True)
    back = there_and_back([parameter, leaf, leaf * 2])
    assert [type(tensor) for tensor in back] == [torch.nn.Parameter, torch.Tensor, torch.Tensor]
    assert [tensor.requires_grad for tensor in back] == [True, True, False]


class Custom:
    pass


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": {"b": [1, Custom()]}}, r"a\.b\[1\]: a test\w*\.Custom|a\.b\[1\]"),
        ({"x": lambda: 1}, "x: a builtins.function"),
        ({"p": Path("x")}, "p: a pathlib"),
        ({"t": Text("x")}, "t: a "),
        ({"o": np.array([object()])}, "o: NumPy elements of type object"),
        ({"r": np.zeros(2, dtype=[("f", "i4")])}, "r: NumPy elements"),
        ({"s": torch.eye(2).to_sparse()}, "s: a tensor that is torch.sparse_coo"),
        ({"m": torch.ones(2, device="meta")}, "m: a tensor that is torch.strided on meta"),
        ({"d": defaultdict(lambda: 1)}, "d: a defaultdict made by"),
        ({"g": (n for n in ())}, "g: a builtins.generator"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_anything_else_is_refused_when_saved_naming_its_path(value: object, path: str) -> None:
    with pytest.raises(UnsavableValue, match=path):
        encode(value)


def test_an_enum_inside_a_function_and_a_bottomless_list_are_refused() -> None:
    class Local(Enum):
        A = 1

    with pytest.raises(UnsavableValue, match="named member of an enum"):
        encode({"e": Local.A})
    deep: list[Any] = []
    deep.append(deep)
    with pytest.raises(UnsavableValue, match="nested deeper"):
        encode(deep)


@pytest.mark.parametrize(
    "tree",
    [
        {"$enum": ["os", "system", "x"]}, {"$enum": ["subprocess", "Popen", "x"]}, {"$enum": ["antigravity", "x", "y"]},
        {"$import": "os"}, {"$defaultdict": ["eval", []]}, {"$dtype": "Tensor"}, {"$dtype": "load"},
        {"$ndarray": {"dtype": "|O8", "shape": [1], "order": "C", "entry": 0}}, {"$numpy": ["O", ""]},
        {"$tensor": {"entry": 0, "dtype": "float32", "offset": 0, "shape": [3], "strides": [1]}},
        {"$tensor": {"entry": 0, "dtype": "float32", "offset": 2, "shape": [1], "strides": [1]}},
        {"$tensor": {"entry": 0, "dtype": "float32", "offset": 0, "shape": [1], "strides": [-1]}},
        {"$tensor": {"entry": 0, "dtype": "float32", "offset": 0, "shape": [2**40], "strides": [2**40]}},
        {"$tensor": {"entry": 9, "dtype": "float32", "offset": 0, "shape": [1], "strides": [1]}},
        {"$tensor": {"entry": -1, "dtype": "float32", "offset": 0, "shape": [1], "strides": [1]}},
        {"$tensor": {"entry": None, "dtype": "float32", "offset": 0, "shape": [5], "strides": [1]}},
        {"$tensor": 3}, {"$tuple": 3}, {"$dict": [[1]]}, {"$odict": []}, {"$set": [[1]]}, {"$size": ["x"]},
    ],
    ids=repr,
)  # fmt: skip
def test_hostile_trees_are_corrupt_and_nothing_else(tree: Any) -> None:
    """SAFE: nothing read back is unpickled or names code to run."""
    import sys

    layout = encode(torch.ones(2)).layout
    hostile = Layout(tree=tree, tensors=layout.tensors, buffer_bytes=layout.buffer_bytes)
    with pytest.raises(CheckpointCorrupt):
        Decoder(hostile, mmap.mmap(-1, 64)).value()
    assert "antigravity" not in sys.modules


Plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner)
    | st.dictionaries(st.text(max_size=3), inner, max_size=4) | st.dictionaries(st.integers(), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=80)
@given(Plain)
def test_any_nest_of_plain_values_comes_back(value: Any) -> None:
    assert same(there_and_back(value), value)


Json = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.sampled_from(["$tensor", "$ndarray", "$numpy", "$odict", "$dict", "$deque", "$enum", "$range",
                                       "$counter", "$device", "$dtype", "entry", "shape", "strides", "dtype"]),
                      inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=150)
@given(Json)
def test_any_json_is_a_value_or_corrupt(tree: Any) -> None:
    with contextlib.suppress(CheckpointCorrupt):
        Decoder(Layout(tree=tree, tensors=(), buffer_bytes=0), mmap.mmap(-1, 1)).value()
