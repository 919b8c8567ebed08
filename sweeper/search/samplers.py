"""A new sampler for every proposal: what it draws depends on rows, the sweep's seed and the number alone (SAME)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import optuna
from optuna.samplers import BaseSampler

from sweeper.errors import UserError
from sweeper.model.search import SearchSpec
from sweeper.model.trial import Json
from sweeper.search.axes import Axis
from sweeper.search.known import GRID, SamplerRules, from_optuna, is_sampler
from sweeper.search.nodes import Recipe, recipe
from sweeper.search.quiet import quiet
from sweeper.search.seeds import derived_seed, sweep_seed

_HEEDS_CONSTRAINTS: Final = (
    optuna.samplers.TPESampler,
    optuna.samplers.NSGAIISampler,
    optuna.samplers.NSGAIIISampler,
    optuna.samplers.GPSampler,
)


_PLAIN_RANDOM: Final = Recipe(target=optuna.samplers.RandomSampler, place="", kwargs={}, takes_seed=True)


class SamplerMaker:
    """Makes samplers of one node."""

    def __init__(self, made_from: Recipe, *, seed: int) -> None:
        self._recipe = made_from
        self._seed = seed
        self._twister = np.random.RandomState()
        self.custom = any(not from_optuna(part.target) for part in made_from.parts() if is_sampler(part.target))
        """Whether it, or a sampler in it, is not one of Optuna's own."""

    def sampler(self, number: int) -> BaseSampler:
        """Make the sampler of a number.

        Raises:
            UserError: it refuses its arguments.
        """

        def seed(part: Recipe) -> int:
            if isinstance(part.target, type) and issubclass(part.target, optuna.samplers.QMCSampler):
                return sweep_seed(self._seed)  # one sequence for the sweep; its position is an attribute of the study
            return derived_seed(self._seed, number, *([part.place] if part.place else []))

        if self._recipe == _PLAIN_RANDOM:
            return self._random(seed(self._recipe))
        try:
            made = self._recipe.make(seed)
        except (TypeError, ValueError) as error:
            raise UserError(f"sampler: {_first_line(error)}", remedy="See the arguments of the sampler.") from error
        if not isinstance(made, BaseSampler):
            raise UserError(
                f"sampler: what {self._recipe.target!r:.80} gives is no sampler",
                remedy="`_target_` has to name an Optuna sampler, such as optuna.samplers.TPESampler.",
            )
        return made

    def _random(self, seed: int) -> BaseSampler:
        """Make Optuna's random sampler with a generator that is kept and seeded anew.

        Its own would take numpy as long as all the rest of the proposal: it begins from the operating system's entropy,
        which the seed then replaces. What it draws is the same.
        """
        made = optuna.samplers.RandomSampler()
        if getattr(made._rng, "_rng", self) is not None:  # another Optuna than the one that we know
            return optuna.samplers.RandomSampler(seed)
        self._twister.seed(seed)
        made._rng._rng = self._twister
        return made


def sampler_maker(
    node: Mapping[str, Json], spec: SearchSpec, axes: tuple[Axis, ...], *, seed: int, custom_space: bool
) -> tuple[SamplerMaker | None, tuple[str, ...]]:
    """Check a sampler's node against the search.

    Returns:
        What makes its samplers, None for our own enumeration of a grid; and what the user is to be told.

    Raises:
        UserError: the node, or the search with this sampler, cannot be.
    """
    rules = SamplerRules()
    if rules.full_name(str(node.get("_target_"))) == GRID:
        _check_finite("grid", axes, custom_space=custom_space)
        given = sorted(key for key, value in node.items() if key not in ("_target_", "seed") and value is not None)
        told = (f"sampler: the grid is the whole space; left out: {', '.join(given)}.",) if given else ()
        return None, (*told, *_constraint_notices(spec, optuna.samplers.GridSampler))
    maker = SamplerMaker(recipe(node, rules), seed=seed)
    with quiet():
        made = maker.sampler(0)
    if isinstance(made, optuna.samplers.BruteForceSampler):
        _check_finite("brute_force", axes, custom_space=False)
    if isinstance(made, optuna.samplers.CmaEsSampler) and len(spec.directions) > 1:
        raise UserError(
            f"the sampler cmaes takes one objective, and there are {len(spec.directions)} directions",
            remedy="Use nsgaii, nsgaiii, tpe or gp.",
        )
    return maker, (*rules.told(), *_constraint_notices(spec, type(made)))


def _check_finite(name: str, axes: tuple[Axis, ...], *, custom_space: bool) -> None:
    endless = [axis.name for axis in axes if axis.size is None]
    if endless:
        raise UserError(
            f"the sampler {name} cannot go through {', '.join(endless)}: there is no end of values between two floats",
            remedy="Give a step, range(0, 1, step=0.1), or choices, choice(0.1, 0.5).",
        )
    if custom_space:
        raise UserError(
            f"the sampler {name} cannot be used with custom_search_space: which values there are is not known before",
            remedy="Use brute_force, which goes through a space that a function defines.",
        )


def _constraint_notices(spec: SearchSpec, sampler_class: type[BaseSampler]) -> tuple[str, ...]:
    heeds = issubclass(sampler_class, _HEEDS_CONSTRAINTS) or not from_optuna(sampler_class)
    if heeds or not spec.constraints:
        return ()
    return ("sampler: it does not heed the constraints; they only decide which trials count as best.",)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
