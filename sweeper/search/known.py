"""What is known of Optuna's samplers and pruners: short names, arguments of other days, packages that they need."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

import optuna

from sweeper.errors import UserError
from sweeper.model.short_names import PRUNERS, SAMPLERS
from sweeper.model.trial import Json
from sweeper.search.cmaes import JsonCmaEsSampler, with_json_state
from sweeper.search.nodes import Target, joined

GRID: Final = SAMPLERS["grid"]
"""Stands for our own enumeration; Optuna's sampler of this name is never made."""

_GONE: Final[Mapping[str, str]] = {"optuna.samplers.MOTPESampler": SAMPLERS["tpe"]}
"""Samplers that Optuna no longer has, and what took them over."""
_WITHOUT_EFFECT: Final = frozenset({"consider_prior", "restart_strategy", "inc_popsize", "n_ehvi_candidates"})
"""Arguments of Optuna's samplers that Optuna 5 no longer heeds or no longer has."""
_AGEING: Final[Mapping[str, Json]] = {"prior_weight": 1.0, "consider_magic_clip": True, "consider_endpoints": False}
"""Arguments that it is about to drop, and what it does without them; configs of the Optuna plugin spell them out."""
_SILENCED: Final = frozenset({"warn_independent_sampling", "warn_asynchronous_seeding"})
"""Arguments that only decide about log lines, of which we show none."""
_PACKAGES: Final[tuple[tuple[type, tuple[str, ...], str], ...]] = (
    (optuna.samplers.CmaEsSampler, ("cmaes",), "cmaes"),
    (optuna.samplers.GPSampler, ("scipy", "torch"), "gp"),
    (optuna.samplers.QMCSampler, ("scipy",), "gp"),
    (optuna.pruners.WilcoxonPruner, ("scipy",), "gp"),
)
"""Who needs which packages, and which of our extras brings them."""


class SamplerRules:
    """Rules of `sampler` nodes; gathers what the user is to be told."""

    what = "sampler"

    def __init__(self) -> None:
        self.notices: list[str] = []
        self._ignored: list[str] = []

    def full_name(self, name: str) -> str:
        """Give the dotted name of a short one, or of one that Optuna no longer has."""
        full = SAMPLERS.get(name, name)
        if full not in _GONE:
            return full
        self.notices.append(
            f"sampler: Optuna 5 has no {full}; {_GONE[full]} does the same, with several objectives too."
        )
        return _GONE[full]

    def admitted(self, target: Target, arguments: dict[str, Json], place: str) -> Target:
        """Leave out arguments that have no effect any more, see to seeds, and keep pickles away."""
        check_packages(target)
        if not is_sampler(target) or not isinstance(target, type):
            return target
        if not from_optuna(target):
            self._admit_custom(target)
        else:
            self._admit_known(target, arguments, place)
        if issubclass(target, optuna.samplers.QMCSampler):
            # Its own sequence keeps the sweep's seed; what it leaves to another sampler must differ by number.
            arguments.setdefault("independent_sampler", {"_target_": SAMPLERS["random"]})
        if issubclass(target, optuna.samplers.CmaEsSampler):
            return with_json_state(target)
        return target

    def told(self) -> tuple[str, ...]:
        """Give all notices: one for all arguments that are ignored."""
        if not self._ignored:
            return tuple(self.notices)
        names = ", ".join(dict.fromkeys(self._ignored))
        return (*self.notices, f"sampler: left out, because Optuna 5 does without them: {names}.")

    def _admit_custom(self, target: type) -> None:
        if "seed" not in inspect.signature(target).parameters:
            self.notices.append(
                f"sampler: {target.__qualname__} takes no `seed`: what it proposes may change when a run is restarted."
            )

    def _admit_known(self, target: type, arguments: dict[str, Json], place: str) -> None:
        if arguments.get("constraints_func") is not None:
            raise UserError(
                f"{joined('sampler', joined(place, 'constraints_func'))} cannot be used",
                remedy="Name metrics of `run.report` instead: constraints=['latency_ms <= 20'].",
            )
        if issubclass(target, optuna.samplers.PartialFixedSampler):
            raise UserError(
                "the sampler PartialFixedSampler is not needed: a parameter with one value is fixed",
                remedy="Give the value as a plain override (x=3) and name the other sampler alone.",
            )
        for name in _SILENCED & arguments.keys():
            del arguments[name]
        needless = {name for name, usual in _AGEING.items() if name in arguments and arguments[name] in (usual, None)}
        for name in sorted((_WITHOUT_EFFECT & arguments.keys()) | needless):
            if arguments.pop(name) is not None:
                self._ignored.append(joined(place, name))


class PrunerRules:
    """Rules of `pruner` nodes."""

    what = "pruner"

    def full_name(self, name: str) -> str:
        """Give the dotted name of a short one."""
        return PRUNERS.get(name, name)

    def admitted(self, target: Target, arguments: dict[str, Json], place: str) -> Target:
        """Check that what the pruner needs is installed."""
        check_packages(target)
        return target


def is_sampler(target: object) -> bool:
    """Whether it is a class of samplers."""
    return isinstance(target, type) and issubclass(target, optuna.samplers.BaseSampler)


def is_pruner(target: object) -> bool:
    """Whether it is a class of pruners."""
    return isinstance(target, type) and issubclass(target, optuna.pruners.BasePruner)


def from_optuna(target: object) -> bool:
    """Whether a class is Optuna's own, or ours that only keeps its state differently."""
    return target is JsonCmaEsSampler or str(getattr(target, "__module__", "")).partition(".")[0] == "optuna"


def check_packages(target: object) -> None:
    """See that the packages are there that a sampler or pruner imports only once it is used.

    Raises:
        UserError: one is missing; the message names the extra that brings it.
    """
    for known, packages, extra in _PACKAGES:
        if not (isinstance(target, type) and issubclass(target, known)):
            continue
        missing = [package for package in packages if find_spec(package) is None]
        if missing:
            raise UserError(
                f"{known.__name__} needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} "
                "not installed",
                remedy=f'Run: pip install "sweeper[{extra}]"',
            )
