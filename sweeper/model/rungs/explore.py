"""How an heir's parameters are found from those of the trial it follows: perturb or resample, within the space.

Jaderberg et al., "Population Based Training of Neural Networks", 2017, section 3 and appendix A.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping
from typing import assert_never

from sweeper.model.rungs.nodes import PbtRules
from sweeper.model.space import Choices, Dimension, FloatRange, IntRange, Space
from sweeper.model.trial import Json


def seeded(seed: int, number: int, generation: int) -> random.Random:
    """Give the randomness of one member at one generation; it depends on nothing else (SAME)."""
    digest = hashlib.sha256(f"{seed}:{number}:{generation}".encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "big"))


def explored(params: Mapping[str, Json], space: Space, rules: PbtRules, rng: random.Random) -> dict[str, Json]:
    """Give new parameters: those that are mutated moved within their dimension, all others as they are."""
    found = dict(params)
    for name, dimension in space.items():
        if name not in params or (rules.mutate is not None and name not in rules.mutate):
            continue
        resample, first, second = rng.random(), rng.random(), rng.random()
        if resample < rules.resample_probability:
            found[name] = resampled(dimension, first)
        else:
            factor = rules.perturb_factors[int(first * len(rules.perturb_factors))]
            found[name] = perturbed(params[name], dimension, factor=factor, upwards=second < 0.5)
    return found


def resampled(dimension: Dimension, share: float) -> Json:
    """Draw anew: `share` in [0, 1) is the position in the dimension, on a log scale where it has one."""
    match dimension:
        case Choices():
            return dimension.values[int(share * len(dimension.values))]
        case FloatRange(step=None):
            return _within(dimension, _scaled(dimension.low, dimension.high, share, log=dimension.log))
        case IntRange(log=True):
            return _within(dimension, _scaled(dimension.low, dimension.high, share, log=True))
        case FloatRange() | IntRange():
            return _on_grid(dimension, int(share * (_last(dimension) + 1)))
        case _:
            assert_never(dimension)


def perturbed(value: Json, dimension: Dimension, *, factor: float, upwards: bool) -> Json:
    """Move a number by a factor, a choice to a neighbour (`upwards` or down); never out of the dimension.

    On a grid the number moves by at least one step, since 2 × 1.2 would stay 2 for ever.
    """
    if isinstance(dimension, Choices):
        position = dimension.position(value)
        if position is None:
            return value
        return dimension.values[min(max(position + (1 if upwards else -1), 0), len(dimension.values) - 1)]
    if not isinstance(value, int | float):
        return value
    wanted = value * factor
    moved = _within(dimension, wanted)
    if dimension.step is not None and moved == value and wanted != value:
        return _within(dimension, value + math.copysign(dimension.step, wanted - value))
    return moved


def _scaled(low: float, high: float, share: float, *, log: bool) -> float:
    if log:
        return math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    return low + share * (high - low)


def _within(dimension: FloatRange | IntRange, wanted: float) -> float | int:
    if dimension.step is None:
        return min(max(float(wanted), float(dimension.low)), float(dimension.high))
    nearest = round((wanted - dimension.low) / dimension.step)
    return _on_grid(dimension, min(max(nearest, 0), _last(dimension)))


def _on_grid(dimension: FloatRange | IntRange, index: int) -> float | int:
    if isinstance(dimension, IntRange):
        return dimension.low + index * dimension.step
    return min(float(dimension.low + index * (dimension.step or 0.0)), float(dimension.high))  # 3 * 0.1 is above 0.3


def _last(dimension: FloatRange | IntRange) -> int:
    """Index of the last value of the grid."""
    if isinstance(dimension, IntRange):
        return (dimension.high - dimension.low) // dimension.step
    return math.floor((dimension.high - dimension.low) / (dimension.step or math.inf) + 1e-9)
