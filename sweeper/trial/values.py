"""Live values as a tagged tree over flat bytes and back: exact, and never able to name code (SAFE).

Plain values take the tags of `sweeper.model.tagged`; the further tags here carry what training state is made of. What
cannot be carried exactly is refused when it is saved, naming its path; nothing is ever approximated. Reading back
builds only types from a fixed table; an enum is looked up among classes that the process already has, and nothing that
the data names is called.

A mapping whose text keys are not in sorted order is written as pairs: the manifest's canonical JSON sorts its keys, and
the order of a dictionary is part of its value.
"""

from __future__ import annotations

import base64
import importlib
import mmap
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, EnumMeta
from typing import Any, Final

from sweeper.errors import CheckpointCorrupt, UnsavableValue
from sweeper.model.staging import Layout
from sweeper.model.tagged import from_tagged, to_tagged
from sweeper.model.trial import Json
from sweeper.trial.arrays import array_from, array_tag, is_array, is_scalar, scalar_from, scalar_tag
from sweeper.trial.buffers import BufferPlan
from sweeper.trial.tensors import TensorPlan, TensorReader, dtype_named, is_tensor, torch_if_loaded

MAX_DEPTH: Final = 100
_PLAIN: Final = (type(None), bool, int, float, str, complex, bytes)
_FACTORIES: Final[dict[str, Callable[[], Any]]] = {
    "list": list, "dict": dict, "set": set, "int": int, "float": float, "tuple": tuple, "str": str, "bool": bool,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A value's layout. The tree is a copy already; tensor bytes are still the live ones until `copy_into`."""

    layout: Layout
    plan: BufferPlan

    def copy_into(self, buffer: mmap.mmap) -> None:
        """Copy every block of bytes to its place in a buffer of at least `layout.buffer_bytes`."""
        self.plan.copy_into(buffer)


def encode(value: object, *, name: str = "") -> Encoded:
    """Give a value's layout. `name` begins the paths of error messages.

    Raises:
        UnsavableValue: the message names the path of what has no exact form.
    """
    encoder = _Encoder()
    tree = encoder.tree(value, name, 0)
    encoder.tensors.place(encoder.plan)
    layout = Layout(tree=tree, tensors=tuple(encoder.plan.entries), buffer_bytes=encoder.plan.size_bytes)
    return Encoded(layout=layout, plan=encoder.plan)


class _Encoder:
    def __init__(self) -> None:
        self.plan = BufferPlan()
        self.tensors = TensorPlan()
        self._arrays: dict[int, tuple[object, Json]] = {}

    def tree(self, value: object, path: str, depth: int) -> Json:
        kind = type(value)
        if kind is str or value is None or kind is bool:
            return value  # type: ignore[return-value]  # the most frequent ones, as they are
        if kind in _PLAIN:
            return to_tagged(value)
        if depth > MAX_DEPTH:
            raise UnsavableValue(f"{path[:200]}: nested deeper than {MAX_DEPTH}")
        if kind is dict:
            assert isinstance(value, dict), "narrowed by its exact type"
            return self._mapping(value, path, depth)
        if kind in (list, tuple):
            assert isinstance(value, (list, tuple)), "narrowed by its exact type"
            items: Json = [self.tree(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
            return items if kind is list else {"$tuple": items}
        if is_tensor(value):
            return self.tensors.tag(value, path)
        if is_array(value):
            if id(value) not in self._arrays:
                self._arrays[id(value)] = value, array_tag(value, path, self.plan)
            return self._arrays[id(value)][1]
        if is_scalar(value):
            return scalar_tag(value, path)
        if isinstance(value, Enum):
            return _enum_tag(value, path)
        return self._special(value, path, depth)

    def _mapping(self, value: dict[Any, Any], path: str, depth: int) -> Json:
        keys = list(value)
        if all(type(key) is str and not key.startswith("$") for key in keys) and keys == sorted(keys):
            return {key: self.tree(item, _joined(path, key), depth + 1) for key, item in value.items()}
        return {"$dict": self._pairs(value, path, depth)}

    def _pairs(self, value: Mapping[Any, Any], path: str, depth: int) -> Json:
        return [
            [self.tree(key, f"{path} key {key!r:.80}", depth + 1), self.tree(item, _joined(path, key), depth + 1)]
            for key, item in value.items()
        ]

    def _items(self, value: Iterable[object], path: str, depth: int) -> list[Json]:
        return [self.tree(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]

    def _special(self, value: Any, path: str, depth: int) -> Json:
        kind = type(value)
        if kind is OrderedDict:
            body: list[Json] = [self._pairs(value, path, depth)]
            metadata = getattr(value, "_metadata", None)  # a module's state versions, which loading reads
            if metadata is not None:
                body.append(self.tree(metadata, f"{path}._metadata", depth + 1))
            return {"$odict": body}
        if kind is Counter:
            return {"$counter": self._pairs(value, path, depth)}
        if kind is defaultdict:
            return {"$defaultdict": [_factory_name(value, path), self._pairs(value, path, depth)]}
        if kind is deque:
            return {"$deque": [value.maxlen, self._items(value, path, depth)]}
        if kind in (set, frozenset):
            members = sorted(self._items(value, path, depth), key=repr)
            return {"$set" if kind is set else "$frozenset": members}
        if kind is range:
            return {"$range": [to_tagged(number) for number in (value.start, value.stop, value.step)]}
        if kind is bytearray:
            return {"$bytearray": base64.b64encode(value).decode()}
        return _torch_tag(value, path)


def _torch_tag(value: Any, path: str) -> Json:
    torch = torch_if_loaded()
    if torch is not None:
        if type(value) is torch.Size:
            return {"$size": list(value)}
        if isinstance(value, torch.dtype):
            return {"$dtype": str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {"$device": str(value)}
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise UnsavableValue(
        f"{path or 'the value'}: a {kind} has no exact form that is safe to read back; "
        "keep numbers, text, containers, tensors or arrays instead"
    )


def _joined(path: str, key: object) -> str:
    if not isinstance(key, str):
        return f"{path}[{key!r:.80}]"
    return f"{path}.{key}" if path else key


def _factory_name(value: defaultdict[Any, Any], path: str) -> str | None:
    factory = value.default_factory
    if factory is None:
        return None
    for name, known in _FACTORIES.items():
        if factory is known:
            return name
    raise UnsavableValue(f"{path}: a defaultdict made by {factory!r} has no exact form")


def _enum_tag(value: Enum, path: str) -> Json:
    kind = type(value)
    tag: Json = [kind.__module__, kind.__qualname__, value._name_]
    if value._name_ is None or _enum_member(tag) is not value:
        raise UnsavableValue(f"{path}: {value!r} is not a named member of an enum at the top level of its module")
    return {"$enum": tag}


def _enum_member(tag: Any) -> Enum | None:
    """Look a member up among what is loaded, by plain dictionary access: nothing is imported, nothing is called."""
    module, qualname, name = tag
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        if found is None:
            return None
        found = vars(found).get(part)
    if not isinstance(found, EnumMeta):
        return None
    member = vars(found)["_member_map_"].get(name)
    return member if isinstance(member, Enum) else None


def _item(tree: Json, key: str) -> Json:
    """The item of a mapping's tag, in either of the forms that a mapping with text keys has."""
    if isinstance(tree, dict) and isinstance(pairs := tree.get("$dict"), list):
        for pair in pairs:
            if isinstance(pair, list) and len(pair) == 2 and pair[0] == key:
                return pair[1]
    elif isinstance(tree, dict):
        return tree[key]
    raise KeyError(key)


class Decoder:
    """Builds private, writable values from a save; tensors of one decoder share storage as they did."""

    def __init__(self, layout: Layout, memory: mmap.mmap) -> None:
        self.root: Json = layout.tree
        self._reader = TensorReader(layout, memory)
        self._arrays: dict[int, Any] = {}

    def value(self, *path: str) -> Any:  # Any: the value's type is in the data
        """Give the value at a path of text keys from the root.

        Raises:
            CheckpointCorrupt: there is nothing there, or it is malformed.
        """
        tree = self.root
        try:
            for key in path:
                tree = _item(tree, key)
            return self._value(tree, 0)
        except LookupError:
            raise CheckpointCorrupt(f"the save has no {'.'.join(path)}") from None
        except (TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
            raise CheckpointCorrupt(f"malformed value at {'.'.join(path)}: {error}") from error

    def _value(self, tree: Json, depth: int) -> Any:
        if depth > 2 * MAX_DEPTH:
            raise CheckpointCorrupt("nested too deep")
        if isinstance(tree, list):
            return [self._value(item, depth + 1) for item in tree]
        if not isinstance(tree, dict):
            return tree
        if len(tree) != 1 or not next(iter(tree)).startswith("$"):
            return {key: self._value(item, depth + 1) for key, item in tree.items()}
        tag, body = next(iter(tree.items()))
        return self._untag(tag, body, depth + 1)

    def _pairs(self, body: Any, depth: int) -> list[tuple[Any, Any]]:
        return [(self._value(key, depth), self._value(item, depth)) for key, item in body]

    def _untag(self, tag: str, body: Any, depth: int) -> Any:
        match tag:
            case "$tensor":
                return self._reader.tensor(body)
            case "$ndarray":
                return self._array(body)
            case "$numpy":
                return scalar_from(body)
            case "$tuple":
                return tuple(self._value(item, depth) for item in body)
            case "$dict":
                return dict(self._pairs(body, depth))
            case "$odict":
                return self._ordered(body, depth)
            case "$counter":
                return Counter(dict(self._pairs(body, depth)))
            case "$defaultdict":
                return defaultdict(None if body[0] is None else _FACTORIES[body[0]], self._pairs(body[1], depth))
            case "$deque":
                return deque((self._value(item, depth) for item in body[1]), maxlen=body[0])
            case "$set":
                return {self._value(item, depth) for item in body}
            case "$frozenset":
                return frozenset(self._value(item, depth) for item in body)
            case "$enum":
                return _found_enum(body)
            case _:
                return _untag_leaf(tag, body)

    def _ordered(self, body: Any, depth: int) -> OrderedDict[Any, Any]:
        ordered = OrderedDict(self._pairs(body[0], depth))
        if len(body) > 1:
            ordered._metadata = self._value(body[1], depth)  # type: ignore[attr-defined]  # as torch does
        return ordered

    def _array(self, body: dict[str, Any]) -> Any:
        entry = body["entry"]
        if entry is None:
            return array_from(body, memoryview(b""))
        if entry not in self._arrays:
            self._arrays[entry] = array_from(body, self._reader.bytes_of(entry))
        return self._arrays[entry]


def _untag_leaf(tag: str, body: Any) -> Any:
    match tag:
        case "$range":
            return range(*(from_tagged(number) for number in body))
        case "$bytearray":
            return bytearray(base64.b64decode(body, validate=True))
        case "$size":
            return importlib.import_module("torch").Size(body)
        case "$dtype":
            return dtype_named(body)
        case "$device":
            return importlib.import_module("torch").device(body)
        case _:
            return from_tagged({tag: body})


def _found_enum(body: Any) -> Enum:
    member = _enum_member(body)
    if member is None:
        raise CheckpointCorrupt(f"this process has no enum member {'.'.join(map(str, body))}")
    return member
