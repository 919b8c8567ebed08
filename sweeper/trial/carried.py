"""What travels of a sampler that has no `state_dict`: attributes made of numbers and text, up to a size.

A list of indices that a sampler shuffles in place is as much its state as a counter is. Long lists of integers travel
as tensors, which costs milliseconds where a tree of numbers would cost a second.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from sweeper.trial.arrays import is_array
from sweeper.trial.refill import refill
from sweeper.trial.tensors import is_tensor, torch_if_loaded

MAX_ELEMENTS: Final = 1 << 17
"""Numbers in one container; what is longer does not travel, and shows as another order of batches."""
_PLAIN: Final = (int, float, str, bool, type(None))
_DATA: Final = frozenset({"data_source", "dataset"})
"""Where samplers keep what they choose from."""


def attributes(sampler: Any) -> dict[str, Any]:
    """Copies of a sampler's attributes that can travel."""
    found: dict[str, Any] = {}
    for name, value in getattr(sampler, "__dict__", {}).items():
        if type(value) in _PLAIN:
            found[name] = value
        elif name not in _DATA and _size(value, MAX_ELEMENTS) is not None:
            found[name] = {"container": _packed(value)}
    return found


def put_back(sampler: Any, saved: Mapping[str, Any]) -> None:
    """Put back what `attributes` gave, containers in place: the script may hold them."""
    own = getattr(sampler, "__dict__", {})
    for name, value in saved.items():
        if isinstance(value, dict):
            setattr(sampler, name, refill(own.get(name), _unpacked(value["container"])))
        elif type(own.get(name)) in _PLAIN:
            setattr(sampler, name, value)


def _size(value: Any, limit: int, depth: int = 4) -> int | None:
    """Numbers and texts in a value; None for anything else, and over the limit."""
    if type(value) in _PLAIN:
        return 1
    if is_array(value):
        return int(value.size) if value.size <= limit and value.dtype.kind in "biuf" else None
    if is_tensor(value):
        plain = value.layout is torch_if_loaded().strided and not value.requires_grad
        return int(value.numel()) if plain and value.numel() <= limit else None
    if type(value) not in (list, tuple, dict, set, deque) or depth == 0 or len(value) > limit:
        return None
    if type(value) is dict and not all(type(key) in _PLAIN for key in value):
        return None
    total = 0
    for item in value.values() if type(value) is dict else value:
        size = _size(item, limit, depth - 1)
        if size is None or (total := total + size) > limit:
            return None
    return total


def _packed(value: Any) -> Any:
    """The value with its lists of integers as tensors, all of one list of lists in one."""
    kind = type(value)
    if kind is dict:
        return {"dict": [(key, _packed(item)) for key, item in value.items()]}
    if kind is tuple:
        return {"tuple": [_packed(item) for item in value]}
    if kind is list:
        if _all_integers(value):
            return {"integers": _tensor(value)}
        if value and all(type(item) is list and _all_integers(item) for item in value):
            flat = [number for item in value for number in item]
            return {"lists": _tensor(flat), "lengths": _tensor([len(item) for item in value])}
        return {"list": [_packed(item) for item in value]}
    return {"as it is": copy.deepcopy(value)}


def _unpacked(packed: Any) -> Any:
    match packed:
        case {"dict": pairs}:
            return {key: _unpacked(item) for key, item in pairs}
        case {"tuple": items}:
            return tuple(_unpacked(item) for item in items)
        case {"list": items}:
            return [_unpacked(item) for item in items]
        case {"integers": numbers}:
            return numbers.tolist()
        case {"lists": flat, "lengths": lengths}:
            items = iter(flat.tolist())
            return [[next(items) for _ in range(length)] for length in lengths.tolist()]
        case _:
            return packed["as it is"]


def _all_integers(items: list[Any]) -> bool:
    return all(type(item) is int and -(2**63) <= item < 2**63 for item in items)


def _tensor(numbers: list[int]) -> Any:
    torch = torch_if_loaded()
    return torch.tensor(numbers, dtype=torch.int64)
