"""What may change in a search between two runs of its command, and what may not (OP-06).

A study cannot mix histories that mean different things: what would be compared with what it cannot be compared with is
refused. What only moves where the search looks next is accepted and told. What changes nothing about the past, such as
a larger total or another order of choices, is accepted without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar, assert_never

from sweeper.model.search import Constraint, SearchSpec
from sweeper.model.space import Choices, Dimension, FloatRange, IntRange, choice_text
from sweeper.model.trial import Json

MOST_SHOWN: Final = 8
"""Choices or overrides that a message lists before it only counts."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchChanges:
    """How a search differs from what its sweep's row says: each difference as a sentence with old and new."""

    refusals: tuple[str, ...] = ()
    """Differences with which the sweep cannot go on."""
    notices: tuple[str, ...] = ()
    """Differences that are accepted and worth a line."""


def search_changes(old: SearchSpec, new: SearchSpec) -> SearchChanges:
    """Compare a search with the one that its sweep began with, before anything is written."""
    refusals = [
        *_changed("the direction", old.directions, new.directions, lambda found: ", ".join(found)),
        *_node_changes("sampler", old.sampler, new.sampler),
        *_node_changes("pruner", old.pruner, new.pruner),
        *_node_changes("scheduler", old.scheduler, new.scheduler),
        *_changed("the constraints", _constraint_texts(old), _constraint_texts(new), _listed),
        *_changed("custom_search_space", old.custom_space, new.custom_space, lambda found: found or "not set"),
    ]
    notices: list[str] = []
    _compare_spaces(old, new, refusals, notices)
    _compare_timing(old, new, refusals, notices)
    gone = [text for text in old.fixed if text not in new.fixed]
    came = [text for text in new.fixed if text not in old.fixed]
    if gone or came:
        notices.append(
            f"fixed values changed: {_listed(gone)} before, {_listed(came)} now; finished trials keep their results, "
            "trials from here on are composed with the new values"
        )
    return SearchChanges(refusals=tuple(refusals), notices=tuple(notices))


def dimension_text(dimension: Dimension) -> str:
    """Describe a dimension in words."""
    match dimension:
        case FloatRange() | IntRange():
            kind = "float" if isinstance(dimension, FloatRange) else "integer"
            plain_step = None if isinstance(dimension, FloatRange) else 1
            step = "" if dimension.step == plain_step else f" in steps of {dimension.step}"
            log = " on a log scale" if dimension.log else ""
            article = "a" if kind == "float" else "an"
            return f"{article} {kind} from {dimension.low} to {dimension.high}{step}{log}"
        case Choices():
            return f"one of {_listed(choice_text(value) for value in dimension.values)}"
        case _:
            assert_never(dimension)


def constraint_text(constraint: Constraint) -> str:
    """Write a constraint as a config has it: `latency_ms <= 20`."""
    bounds = ((">=", constraint.at_least), ("<=", constraint.at_most))
    told = [(sign, repr(float(bound)).removesuffix(".0")) for sign, bound in bounds if bound is not None]
    return " and ".join(f"{constraint.metric} {sign} {bound}" for sign, bound in told)


def _compare_spaces(old: SearchSpec, new: SearchSpec, refusals: list[str], notices: list[str]) -> None:
    for name, before in old.space.items():
        now = new.space.get(name)
        if now is None:
            refusals.append(f"the parameter {name} ({dimension_text(before)}) is gone")
        elif isinstance(before, Choices) and isinstance(now, Choices):
            refusals.extend(_choice_changes(name, before, now))
        elif _same_scale(before, now):
            notices.extend(_moved(name, before, now))
        else:
            refusals.append(f"{name} was {dimension_text(before)} and is now {dimension_text(now)}")
    for name, now in new.space.items():
        if name not in old.space:
            refusals.append(f"the parameter {name} ({dimension_text(now)}) is new")


def _choice_changes(name: str, before: Choices, now: Choices) -> list[str]:
    gone = [choice_text(value) for value in before.values if now.position(value) is None]
    came = [choice_text(value) for value in now.values if before.position(value) is None]
    if not gone and not came:
        return []
    parts = [f"without {_listed(gone)}"] if gone else []
    parts += [f"with {_listed(came)}"] if came else []
    return [f"{name} was {dimension_text(before)} and is now {dimension_text(now)} ({', '.join(parts)})"]


def _same_scale(before: Dimension, now: Dimension) -> bool:
    if isinstance(before, Choices) or isinstance(now, Choices) or type(before) is not type(now):
        return False
    return (before.step, before.log) == (now.step, now.log)


def _moved(name: str, before: Dimension, now: Dimension) -> list[str]:
    if before == now or isinstance(before, Choices) or isinstance(now, Choices):
        return []
    told = f"{name} was {dimension_text(before)} and is now {dimension_text(now)}"
    if now.low <= before.low and before.high <= now.high:
        return [f"{told}; trials so far count as before"]
    return [f"{told}; trials outside the new range keep their results, but the sampler no longer learns from them"]


def _compare_timing(old: SearchSpec, new: SearchSpec, refusals: list[str], notices: list[str]) -> None:
    # The default follows the number of workers, and resuming with more of them has to work: told, not refused.
    # Only who asked for the same sequence from several workers is kept to their number.
    if old.deterministic and new.deterministic and old.lag != new.lag:
        refusals.append(
            f"the search is deterministic with {_workers(old.lag)} and there are now {new.lag} "
            f"(workers={old.lag} keeps the sequence, deterministic=false gives it up)"
        )
    elif old.deterministic and not new.deterministic:
        notices.append("the search was deterministic; proposals from here on depend on which trial finishes first")
    elif new.deterministic and not old.deterministic:
        notices.append("the search is deterministic from here on; what was proposed until now depended on timing")


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


def _node_changes(name: str, old: Mapping[str, Json] | None, new: Mapping[str, Json] | None) -> list[str]:
    if old == new:
        return []
    if old is None or new is None or _node_name(old) != _node_name(new):
        return [f"the {name} was {_node_name(old)} and is now {_node_name(new)}"]
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key) or (key in old) != (key in new)]
    return [f"{name}.{key} was {_node_value(old, key)} and is now {_node_value(new, key)}" for key in keys]


def _node_name(node: Mapping[str, Json] | None) -> str:
    return "none" if node is None else str(node.get("_target_", node.get("kind", "without a name")))


def _node_value(node: Mapping[str, Json], key: str) -> str:
    return choice_text(node[key]) if key in node else "not set"


def _constraint_texts(spec: SearchSpec) -> list[str]:
    return sorted(constraint_text(constraint) for constraint in spec.constraints)


def _changed(name: str, old: T, new: T, words: Callable[[T], str]) -> list[str]:
    return [] if old == new else [f"{name} was {words(old)} and is now {words(new)}"]


def _listed(texts: Iterable[str]) -> str:
    found = list(texts)
    shown = ", ".join(found[:MOST_SHOWN])
    if len(found) > MOST_SHOWN:
        return f"{shown} and {len(found) - MOST_SHOWN} more"
    return shown or "none"
