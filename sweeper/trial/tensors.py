"""Tensors as views of storages: the bytes of a storage once, each tensor by dtype, offset, shape and strides.

So ties, overlapping views and any stride order come back as they were. Of a storage only the extent that the tensors of
one save touch is kept. Conjugate and negative views are resolved first: their bytes alone would be another value.
torch is only used when the process has it loaded already, or when saved bytes say that it had.
"""

from __future__ import annotations

import importlib
import mmap
import sys
from typing import Any, Final

from sweeper.errors import CheckpointCorrupt, UnsavableValue
from sweeper.model.staging import Layout
from sweeper.model.trial import Json
from sweeper.trial.buffers import BufferPlan

_ROUNDING: Final = 16
"""Bytes; no dtype is wider, so a view's offset stays a whole number of elements whatever the extent's start."""
_MAX_DIMENSIONS: Final = 64


def torch_if_loaded() -> Any:  # Any: torch is optional, and never imported for its types
    """The torch module if this process has imported it (completely), else None."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and hasattr(torch, "Tensor") and hasattr(torch, "Generator") else None


def is_tensor(value: object) -> bool:
    """Whether this is a tensor of any kind."""
    torch = torch_if_loaded()
    return torch is not None and isinstance(value, torch.Tensor)


class TensorPlan:
    """Collects the tensors of one save, by storage."""

    def __init__(self) -> None:
        self._views: dict[tuple[str, int], list[tuple[Any, dict[str, Json]]]] = {}

    def tag(self, tensor: Any, path: str) -> Json:
        """Give a tensor's tag. Entry and offset are filled in by `place`, once all its ties are known.

        Raises:
            UnsavableValue: not a plain strided tensor.
        """
        _refuse_unusual(tensor, path)
        body: dict[str, Json] = {"dtype": str(tensor.dtype).removeprefix("torch.")}
        if tensor.device.type != "cpu":
            body["device"] = tensor.device.type
        if isinstance(tensor, torch_if_loaded().nn.Parameter):
            body["parameter"] = True
        if tensor.requires_grad and tensor.is_leaf:
            body["grad"] = True
        tensor = tensor.detach().resolve_conj().resolve_neg()
        body |= {"entry": None, "offset": 0, "shape": list(tensor.shape), "strides": list(tensor.stride())}
        if tensor.numel():
            key = (str(tensor.device), tensor.untyped_storage().data_ptr())
            self._views.setdefault(key, []).append((tensor, body))  # the tensor stays alive, so the key stays its own
        return {"$tensor": body}

    def place(self, plan: BufferPlan) -> None:
        """Give each storage its block and each tag its place in it."""
        for views in self._views.values():
            _place_storage(views, plan)


def _place_storage(views: list[tuple[Any, dict[str, Json]]], plan: BufferPlan) -> None:
    extents = [_extent(tensor) for tensor, _ in views]
    first = views[0][0]
    # Storages of one address can differ in length: those of arrays that begin together.
    storage = max((tensor.untyped_storage() for tensor, _ in views), key=lambda storage: storage.nbytes())
    begin, end = min(start for start, _ in extents), max(stop for _, stop in extents)
    alike = all(extent == extents[0] and _geometry(tensor) == _geometry(first) for extent, (tensor, _) in
                zip(extents[1:], views[1:], strict=True))  # fmt: skip
    if not alike:
        begin -= begin % _ROUNDING
    size_bytes = end - begin

    def copy(buffer: mmap.mmap, offset: int) -> None:
        torch = torch_if_loaded()
        source = torch.empty(0, dtype=torch.uint8, device=first.device)
        source.set_(storage, begin, (size_bytes,), (1,))
        torch.frombuffer(buffer, dtype=torch.uint8, count=size_bytes, offset=offset).copy_(source)

    if alike and first.numel() * first.element_size() == size_bytes:
        dtype = str(first.dtype).removeprefix("torch.")
        entry = plan.add(size_bytes, copy, dtype=dtype, shape=tuple(first.shape), strides=first.stride())
    else:
        entry = plan.add_raw(size_bytes, copy)
    for (start, _), (_, body) in zip(extents, views, strict=True):
        body["entry"] = entry
        body["offset"] = start - begin


def _geometry(tensor: Any) -> tuple[Any, ...]:
    return tensor.dtype, tuple(tensor.shape), tensor.stride()


def _extent(tensor: Any) -> tuple[int, int]:
    """First byte and the byte after the last that a non-empty tensor touches in its storage."""
    size = tensor.element_size()
    if tensor.is_contiguous():
        start = tensor.storage_offset() * size
        return start, start + tensor.numel() * size
    last = sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.storage_offset() * size
    return start, start + (last + 1) * size


def _refuse_unusual(tensor: Any, path: str) -> None:
    torch = torch_if_loaded()
    if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
        raise UnsavableValue(f"{path}: this lazy layer has no shape yet; run the model once before sweeper.resume(...)")
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.Tensor))
    if not plain:
        raise UnsavableValue(f"{path}: a {type(tensor).__module__}.{type(tensor).__qualname__} has no exact form")
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        kind = "quantized" if tensor.is_quantized else f"{tensor.layout} on {tensor.device}"
        raise UnsavableValue(f"{path}: a tensor that is {kind} has no exact form")


class TensorReader:
    """Builds private, writable tensors from a save's bytes; tensors of one reader share storage as they did."""

    def __init__(self, layout: Layout, memory: mmap.mmap) -> None:
        self._layout = layout
        self._memory = memory
        self._storages: dict[tuple[int, str], Any] = {}

    def tensor(self, body: dict[str, Any]) -> Any:
        """Give the tensor that a tag describes, on its kind of device if this machine has one, else on the CPU.

        Raises:
            CheckpointCorrupt: the tag does not fit the bytes.
        """
        torch = importlib.import_module("torch")
        dtype = dtype_named(body["dtype"])
        device = "cuda" if body.get("device") == "cuda" and torch.cuda.is_available() else "cpu"
        shape, strides, offset = body["shape"], body["strides"], body["offset"]
        _check_geometry(shape, strides, offset)
        tensor = torch.empty(0, dtype=dtype, device=device)
        if body["entry"] is None:
            if 0 not in shape:
                raise CheckpointCorrupt("a tensor without bytes is not empty")
            tensor = torch.empty_strided(shape, strides, dtype=dtype, device=device)
        else:
            storage = self._storage(body["entry"], device)
            size = tensor.element_size()
            last = offset + (sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1) * size
            if 0 in shape or offset % size or last > storage.nbytes:
                raise CheckpointCorrupt(f"a tensor reaches to byte {last} of a block of {storage.nbytes}")
            tensor.set_(storage.untyped_storage(), offset // size, shape, strides)
        if body.get("parameter"):
            return torch.nn.Parameter(tensor, requires_grad=bool(body.get("grad")))
        return tensor.requires_grad_() if body.get("grad") else tensor

    def bytes_of(self, entry: object) -> memoryview:
        """The bytes of one block, not copied."""
        place = self._entry(entry)
        return memoryview(self._memory)[place.offset : place.offset + place.size_bytes]

    def _storage(self, entry: object, device: str) -> Any:
        place = self._entry(entry)
        assert isinstance(entry, int), "checked by _entry"
        if (entry, device) not in self._storages:
            torch = importlib.import_module("torch")
            shared = torch.frombuffer(self._memory, dtype=torch.uint8, count=place.size_bytes, offset=place.offset)
            self._storages[entry, device] = shared.clone().to(device)
        return self._storages[entry, device]

    def _entry(self, index: object) -> Any:
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(self._layout.tensors):
            raise CheckpointCorrupt(f"there is no block {index!r}")
        place = self._layout.tensors[index]
        end = place.offset + place.size_bytes
        if not 0 <= place.offset <= end <= min(self._layout.buffer_bytes, len(self._memory)):
            raise CheckpointCorrupt(f"block {index} lies outside the save")
        return place


def _check_geometry(shape: Any, strides: Any, offset: Any) -> None:
    numbers = [*shape, *strides, offset]
    if len(shape) != len(strides) or len(shape) > _MAX_DIMENSIONS:
        raise CheckpointCorrupt("shape and strides do not fit together")
    if not all(type(number) is int and 0 <= number < 2**62 for number in numbers):
        raise CheckpointCorrupt("shape, strides or offset are not sizes")


def dtype_named(name: object) -> Any:
    """Give torch's dtype of that name.

    Raises:
        CheckpointCorrupt: there is none.
    """
    torch = importlib.import_module("torch")
    dtype = vars(torch).get(str(name))
    if not isinstance(dtype, torch.dtype):
        raise CheckpointCorrupt(f"{name!r} is no dtype of torch {torch.__version__}")
    return dtype
