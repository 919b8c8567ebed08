"""NumPy arrays and scalars as tags over raw bytes. NumPy is used only when loaded, or when saved bytes say it was."""

from __future__ import annotations

import base64
import importlib
import mmap
import re
import sys
from typing import Any, Final

from sweeper.errors import CheckpointCorrupt, UnsavableValue
from sweeper.model.trial import Json
from sweeper.trial.buffers import BufferPlan

_DTYPE: Final = re.compile(r"[<>|][biufcmMSU]\d+(\[[0-9a-zA-Z]+\])?")
"""Numbers, booleans, dates and fixed-length text; no objects, no records."""


def numpy_if_loaded() -> Any:  # Any: NumPy is optional
    """The numpy module if this process has imported it (completely), else None."""
    numpy = sys.modules.get("numpy")
    return numpy if numpy is not None and hasattr(numpy, "ndarray") and hasattr(numpy, "generic") else None


def is_array(value: object) -> bool:
    """Whether this is a NumPy array of any kind."""
    numpy = numpy_if_loaded()
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_scalar(value: object) -> bool:
    """Whether this is a NumPy scalar; some are subclasses of Python's numbers and text."""
    numpy = numpy_if_loaded()
    return numpy is not None and isinstance(value, numpy.generic)


def array_tag(array: Any, path: str, plan: BufferPlan) -> Json:
    """Place an array's bytes; give its tag.

    Raises:
        UnsavableValue: a subclass, or elements that are objects or records.
    """
    numpy = numpy_if_loaded()
    if type(array) is not numpy.ndarray:
        raise UnsavableValue(f"{path}: a {type(array).__module__}.{type(array).__qualname__} has no exact form")
    dtype = _dtype_text(array.dtype, path)
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    entry: int | None = None
    if array.nbytes:

        def copy(buffer: mmap.mmap, offset: int) -> None:
            target = numpy.ndarray(array.shape, array.dtype, buffer, offset, order=order)
            target[...] = array

        entry = plan.add_raw(array.nbytes, copy)
    return {"$ndarray": {"dtype": dtype, "shape": list(array.shape), "order": order, "entry": entry}}


def array_from(body: dict[str, Any], data: memoryview) -> Any:
    """Give a private, writable array from a tag's body and its bytes.

    Raises:
        CheckpointCorrupt: they do not fit together.
    """
    numpy = importlib.import_module("numpy")
    dtype = _dtype_from(body["dtype"])
    shape = body["shape"]
    if not all(type(size) is int and 0 <= size < 2**62 for size in shape) or body["order"] not in ("C", "F"):
        raise CheckpointCorrupt("an array's shape is not one")
    expected = dtype.itemsize
    for size in shape:
        expected *= size
    if expected != len(data):
        raise CheckpointCorrupt(f"an array of {expected} bytes lies in a block of {len(data)}")
    return numpy.ndarray(shape, dtype, bytes(data) if data else None, order=body["order"]).copy(order="K")


def scalar_tag(scalar: Any, path: str) -> Json:
    """Give a scalar's tag, its bytes inline.

    Raises:
        UnsavableValue: a record or an object.
    """
    numpy = numpy_if_loaded()
    if isinstance(scalar, numpy.str_):
        return {"$numpy": ["str", str(scalar)]}
    dtype = _dtype_text(scalar.dtype, path)
    return {"$numpy": [dtype, base64.b64encode(scalar.tobytes()).decode()]}


def scalar_from(body: Any) -> Any:
    """Give the scalar that a tag describes.

    Raises:
        CheckpointCorrupt: bytes and dtype do not fit together.
    """
    numpy = importlib.import_module("numpy")
    kind, data = body
    if kind == "str":
        return numpy.str_(data)
    dtype = _dtype_from(kind)
    raw = base64.b64decode(data, validate=True)
    if len(raw) != dtype.itemsize:
        raise CheckpointCorrupt(f"a {kind} scalar has {len(raw)} bytes")
    return numpy.ndarray((), dtype, raw)[()]


def _dtype_text(dtype: Any, path: str) -> str:
    text = str(dtype.str)
    if not _DTYPE.fullmatch(text):
        raise UnsavableValue(f"{path}: NumPy elements of type {dtype} have no exact form")
    return text


def _dtype_from(text: object) -> Any:
    if not isinstance(text, str) or not _DTYPE.fullmatch(text):
        raise CheckpointCorrupt(f"{text!r} is no dtype of an array")
    return importlib.import_module("numpy").dtype(text)
