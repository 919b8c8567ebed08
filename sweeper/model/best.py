"""Which finished trials are best: the one of a single objective, the Pareto front of several."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from sweeper.model.search import Constraint, Direction


def best_numbers(values: Mapping[int, Sequence[float]], directions: Sequence[Direction]) -> tuple[int, ...]:
    """Give the numbers whose values no other dominates, by number; of a single objective, all that share the best.

    One dominates another when it is nowhere worse and somewhere better.

    Args:
        values: by trial number, one for each direction, none of them NaN.
        directions: what is better, at least one.
    """
    signs = [1.0 if direction is Direction.MINIMIZE else -1.0 for direction in directions]
    points = {
        number: tuple(sign * one for sign, one in zip(signs, found, strict=True)) for number, found in values.items()
    }
    front: list[tuple[int, tuple[float, ...]]] = []
    # In this order nobody is dominated by one that comes later, so the front so far is all there is to compare with.
    for number, point in sorted(points.items(), key=lambda item: item[1]):
        if not any(_dominates(other, point) for _, other in front):
            front.append((number, point))
    return tuple(sorted(number for number, _ in front))


def keeps_constraints(constraints: Iterable[Constraint], metrics: Mapping[str, float]) -> bool:
    """Whether a trial is feasible by the metrics of its last report; one that is missing or NaN is not."""
    return all(_kept(constraint, metrics.get(constraint.metric, math.nan)) for constraint in constraints)


def _dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(mine <= theirs for mine, theirs in zip(one, other, strict=True))


def _kept(constraint: Constraint, value: float) -> bool:
    least = -math.inf if constraint.at_least is None else constraint.at_least
    most = math.inf if constraint.at_most is None else constraint.at_most
    return least <= value <= most
