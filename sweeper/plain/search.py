"""A search as Python code and files describe it, checked and given in the ledger's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sweeper.errors import UserError
from sweeper.launch.constraints import read_constraints
from sweeper.launch.timing import search_lag
from sweeper.launch.unknown_names import refuse_unknown
from sweeper.model.rungs import check_scheduler
from sweeper.model.search import Direction, SearchSpec
from sweeper.model.short_names import PRUNERS, SAMPLERS
from sweeper.model.space import Space
from sweeper.model.tagged import to_tagged
from sweeper.model.trial import Json
from sweeper.plain.settings import COUNT, FLAG, MAPPING, NUMBER, TEXT, checked

DEFAULTS: Final[Mapping[str, Mapping[str, Json]]] = {"tpe": {"constant_liar": True}}
"""Arguments that we choose differently from Optuna: with several workers, running trials must count."""
SEARCH_KEYS: Final = (
    "n_trials",
    "direction",
    "sampler",
    "pruner",
    "scheduler",
    "deterministic",
    "constraints",
    "enqueue",
    "stop",
    "max_failure_rate",
)
STOP_KEYS: Final = ("value", "timeout_s")
_KIND: Final = "kind"


def read_search(given: Mapping[str, object], space: Space, *, workers: int | None, fixed: Sequence[str]) -> SearchSpec:
    """Check what is searched for and how.

    Args:
        given: by the names of `SEARCH_KEYS`; what is absent or None has its default.
        space: what is searched.
        workers: how many work on it; None where they are started elsewhere and nobody said how many.
        fixed: the fixed values, one line each.

    Raises:
        UserError: names the setting.
    """
    n_trials = 20 if given.get("n_trials") is None else checked(COUNT, "n_trials", given["n_trials"])
    if n_trials < 1:
        raise UserError(f"n_trials is {n_trials}", remedy="it is the total of trials, at least 1")
    constraints = given.get("constraints") or ()
    if isinstance(constraints, str) or not isinstance(constraints, Sequence):
        raise UserError(f"constraints is {constraints!r:.80}", remedy="it has to be a list of texts")
    deterministic = given.get("deterministic")
    lag = search_lag(
        None if deterministic is None else checked(FLAG, "deterministic", deterministic),
        workers=workers,
        scheduler=given.get("scheduler") is not None,
        written=str,
    )
    spec = SearchSpec(
        directions=_directions("minimize" if given.get("direction") is None else given["direction"]),
        n_trials=int(n_trials),
        space=space,
        sampler=_node("sampler", "tpe" if given.get("sampler") is None else given["sampler"], SAMPLERS),
        pruner=None if given.get("pruner") is None else _node("pruner", given["pruner"], PRUNERS),
        scheduler=None if given.get("scheduler") is None else _scheduler(given["scheduler"]),
        deterministic=lag is not None,
        lag=lag or 1,
        constraints=read_constraints(constraints, setting="constraints"),
        fixed=tuple(fixed),
    )
    check_scheduler(spec)
    return spec


def read_points(points: object, space: Space) -> tuple[Mapping[str, Json], ...]:
    """Check the points to try first.

    Raises:
        UserError: not a list of mappings, or a name that is not searched.
    """
    if points is None:
        return ()
    if not isinstance(points, Sequence) or isinstance(points, str):
        raise UserError(f"enqueue is {points!r:.80}", remedy="give a list of mappings, one for each point to try first")
    found: list[Mapping[str, Json]] = []
    for point in points:
        for name in checked(MAPPING, "a point of enqueue", point):
            refuse_unknown(str(name), space, where="in the space, and enqueue has it")
        try:
            found.append({name: to_tagged(value) for name, value in point.items()})
        except TypeError as error:
            raise UserError(f"a point of enqueue cannot be stored: {error}") from None
    return tuple(found)


def read_stop(given: object) -> tuple[float | None, float | None]:
    """Give the value that is good enough and the seconds that a run may take, None each where not set.

    Raises:
        UserError: an unknown key, or no number.
    """
    if given is None:
        return None, None
    stop = checked(MAPPING, "stop", given)
    for key in stop:
        refuse_unknown(str(key), STOP_KEYS, where="in stop")
    value, timeout_s = (
        None if stop.get(key) is None else float(checked(NUMBER, f"stop.{key}", stop[key])) for key in STOP_KEYS
    )
    if timeout_s is not None and not timeout_s > 0:
        raise UserError(f"stop.timeout_s is {timeout_s:g}", remedy="it has to be above 0 (seconds)")
    return value, timeout_s


def read_failure_rate(given: object) -> float:
    """Give the share of trials that may fail; all by default.

    Raises:
        UserError: not a number from 0 to 1.
    """
    rate = 1.0 if given is None else float(checked(NUMBER, "max_failure_rate", given))
    if not 0 <= rate <= 1:
        raise UserError(f"max_failure_rate is {rate:g}", remedy="it is a share of n_trials, from 0 to 1")
    return rate


def _directions(given: object) -> tuple[Direction, ...]:
    texts = [given] if isinstance(given, str) else given
    known = [direction.value for direction in Direction]
    if not isinstance(texts, Sequence) or not texts or not all(text in known for text in texts):
        raise UserError(
            f"direction is {given!r:.80}", remedy=f"it is one of {', '.join(known)}, or a list of them, one per value"
        )
    return tuple(Direction(text) for text in texts)


def _node(setting: str, given: object, known: Mapping[str, str]) -> dict[str, Json]:
    """Turn `tpe` or `{"kind": "tpe", …}` into a node; another class is named by its dotted path."""
    if isinstance(given, str):
        given = {_KIND: given}
    node: Mapping[str, Any] = checked(MAPPING, setting, given)  # Any: arguments of many kinds
    kind = checked(TEXT, f"{setting}.{_KIND}", node.get(_KIND))
    if "." not in kind:
        refuse_unknown(kind, known, where=f"among the {setting}s")
    if "seed" in node:
        raise UserError(f"{setting}.seed is set", remedy="the sweep's own seed is used for it: seed=…")
    arguments = {str(key): _argument(f"{setting}.{key}", value) for key, value in node.items() if key != _KIND}
    return {"_target_": known.get(kind, kind), **DEFAULTS.get(kind, {}), **arguments}


def _argument(setting: str, value: Any) -> Json:  # Any: what is wrong with it is said here
    if isinstance(value, Mapping) and _KIND in value:
        return _node(setting, value, {**SAMPLERS, **PRUNERS})
    return _tagged(setting, value)


def _scheduler(given: object) -> dict[str, Json]:
    node: Mapping[str, Any] = checked(MAPPING, "scheduler", {_KIND: given} if isinstance(given, str) else given)
    return {str(key): _tagged(f"scheduler.{key}", value) for key, value in node.items()}


def _tagged(setting: str, value: object) -> Json:
    try:
        return to_tagged(list(value) if isinstance(value, tuple) else value)
    except TypeError as error:
        raise UserError(f"{setting} cannot be stored: {error}", remedy="use plain values") from None
