"""Which numbers are best: what a search reports at its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sweeper.model.objective import Fault, objective_values
from sweeper.model.search import Direction, Numbered, SearchSpec
from sweeper.model.states import TrialState
from sweeper.search.constraints import constraint_values


def best_numbers(rows: Iterable[Numbered], spec: SearchSpec) -> list[int]:
    """Give the numbers of the best completed trials, by number; none where none is complete (and feasible).

    One objective: the best, the earliest of equals. Several: all that no other one beats (the Pareto front).
    With constraints only trials that keep them count, so rows have to carry their reports.
    """
    found: list[tuple[int, tuple[float, ...]]] = []
    for row in rows:
        if row.state is not TrialState.COMPLETED or row.is_alias:
            continue
        values = objective_values(row.result, len(spec.directions))
        if isinstance(values, Fault) or any(above > 0 for above in constraint_values(spec.constraints, row.reports)):
            continue
        found.append((row.number, _losses(values, spec.directions)))
    if not found:
        return []
    if len(spec.directions) == 1:
        return [min(found, key=lambda pair: (pair[1], pair[0]))[0]]
    return sorted(_front(found))


def _losses(values: Sequence[float], directions: Sequence[Direction]) -> tuple[float, ...]:
    return tuple(
        -value if direction is Direction.MAXIMIZE else value
        for value, direction in zip(values, directions, strict=True)
    )


def _front(found: Sequence[tuple[int, tuple[float, ...]]]) -> list[int]:
    """Give what nothing dominates. In the order of losses nothing later can dominate what was kept."""
    front: list[tuple[int, tuple[float, ...]]] = []
    for number, losses in sorted(found, key=lambda pair: (pair[1], pair[0])):
        if not any(_dominates(kept, losses) for _, kept in front):
            front.append((number, losses))
    return [number for number, _ in front]


def _dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    return tuple(one) != tuple(other) and all(a <= b for a, b in zip(one, other, strict=True))
