"""What two runs of a script showed, side by side: state at common save points, reports, results.

A save counts by fingerprint: path in the saved tree → digest of what is there. Where a save was taken (provenance) is
left out; what it was like there is not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sweeper.model.messages import Finished, Reported, Sealed, ToWorker
from sweeper.model.staging import Layout
from sweeper.model.trial import Json
from sweeper.model.waits import ExitStatus

Place = tuple[int, int, bool]
"""Step and epoch of a save, and whether it is the state at the very end."""
Fingerprint = Mapping[str, str]
"""Path in the saved tree → digest or text of the value there."""
MAX_NAMED: Final = 5
_ENTRY_TAGS: Final = ("$tensor", "$ndarray")
_LEFT_OUT: Final = ".provenance"


@dataclass(slots=True, kw_only=True)
class Side:
    """What one run showed."""

    saves: dict[Place, Fingerprint] = field(default_factory=dict)
    inside: set[Place] = field(default_factory=set)
    """Those taken within a loop of batches or steps."""
    reports: list[Reported] = field(default_factory=list)
    inexact: set[str] = field(default_factory=set)
    """Reasons that the saves themselves give for not being exact."""
    last: ToWorker | None = None
    exited: ExitStatus | None = None
    output: str = ""
    stopped_at: SealedCopy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedCopy:
    """A save taken out of the staging file, to resume from."""

    place: Place
    message: Sealed
    content: bytes


def fingerprint(layout: Layout, content: memoryview) -> Iterator[tuple[str, str]]:
    """Give path and digest of every value of a save; a tensor counts by type, shape and bytes."""
    digests: dict[int, str] = {}

    def digest(index: int) -> str:
        if index not in digests:
            entry = layout.tensors[index]
            data = content[entry.offset : entry.offset + entry.size_bytes]
            digests[index] = hashlib.blake2b(data, digest_size=16).hexdigest()
        return digests[index]

    def walk(node: Json, path: str) -> Iterator[tuple[str, str]]:
        children = _children(node)
        for key, child in children:
            if path or key != _LEFT_OUT:
                yield from walk(child, f"{path}{key}")
        if not children:
            yield path.removeprefix("."), _leaf(node, digest)

    yield from walk(layout.tree, "")


def _children(node: Json) -> list[tuple[str, Json]]:
    """Give what a node holds that is worth a path of its own; nothing for a leaf."""
    match node:
        case {"$dict": list(pairs)} | {"$odict": list(pairs)} if all(_is_pair(pair) for pair in pairs):
            return [(_named(pair[0]), pair[1]) for pair in pairs if isinstance(pair, list)]
        case dict() if not any(tag in node for tag in _ENTRY_TAGS):
            return [("" if key.startswith("$") else _named(key), value) for key, value in node.items()]
        case list() if any(isinstance(item, dict | list) for item in node):
            return [(f"[{position}]", item) for position, item in enumerate(node)]
        case _:
            return []


def _named(key: Json) -> str:
    return f".{key}" if isinstance(key, str) else f"[{json.dumps(key)}]"


def _is_pair(pair: Json) -> bool:
    return isinstance(pair, list) and len(pair) == 2


def _leaf(node: Any, digest: Callable[[int], str]) -> str:  # Any: JSON of a shape that the tag decides
    for tag in _ENTRY_TAGS:
        body = node.get(tag) if isinstance(node, dict) else None
        if isinstance(body, dict) and isinstance(body.get("entry"), int):
            return digest(body["entry"]) + json.dumps({**body, "entry": None}, sort_keys=True)
    return json.dumps(node, sort_keys=True)


def differences(left: Side, right: Side, *, after: Place) -> list[str]:
    """Name what differs, the earliest first: state at common steps, then reports, then the result."""
    found = []
    for place in sorted(left.saves.keys() & right.saves.keys()):
        if place < after:
            continue
        mine, other = left.saves[place], right.saves[place]
        paths = [path for path in [*mine, *(other.keys() - mine.keys())] if mine.get(path) != other.get(path)]
        if paths:
            named = ", ".join(paths[:MAX_NAMED]) + (" …" if len(paths) > MAX_NAMED else "")
            where = "at the end" if place[2] else f"after step {place[0]} (epoch {place[1]})"
            found.append(f"the state {where} differs: {named}")
            break
    found += _report_differences(left.reports, right.reports)
    if left.last != right.last:
        found.append(f"the result differs: {_result(left)} straight, {_result(right)} otherwise")
    return found


def _report_differences(left: Sequence[Reported], right: Sequence[Reported]) -> list[str]:
    for mine, other in zip(left, right, strict=False):
        if _exact(mine) != _exact(other):
            return [f"the report at step {mine.step} differs: {_exact(mine)} straight, {_exact(other)} otherwise"]
    if len(left) != len(right):
        return [f"there are {len(left)} reports straight and {len(right)} otherwise"]
    return []


def _exact(report: Reported) -> str:
    return json.dumps([report.step, report.at_step, report.value, report.metrics], sort_keys=True)


def _result(side: Side) -> str:
    return json.dumps(side.last.value) if isinstance(side.last, Finished) else str(side.last)
