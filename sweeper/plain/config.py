"""A trial's config without Hydra: fixed values and parameters become one nested mapping of plain values.

A parameter's name is the path of its key, with dots. What is stored of a trial beside its canonical text is one line
each, `optimizer.lr=0.01`: the name and the value as tagged JSON, from which a child builds the same config again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sweeper.errors import UserError
from sweeper.ids import ConfigHash
from sweeper.launch.settings import carries_secret
from sweeper.model.config_hash import canonical_document, canonical_value, hash_text
from sweeper.model.space import Choices, Space, choice_text
from sweeper.model.tagged import from_tagged
from sweeper.model.trial import Json, NewTrial
from sweeper.settings import IdentitySettings, Places

Config = dict[str, Any]  # Any: whatever plain value a config holds


class Configs:
    """Builds the configs of one sweep and says which are the same."""

    def __init__(self, base: Mapping[str, Any], identity: IdentitySettings) -> None:  # Any: plain values
        """Take the values that every trial has.

        Raises:
            UserError: a key at the top holds a dot, which would look like a nested one.
        """
        self._base: Config = copied(base)
        self._identity = identity
        for key in self._base:
            if not isinstance(key, str) or "." in key:
                raise UserError(
                    f"base has the key {key!r}",
                    remedy="keys at the top are text without dots; write nested values as mappings",
                )

    @property
    def base(self) -> Config:
        """The fixed values, in a copy of the caller's own."""
        base: Config = copied(self._base)
        return base

    def build(self, values: Mapping[str, Json]) -> Config:
        """Give a trial's config: the fixed values, and each parameter at its place, in the order given.

        Args:
            values: by parameter name, as tagged JSON.

        Raises:
            UserError: a parameter lies inside something that is no mapping.
        """
        config = self.base
        for name, value in values.items():
            _put(config, name, from_tagged(value))
        return config

    def text(self, config: Mapping[str, Any]) -> str:  # Any: plain values
        """Give the canonical text of a config, without what does not count.

        Raises:
            UserError: a value that has no plain form; names its key.
        """
        counted = _without(config, frozenset(self._identity.ignore))
        try:
            return canonical_document(counted, version=self._identity.version)
        except UserError as error:
            raise UserError(
                error.message,
                remedy="describe it with plain values and build it in the function, or leave the key out of the "
                "identity: identity={'ignore': [key]}",
            ) from None

    def identify(self, values: Mapping[str, Json]) -> NewTrial:
        """Give the trial that has these parameters.

        Raises:
            UserError: as `build` and `text`.
        """
        text = self.text(self.build(values))
        return NewTrial(
            config_hash=hash_text(text),
            config_text=text,
            overrides=tuple(override_line(name, value) for name, value in values.items()),
            params={name: canonical_value(from_tagged(value), name) for name, value in values.items()},
        )

    def hash_of(self, config: Mapping[str, Any]) -> ConfigHash:  # Any: plain values
        """Give the identity of a config that `build` made."""
        return hash_text(self.text(config))

    def fixed_lines(self) -> tuple[str, ...]:
        """The fixed values that count, one line each."""
        counted = _without(self._base, frozenset(self._identity.ignore))
        return tuple(override_line(name, canonical_value(value, name)) for name, value in _leaves(counted))


def override_line(name: str, value: Json) -> str:
    """Write a parameter as it is stored."""
    return f"{name}={choice_text(value)}"


def read_overrides(lines: Iterable[str]) -> dict[str, Json]:
    """Read stored parameters back.

    Raises:
        ValueError: not lines that `override_line` wrote.
    """
    pairs = (line.partition("=") for line in lines)
    return {name: json.loads(text) for name, _, text in pairs}


def check_places(configs: Configs, space: Space) -> None:
    """Refuse parameters that could not be put where their names say, before any trial exists.

    Raises:
        UserError: names the parameter.
    """
    for name in space:
        for outer in _outer(name):
            if (found := space.get(outer)) is not None:
                _check_inside(name, outer, found, list(space))
    configs.identify({name: _sample(dimension) for name, dimension in space.items()})


def check_secrets(texts: Sequence[str], places: Places) -> None:
    """Refuse configs that spell out the ledger's or store's URL with its password (SAFE).

    Raises:
        UserError: never holds the URL.
    """
    for url in (places.database_url, places.store_url):
        if url is not None and carries_secret(url) and any(url in text for text in texts):
            raise UserError(
                "the config holds the URL of the database or store with its password, and configs are stored",
                remedy="read it from the environment in the function",
            )


def copied(value: Any) -> Any:  # Any: plain values in, plain values out
    """Copy nested mappings and lists, so that neither side changes the other's; mappings become dicts."""
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value


def _put(config: Config, name: str, value: object) -> None:
    *outer, last = name.split(".")
    inner: Any = config  # Any: walks down the config
    for depth, part in enumerate(outer, start=1):
        inner = inner.setdefault(part, {})
        if not isinstance(inner, dict):
            raise UserError(
                f"the parameter {name!r} lies inside {'.'.join(outer[:depth])!r}, which is {inner!r:.80}",
                remedy="only a mapping has keys inside",
            )
    inner[last] = value


def _without(config: Mapping[str, Any], ignore: frozenset[str], above: str = "") -> Config:  # Any: plain values
    """Leave out keys that do not count, with everything below them; written with dots and indices."""

    def kept(value: Any, key: str) -> Any:  # Any: plain values
        if isinstance(value, Mapping):
            return _without(value, ignore, f"{key}.")
        if isinstance(value, list | tuple):
            numbered = [(f"{key}[{index}]", item) for index, item in enumerate(value)]
            return [kept(item, inner) for inner, item in numbered if inner not in ignore]
        return value

    if not ignore:
        return dict(config)
    return {name: kept(item, f"{above}{name}") for name, item in config.items() if f"{above}{name}" not in ignore}


def _leaves(config: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, Any]]:  # Any: plain values
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _outer(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _check_inside(name: str, outer: str, found: object, order: list[str]) -> None:
    is_mapping = isinstance(found, Choices) and all(isinstance(from_tagged(value), dict) for value in found.values)
    if not is_mapping:
        raise UserError(
            f"the parameter {name!r} lies inside the parameter {outer!r}, which is not always a mapping",
            remedy="only a mapping has keys inside",
        )
    if order.index(outer) > order.index(name):
        raise UserError(
            f"the parameter {outer!r} would replace {name!r}, which lies inside it",
            remedy=f"parameters are put in the order of the space: name {outer!r} first",
        )


def _sample(dimension: object) -> Json:
    if isinstance(dimension, Choices):
        return dimension.values[0]
    low: Json = getattr(dimension, "low", None)
    return low
