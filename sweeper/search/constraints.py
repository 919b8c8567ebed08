"""How far a trial is from keeping the constraints of its search."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sweeper.model.search import Constraint
from sweeper.model.trial import Report


def constraint_values(constraints: Sequence[Constraint], reports: Sequence[Report]) -> tuple[float, ...]:
    """Give how far each constraint is from being kept by a trial's last report: feasible where none is above 0."""
    metrics = reports[-1].metrics if reports else {}
    return tuple(_distance(constraint, metrics.get(constraint.metric, math.nan)) for constraint in constraints)


def _distance(constraint: Constraint, value: float) -> float:
    if math.isnan(value):
        return math.inf
    above = -math.inf if constraint.at_most is None else value - constraint.at_most
    below = -math.inf if constraint.at_least is None else constraint.at_least - value
    distance = max(above, below)
    return math.inf if math.isnan(distance) else distance
