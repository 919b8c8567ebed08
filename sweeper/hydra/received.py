"""What a job receives of what is proposed: a config that declares types converts values, and the search has to know.

`x: float` makes 1.0 of 1. What the ledger and the study record is what the job received (TRUTH), so dimensions are
converted before the first proposal. Whatever is found to differ later refuses its number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

from omegaconf import AnyNode, DictConfig, ListConfig, OmegaConf
from omegaconf.base import Node
from omegaconf.errors import OmegaConfBaseException

from sweeper.errors import UserError
from sweeper.hydra.cloning import clone
from sweeper.hydra.search_arguments import SearchArguments
from sweeper.hydra.space_syntax import Swept
from sweeper.model.config_hash import canonical_value
from sweeper.model.space import Choices, FloatRange, IntRange, choice_text
from sweeper.model.tagged import from_tagged
from sweeper.model.trial import Json

_MOST_CONVERTED: Final = 1000
"""Choices of one parameter; the rest is checked when proposed."""


def as_received(arguments: SearchArguments, config: DictConfig, *, is_group: Callable[[str], bool]) -> SearchArguments:
    """Convert the dimensions to the types that the config declares.

    Args:
        arguments: as the command gives them.
        config: the composed config of the first job.
        is_group: whether a name is a config group, whose choices are names.

    Raises:
        UserError: a value that the config cannot take, or a range whose values would become something else.
    """
    notices = list(arguments.notices)
    slots = dict(arguments.slots)
    strict = not any(is_group(name) for name, slot in slots.items() if slot.swept is not None)
    for name, slot in arguments.slots.items():
        if slot.swept is None or is_group(name):
            continue
        swept = _converted(name, slot.swept, config, strict=strict)
        notices += swept.notices[len(slot.swept.notices) :]
        slots[name] = dataclasses.replace(slot, swept=swept)
    return dataclasses.replace(arguments, slots=slots, notices=tuple(notices))


def check_received(proposed: Mapping[str, Json], received: Mapping[str, Json]) -> None:
    """Refuse a config that makes something else of a proposed number, text, truth value or null.

    Raises:
        UserError: names the parameter, and both values.
    """
    for name, value in proposed.items():
        found = received.get(name, value)
        if _is_scalar(value) and _is_scalar(found) and choice_text(found) != choice_text(value):
            raise UserError(
                f"{name} was proposed as {choice_text(value)}, and the config makes {choice_text(found)} of it",
                remedy=f"search {name} in the type that the config declares",
            )


def _converted(name: str, swept: Swept, config: DictConfig, *, strict: bool) -> Swept:
    node = _node_at(config, name)
    if node is None or isinstance(node, AnyNode | DictConfig):
        return swept
    if isinstance(node, ListConfig) and node._metadata.element_type is Any:
        return swept
    match swept.dimension:
        case Choices():
            return _converted_choices(name, swept, swept.dimension, config, strict=strict)
        case FloatRange() | IntRange():
            return dataclasses.replace(swept, dimension=_converted_range(name, swept.dimension, config))


def _converted_choices(name: str, swept: Swept, choices: Choices, config: DictConfig, *, strict: bool) -> Swept:
    texts: dict[str, str] = {}
    kept: list[Json] = []
    repeated = []
    for at, value in enumerate(choices.values):
        text = swept.texts[choice_text(value)]
        received = value if at >= _MOST_CONVERTED else _received(name, text, value, config, strict=strict)
        if choice_text(received) in texts:
            repeated.append(text)
            continue
        texts[choice_text(received)] = text
        kept.append(received)
    notices = swept.notices
    if repeated:
        notices = (*notices, f"{name}: {', '.join(repeated)} is the same as another choice once the config takes it")
    return Swept(dimension=Choices(values=tuple(kept)), texts=texts, notices=notices)


def _converted_range(name: str, found: FloatRange | IntRange, config: DictConfig) -> FloatRange | IntRange:
    low = from_tagged(_received(name, repr(found.low), found.low, config, strict=False))
    if type(low) is type(found.low):
        return found
    if isinstance(found, IntRange) and isinstance(low, float) and not found.log:
        return FloatRange(low=float(found.low), high=float(found.high), step=float(found.step))
    raise UserError(
        f"{name} is searched as numbers, and the config makes {low!r} of {found.low!r}",
        remedy=f"search {name} in the type that the config declares, or declare another one",
    )


def _received(name: str, text: str, value: Json, config: DictConfig, *, strict: bool) -> Json:
    """What the config holds once a value is set; the value itself where that cannot be told apart from the others."""
    plain = from_tagged(value)
    if isinstance(plain, dict) or (isinstance(plain, str) and "${" in plain):
        return value
    copy = clone(config)
    try:
        OmegaConf.update(copy, name, plain, merge=True)
        held: object = _node_at(copy, name)
        while isinstance(held, Node) and not isinstance(held, ListConfig):  # a union holds a node of its own
            held = held._value()
        return canonical_value(OmegaConf.to_container(held) if isinstance(held, ListConfig) else held, name)
    except OmegaConfBaseException as error:
        if strict:
            raise UserError(f"{name}={text}: {str(error).splitlines()[0]}") from None
        return value


def _node_at(config: DictConfig, name: str) -> Node | None:
    node: Any = config  # Any: OmegaConf's own nodes
    for part in name.split("."):
        if not isinstance(node, DictConfig) or node._is_none() or node._is_missing() or part not in node:
            return None
        node = node._get_node(part)
    return node if isinstance(node, Node) else None


def _is_scalar(value: Json) -> bool:
    if isinstance(value, str):
        return "${" not in value
    return not isinstance(value, list | dict) or (isinstance(value, dict) and value.keys() <= {"$float", "$int"})
