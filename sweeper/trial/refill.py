"""Putting saved values back *into* live ones, so that whoever holds a part of the state holds the right one afterwards.

A script may keep `history = run.state.setdefault("history", [])` in a local variable. Replacing that list when the loop
is back at its place would leave the script with one that no later save sees.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from typing import Any, Final

from sweeper.trial.arrays import is_array
from sweeper.trial.tensors import is_tensor, torch_if_loaded

_MAPPINGS: Final = (dict, OrderedDict, Counter, defaultdict)
_MEMBERS: Final = (set, bytearray)


def refill(live: Any, saved: Any) -> Any:
    """Give a value equal to `saved`: `live` itself, changed in place, wherever it is a container of the same kind.

    Each live container is used once; of tensors and arrays, only those that share no memory with another one.
    """
    return _Refill(live, saved).value(live, saved)


class _Refill:
    def __init__(self, live: Any, saved: Any) -> None:
        self._used: set[int] = set()
        self._sharing = _sharing(live) | _sharing(saved)

    def value(self, live: Any, saved: Any) -> Any:
        if type(live) is not type(saved) or live is saved or id(live) in self._used:
            return saved
        if isinstance(saved, (*_MAPPINGS, list, deque, *_MEMBERS)):
            self._used.add(id(live))
            return self._container(live, saved)
        if is_tensor(saved) and not {_memory(live), _memory(saved)} & self._sharing:
            return _tensor(live, saved)
        if is_array(saved) and not {_memory(live), _memory(saved)} & self._sharing:
            return _array(live, saved)
        return saved

    def _container(self, live: Any, saved: Any) -> Any:
        if isinstance(saved, _MAPPINGS):
            if isinstance(saved, defaultdict):
                live.default_factory = saved.default_factory
            merged = {key: self.value(live[key], item) if key in live else item for key, item in saved.items()}
            live.clear()
            live.update(merged)
            return live
        if isinstance(saved, (list, deque)):
            if isinstance(saved, deque) and live.maxlen != saved.maxlen:
                return saved
            items = [self.value(live[index], item) if index < len(live) else item for index, item in enumerate(saved)]
            live.clear()
            live.extend(items)
            return live
        live.clear()
        live.update(saved) if isinstance(saved, set) else live.extend(saved)
        return live


def _tensor(live: Any, saved: Any) -> Any:
    alike = (live.dtype, live.shape, live.stride(), live.device) == (
        saved.dtype, saved.shape, saved.stride(), saved.device
    )  # fmt: skip
    if not alike or live.requires_grad != saved.requires_grad or not live.is_leaf or live.is_inference():
        return saved
    live.detach().copy_(saved.detach())
    return live


def _array(live: Any, saved: Any) -> Any:
    if (live.dtype, live.shape, live.strides) != (saved.dtype, saved.shape, saved.strides) or not live.flags.writeable:
        return saved
    live[...] = saved
    return live


def _memory(value: Any) -> tuple[str, int]:
    if is_tensor(value):
        plain = value.layout is torch_if_loaded().strided
        return "tensor", value.untyped_storage().data_ptr() if plain else id(value)
    base = value
    while is_array(base.base):
        base = base.base
    return "array", id(base) if base.base is None else base.ctypes.data


def _sharing(value: Any) -> set[tuple[str, int]]:
    """Memory that several tensors, or several arrays, of a value use."""
    seen: set[tuple[str, int]] = set()
    shared: set[tuple[str, int]] = set()
    for leaf in _leaves(value, set()):
        memory = _memory(leaf)
        (shared if memory in seen else seen).add(memory)
    return shared


def _leaves(value: Any, visited: set[int]) -> Iterator[Any]:
    if is_tensor(value) or is_array(value):
        yield value
    elif isinstance(value, (*_MAPPINGS, list, tuple, deque)) and id(value) not in visited:
        visited.add(id(value))
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item, visited)
