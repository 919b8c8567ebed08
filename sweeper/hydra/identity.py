"""Which config is the same config: the canonical text of a composed config, found *by difference*.

An interpolation counts by its resolved value, unless that value depends on the machine or the moment. Reading the
expressions cannot tell (`oc.select`, node references and custom resolvers carry values through), so the config is read
twice, with every unstable resolver answering a private mark that differs between the two readings. A leaf that reads
the same both times counts by value; one that does not counts by its own expression, and its value is never stored.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.base import Node
from omegaconf.basecontainer import BaseContainer
from omegaconf.errors import OmegaConfBaseException

from sweeper.errors import UserError
from sweeper.ids import system_random_hex
from sweeper.model.config_hash import Expression, Missing, canonical_document, canonical_value, hash_text
from sweeper.settings import IdentitySettings

UNSTABLE_RESOLVERS: Final = frozenset({"oc.env", "env", "now", "hydra", "python_version"})
"""Resolvers whose answer depends on the machine or the moment."""
_MAX_LEAVES: Final = 200_000

Resolver = Callable[..., Any]  # Any: OmegaConf's own resolver signature


def config_hash(
    cfg: DictConfig | Mapping[str, Any],  # Any: whatever a config holds
    *,
    ignore: Sequence[str] = (),
    version: str | None = None,
    unstable_resolvers: Sequence[str] = (),
    allow_missing: bool = False,
) -> str:
    """Give the identity of a config: 64 hex digits that depend on its values and their types and on nothing else.

    The top-level `hydra` node is left out. The rules are published in docs/config-identity.md.

    Args:
        cfg: a composed config, or a mapping, which counts as `OmegaConf.create` would read it.
        ignore: dotted keys that do not count, subtrees included.
        version: free text that is part of the identity (a data or code version).
        unstable_resolvers: further resolvers whose answers must not count.
        allow_missing: let `???` count as "missing" instead of refusing it.

    Raises:
        UserError: a missing mandatory value, an object, or text that no database can hold; the message names the key.
    """
    settings = IdentitySettings(
        ignore=tuple(ignore),
        version=version,
        unstable_resolvers=tuple(unstable_resolvers),
        allow_missing=allow_missing,
    )
    return hash_text(canonical_text(cfg, settings))


def canonical_text(cfg: DictConfig | Mapping[str, Any], settings: IdentitySettings | None = None) -> str:
    """Give the text whose SHA-256 is the config's hash; it holds no value that `settings` or the rules leave out.

    Raises:
        UserError: as `config_hash`.
    """
    settings = settings or IdentitySettings()
    return canonical_document(identity_values(cfg, settings), version=settings.version)


def identity_values(cfg: DictConfig | Mapping[str, Any], settings: IdentitySettings) -> dict[str, Any]:
    """Give the config's values as they count: plain containers with `Expression` and `Missing` leaves.

    Raises:
        UserError: a missing mandatory value that is not allowed, or a config that is absurdly large.
    """
    config = cfg if isinstance(cfg, DictConfig) else OmegaConf.create(dict(cfg), flags={"allow_objects": True})
    unstable = UNSTABLE_RESOLVERS | frozenset(settings.unstable_resolvers)
    first = _Reader(settings)
    with _marked_resolvers(config, unstable):
        left = first.read_root(config)
    right = left
    if first.met_interpolation:
        with _marked_resolvers(config, unstable):
            right = _Reader(settings).read_root(config)
    merged = _agree(left, right)
    if not isinstance(merged, dict):
        raise TypeError(f"a config is a mapping, not {type(merged).__name__}")
    return merged


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One reading of one leaf: what was read (or that it could not be), and the expression that led to it."""

    value: object
    expression: str | None
    resolved: bool = True


@dataclass(frozen=True, slots=True)
class _Branch:
    """One reading of a container: a mapping, or a list under its indices."""

    children: dict[Any, _Branch | _Leaf]  # Any: keys may be text, numbers, enums, bytes
    expression: str | None
    is_list: bool


class _Reader:
    """Reads a config once, under the resolvers that are installed now."""

    def __init__(self, settings: IdentitySettings) -> None:
        self._ignore = frozenset(settings.ignore) | {"hydra"}
        self._allow_missing = settings.allow_missing
        self._inside: list[int] = []
        self._leaves = 0
        self.met_interpolation = False

    def read_root(self, config: DictConfig) -> _Branch | _Leaf:
        """Read the whole config."""
        return self._read(config, "", None)

    def _read(self, node: object, key: str, expression: str | None) -> _Branch | _Leaf:
        if isinstance(node, Node):
            if node._is_missing():
                return _Leaf(self._missing(key), expression)
            if node._is_interpolation():
                return self._follow(node, key, expression)
        if isinstance(node, DictConfig | ListConfig) and not node._is_none():
            return self._enter(node, key, expression)
        value = node
        while isinstance(value, Node):
            value = value._value()
        if isinstance(value, Mapping | list | tuple):
            return self._enter(value, key, expression)
        self._leaves += 1
        if self._leaves > _MAX_LEAVES:
            raise UserError(
                f"the config has more than {_MAX_LEAVES} values (interpolations that refer to one another?)"
            )
        return _Leaf(value, expression)

    def _follow(self, node: Node, key: str, outer: str | None) -> _Branch | _Leaf:
        self.met_interpolation = True
        raw: object = node
        while isinstance(raw, Node):
            raw = raw._value()
        expression = str(raw)
        try:
            target = node._dereference_node()
        except OmegaConfBaseException:
            return _Leaf(None, expression, resolved=False)
        if id(target) in self._inside or target._is_missing():
            return _Leaf(None, expression, resolved=False)
        return self._read(target, key, expression)

    def _enter(self, node: Any, key: str, expression: str | None) -> _Branch:  # Any: OmegaConf or plain container
        self._inside.append(id(node))
        try:
            children: dict[Any, _Branch | _Leaf] = {}
            is_list = isinstance(node, ListConfig | list | tuple)
            for name, child in _raw_items(node):
                path = f"{key}[{name}]" if is_list else f"{key}.{name}" if key else str(name)
                if path not in self._ignore:
                    children[name] = self._read(child, path, expression)
            return _Branch(children, expression, is_list)
        finally:
            self._inside.pop()

    def _missing(self, key: str) -> Missing:
        if not self._allow_missing:
            raise UserError(
                f"config key {key!r} has no value (???)",
                remedy=f"give it one ({key}=…), leave it out of the identity (hydra.launcher.identity.ignore=[{key}]), "
                "or allow missing values (hydra.launcher.identity.allow_missing=true)",
            )
        return Missing()


def _raw_items(node: Any) -> Iterator[tuple[Any, object]]:  # Any: OmegaConf or plain container
    if isinstance(node, DictConfig):
        for name in node:
            yield name, node._get_node(name)
    elif isinstance(node, ListConfig):
        for index in range(len(node)):
            yield index, node._get_node(index)
    elif isinstance(node, Mapping):
        yield from node.items()
    else:
        yield from enumerate(node)


def _agree(left: _Branch | _Leaf, right: _Branch | _Leaf) -> Any:  # Any: plain value, Expression or container
    """Combine two readings: what differs counts by expression."""
    match left, right:
        case _Branch(), _Branch() if left.children.keys() == right.children.keys():
            values = {name: _agree(child, right.children[name]) for name, child in left.children.items()}
            return list(values.values()) if left.is_list else values
        case _Leaf(), _Leaf() if left.resolved and right.resolved and _same(left.value, right.value):
            return left.value
    return Expression(left.expression or right.expression or "")


def _same(left: object, right: object) -> bool:
    if left is right:
        return True
    if type(left) is not type(right):
        return False
    try:
        return canonical_value(left) == canonical_value(right)
    except UserError:
        return True  # an object or bad text: refused with its key when the text is made


@contextlib.contextmanager
def _marked_resolvers(config: DictConfig, unstable: frozenset[str]) -> Iterator[None]:
    """Install, for one reading, resolvers that answer a fresh mark where the answer must not count.

    The config's own resolver cache is set aside, so that cached answers neither hide a change nor are spoilt by marks.
    """
    mark = f"\ue000{system_random_hex()}\ue001"
    root = config._get_root()
    metadata, content = root._metadata, root.__dict__["_content"]
    registered, cached = BaseContainer._resolvers, metadata.resolver_cache
    BaseContainer._resolvers = {name: _guarded(name, resolver, mark, unstable) for name, resolver in registered.items()}
    metadata.resolver_cache = defaultdict(dict)
    if isinstance(content, dict):
        # The task sees its config without this node, so a reference into it resolves to nothing there.
        root.__dict__["_content"] = {name: child for name, child in content.items() if name != "hydra"}
    try:
        yield
    finally:
        BaseContainer._resolvers = registered
        metadata.resolver_cache = cached
        root.__dict__["_content"] = content


def _guarded(name: str, resolver: Resolver, mark: str, unstable: frozenset[str]) -> Resolver:
    if name in unstable:
        return lambda *_: mark

    def guarded(root: Any, parent: Any, node: Any, arguments: tuple[Any, ...], texts: tuple[str, ...]) -> Any:
        # User code never sees a mark: it might cache it, log it, or fail in a way that looks like an answer.
        return mark if _carries(arguments, mark) else resolver(root, parent, node, arguments, texts)

    return guarded


def _carries(value: object, mark: str) -> bool:
    if isinstance(value, str):
        return mark in value
    if isinstance(value, DictConfig | ListConfig):
        try:
            return _carries(OmegaConf.to_container(value, resolve=True), mark)
        except OmegaConfBaseException:
            return True
    if isinstance(value, Mapping):
        return any(_carries(key, mark) or _carries(item, mark) for key, item in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return any(_carries(item, mark) for item in value)
    return False
