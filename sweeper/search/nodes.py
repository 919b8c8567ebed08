"""Nodes of samplers and pruners: `_target_` and arguments, as Hydra configs write them, checked once and made often.

What is imported always comes from the running command's own config; nothing here is ever given a row's node (SAFE).
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sweeper.errors import UserError
from sweeper.model.trial import Json

_DIRECTIVES: Final = frozenset({"_target_", "_args_", "_partial_", "_convert_", "_recursive_"})

Target = Callable[..., Any]  # Any: whatever a config names


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A checked node: everything that is needed to make a new object at any time."""

    target: Target
    place: str
    """Where in the node it stands: empty for the outermost, else argument names joined by dots."""
    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object]
    takes_seed: bool
    partial: bool = False

    def make(
        self, seed: Callable[[Recipe], int], changed: Mapping[str, Mapping[str, object]] | None = None
    ) -> Any:  # Any: as target
        """Make a new object, nested ones included.

        Args:
            seed: gives a seed to every part that takes one.
            changed: arguments that replace those of the node, by place.
        """
        kwargs = {key: _made(value, seed, changed) for key, value in self.kwargs.items()}
        kwargs.update((changed or {}).get(self.place, {}))
        if self.takes_seed:
            kwargs["seed"] = seed(self)
        args = [_made(value, seed, changed) for value in self.args]
        return functools.partial(self.target, *args, **kwargs) if self.partial else self.target(*args, **kwargs)

    def parts(self) -> Iterator[Recipe]:
        """Give this recipe and all nested ones."""
        yield self
        for value in (*self.args, *self.kwargs.values()):
            yield from _parts(value)


class Rules(Protocol):
    """What is special about the nodes of one setting."""

    what: str
    """Names the setting in messages, such as `sampler`."""

    def full_name(self, name: str) -> str:
        """Give the dotted name that a `_target_` means."""

    def admitted(self, target: Target, arguments: dict[str, Json], place: str) -> Target:
        """Take out arguments that are not for the target, refuse what cannot be; give the target to use instead.

        Raises:
            UserError: this target, or one of its arguments, is none for a search.
        """


def recipe(node: Mapping[str, Json], rules: Rules, place: str = "") -> Recipe:
    """Check a node and everything nested in it.

    Args:
        node: with `_target_`; all other keys are arguments, but for Hydra's directives.
        rules: of the setting.
        place: where the node stands in an outer one.

    Raises:
        UserError: it cannot be imported, or does not take an argument; the argument is named.
    """
    name = rules.full_name(str(node.get("_target_")))
    target = imported(name, what=rules.what)
    given = {key: value for key, value in node.items() if key not in _DIRECTIVES and key != "seed"}
    target = rules.admitted(target, given, place)
    kept = {key: value for key, value in given.items() if value is not None}
    accepted, takes_seed = _signature(target)
    for key in kept:
        if accepted is not None and key not in accepted:
            raise UserError(
                f"{rules.what}.{joined(place, key)}: {name} has no argument {key!r}",
                remedy=f"It takes {', '.join(sorted(accepted - {'seed'})) or 'none'}.",
            )

    def inner(value: Json, at: str) -> object:
        return _checked(value, lambda found, where: recipe(found, rules, where), at)

    positional = node.get("_args_") or []
    return Recipe(
        target=target,
        place=place,
        args=tuple(inner(value, joined(place, str(at))) for at, value in enumerate(_as_list(positional))),
        kwargs={key: inner(value, joined(place, key)) for key, value in kept.items()},
        takes_seed=takes_seed,
        partial=bool(node.get("_partial_")),
    )


def imported(name: str, *, what: str) -> Target:
    """Import an object by its dotted name.

    Raises:
        UserError: there is none, or nothing that can be called.
    """
    parts = name.split(".")
    for split in range(len(parts) - 1, 0, -1):
        module_name = ".".join(parts[:split])
        try:
            found: Any = importlib.import_module(module_name)  # Any: walked by name
        except ModuleNotFoundError as error:
            if error.name is not None and (module_name + ".").startswith(error.name + "."):
                continue
            raise UserError(f"{what}: {name} cannot be imported: {error}", remedy="Install what it needs.") from error
        for part in parts[split:]:
            found = getattr(found, part, None)
        if callable(found):
            return found  # type: ignore[no-any-return]
        break
    raise UserError(
        f"{what}: there is no {name}",
        remedy="Check the spelling, and that its package is installed and on the import path.",
    )


def _signature(target: Target) -> tuple[frozenset[str] | None, bool]:
    """Give the names of the arguments (None where any is taken), and whether `seed` is among them."""
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return None, False
    named = frozenset(
        found.name for found in parameters if found.kind in (found.POSITIONAL_OR_KEYWORD, found.KEYWORD_ONLY)
    )
    takes_any = any(found.kind is found.VAR_KEYWORD for found in parameters)
    return (None if takes_any else named), "seed" in named


def _checked(value: Json, nested: Callable[[Mapping[str, Json], str], Recipe], at: str) -> object:
    if isinstance(value, dict):
        if "_target_" in value:
            return nested(value, at)
        return {key: _checked(item, nested, joined(at, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_checked(item, nested, joined(at, str(place))) for place, item in enumerate(value)]
    return value


def _made(value: object, seed: Callable[[Recipe], int], changed: Mapping[str, Mapping[str, object]] | None) -> object:
    match value:
        case Recipe():
            return value.make(seed, changed)
        case dict():
            return {key: _made(item, seed, changed) for key, item in value.items()}
        case list():
            return [_made(item, seed, changed) for item in value]
        case _:
            return value


def _parts(value: object) -> Iterator[Recipe]:
    match value:
        case Recipe():
            yield from value.parts()
        case dict():
            for item in value.values():
                yield from _parts(item)
        case list():
            for item in value:
                yield from _parts(item)
        case _:
            return


def joined(place: str, key: str) -> str:
    """Give the place of an argument of the node at a place."""
    return f"{place}.{key}" if place else key


def _as_list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else [value]
