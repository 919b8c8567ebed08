"""Enqueued points: what a user wants tried, brought into the dimensions' types or refused (CLEAR)."""

from __future__ import annotations

from collections.abc import Mapping

from sweeper.errors import UserError
from sweeper.model.space import Choices, Dimension, Space, choice_text
from sweeper.model.space_changes import dimension_text
from sweeper.model.tagged import from_tagged, to_tagged
from sweeper.model.trial import Json
from sweeper.search.axes import Axis, Code, axis


def checked_point(space: Space, point: Mapping[str, Json], *, open_space: bool) -> dict[str, Json]:
    """Give a point in the types of the space: 1 is 1.0 for floats.

    Args:
        space: the plain space.
        point: values by parameter name, as tagged JSON; a part of the space's parameters is enough.
        open_space: whether a function may suggest parameters that the space does not name.

    Raises:
        UserError: a parameter that is not searched, or a value outside its dimension.
    """
    checked: dict[str, Json] = {}
    for name, value in point.items():
        if name in space:
            found = axis(name, space[name])
            checked[name] = found.stored(coerced(found, space[name], value))
        elif open_space:
            checked[name] = value
        else:
            raise UserError(
                f"the enqueued point {choice_text(dict(point)):.200} has {name!r}, which is not searched",
                remedy=f"Parameters of this search: {', '.join(space) or 'none'}.",
            )
    return checked


def coerced(found: Axis, dimension: Dimension, value: Json) -> Code:
    """Give the code of a value that may be written in another type: 1 for 1.0, 3.0 for 3.

    Raises:
        UserError: the value is outside the dimension; all three are named.
    """
    if isinstance(value, float):
        value = to_tagged(value)  # NaN may come as it is
    code = found.code(value)
    if code is None:
        code = _in_other_type(found, dimension, value)
    if code is None:
        raise UserError(
            f"the enqueued value {choice_text(value):.100} of {found.name} is not {dimension_text(dimension):.300}",
            remedy=f"Enqueue a value of {found.name} that the search could propose, or widen its range.",
        )
    return code


def _in_other_type(found: Axis, dimension: Dimension, value: Json) -> Code | None:
    try:
        plain = from_tagged(value)
    except ValueError:
        return None
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        return None
    if isinstance(dimension, Choices):
        equal = [
            at
            for at, choice in enumerate(dimension.values)
            if isinstance(choice, int | float) and not isinstance(choice, bool) and choice == plain
        ]
        return equal[0] if len(equal) == 1 else None
    return found.code(int(plain)) if isinstance(plain, float) and plain.is_integer() else None
