"""Whether a search can be done as configured: asked before anything exists (CLEAR)."""

from __future__ import annotations

from collections.abc import Mapping

from sweeper.model.search import SearchSpec
from sweeper.model.trial import Json
from sweeper.search.axes import axes
from sweeper.search.points import checked_point
from sweeper.search.pruning import pruner_maker
from sweeper.search.samplers import sampler_maker

__all__ = ["check_search", "checked_point"]


def check_search(
    spec: SearchSpec,
    *,
    sampler: Mapping[str, Json] | None = None,
    pruner: Mapping[str, Json] | None = None,
    custom_space: bool | None = None,
) -> tuple[str, ...]:
    """Check space, sampler and pruner of a search against one another.

    Args:
        spec: the search.
        sampler, pruner: nodes from the running command's own config; None: those of `spec`.
        custom_space: whether a define-by-run function adds to the space; None: as `spec` says.

    Returns:
        What the user is to be told, a sentence each.

    Raises:
        UserError: it cannot be done so.
    """
    has_function = spec.custom_space is not None if custom_space is None else custom_space
    found = axes(spec.space)
    _, notices = sampler_maker(
        spec.sampler if sampler is None else sampler, spec, found, seed=0, custom_space=has_function
    )
    pruner_maker(spec.pruner if pruner is None else pruner, spec, seed=0)
    return notices
