"""Pruning: Optuna's pruners, asked once about each report, on a view of the study that does not depend on timing."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import optuna
from optuna.pruners import BasePruner, HyperbandPruner, SuccessiveHalvingPruner
from optuna.trial import TrialState

from sweeper.errors import UserError
from sweeper.model.search import SearchSpec
from sweeper.model.trial import Json, Report
from sweeper.search.asked import asked
from sweeper.search.attributes import AttributeRules
from sweeper.search.entries import Entry
from sweeper.search.history import History
from sweeper.search.known import PrunerRules, from_optuna, is_pruner
from sweeper.search.nodes import Recipe, recipe
from sweeper.search.quiet import quiet
from sweeper.search.seeds import derived_seed
from sweeper.search.views import View, seen_by_pruner

LAST_STEP: Final = "auto:last_step"
"""Study attribute: the last step of the trial by which resources that are `auto` were resolved, for ever."""
_AUTO: Final = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneDecision:
    """What a pruner said about a report, and what it wants to know later."""

    prune: bool
    attrs: Mapping[str, Json] = field(default_factory=dict)
    """Rung marks and the like, as tagged JSON: the facts of the decision's row."""
    study_attrs: Mapping[str, Json] = field(default_factory=dict)
    """Changes to the study's attributes, committed with the decision."""


class PrunerMaker:
    """Makes pruners of one node; without a node nothing is ever pruned."""

    def __init__(self, made_from: Recipe | None, *, seed: int, deterministic: bool) -> None:
        self._recipe = made_from
        self._seed = seed
        self.deterministic = deterministic
        parts = [] if made_from is None else list(made_from.parts())
        self._auto = [part for part in parts if _auto_argument(part) is not None]
        self.custom = any(not from_optuna(part.target) for part in parts if is_pruner(part.target))
        """Whether it, or a pruner in it, is not one of Optuna's own."""
        self.has_brackets = made_from is not None and _is(made_from.target, HyperbandPruner)
        """Whether samplers are to learn from the trials of their own bracket only."""

    @property
    def prunes(self) -> bool:
        """Whether there is a pruner."""
        return self._recipe is not None

    def pruner(self, number: int, last_step: int | None) -> BasePruner:
        """Make the pruner of a number, `auto` resources resolved where they can be.

        Raises:
            UserError: it refuses its arguments.
        """
        if self._recipe is None:
            return optuna.pruners.NopPruner()
        changed = {part.place: _resolved(part, last_step) for part in self._auto} if last_step is not None else {}
        try:
            made = self._recipe.make(lambda part: derived_seed(self._seed, number, "pruner", part.place), changed)
        except (TypeError, ValueError) as error:
            first_line = str(error).partition("\n")[0]
            raise UserError(f"pruner: {first_line}", remedy="See the arguments of the pruner.") from error
        if not isinstance(made, BasePruner):
            raise UserError(
                f"pruner: what {self._recipe.target!r:.80} gives is no pruner",
                remedy="`_target_` has to name an Optuna pruner, such as optuna.pruners.MedianPruner.",
            )
        return made

    def check_resources(self) -> None:
        """See that Hyperband has a bracket; its own error would be a division by zero at the first report.

        Raises:
            UserError: `max_resource` is below `min_resource`.
        """
        for part in [] if self._recipe is None else self._recipe.parts():
            least, most = part.kwargs.get("min_resource", 1), part.kwargs.get("max_resource")
            if _is(part.target, HyperbandPruner) and isinstance(least, int) and isinstance(most, int) and most < least:
                raise UserError(
                    f"pruner: max_resource {most} is below min_resource {least}",
                    remedy="max_resource is the last step that a trial reports, min_resource the first one to count.",
                )

    def last_step(self, entries: Sequence[Entry], known: object) -> int | None:
        """Give the step by which `auto` resources are resolved: the last of the first trial to complete with reports.

        Deterministic: the first by number, which needs no memory. Else the first to finish, which has to be remembered.

        Args:
            entries: what may be seen.
            known: what the study's attribute says.
        """
        if not self._auto:
            return None
        if isinstance(known, int) and not self.deterministic:
            return known
        complete = (entry.last_step for entry in entries if entry.state is TrialState.COMPLETE)
        return next((step for step in complete if step is not None), None)


def decide(
    maker: PrunerMaker,
    history: History,
    rules: AttributeRules,
    number: int,
    reports: Sequence[Report],
    finished_to: int | None,
) -> PruneDecision:
    """Ask a new pruner about the last of a trial's reports; neither the study nor the entry changes.

    Args:
        maker: of the pruner.
        history: the study.
        rules: which attributes are kept.
        number: of the trial.
        reports: all of the trial's, up to and including the one in question, by step.
        finished_to: the last other number that counts; None: all do.

    Raises:
        UserError: the pruner raised.
    """
    storage = history.storage
    entry = _running(storage.entries[number], reports)
    seen = seen_by_pruner(storage.entries, entry, finished_to=finished_to, aliases=history.aliases)
    known = storage.study_attrs.get(LAST_STEP)
    last_step = maker.last_step(seen, known)
    view = View(storage, seen, entry)
    with asked("pruner"):
        pruner = maker.pruner(number, last_step)
        study = optuna.load_study(
            study_name=storage.name, storage=view, sampler=optuna.samplers.RandomSampler(seed=0), pruner=pruner
        )
        prune = bool(pruner.prune(study, entry))
    study_attrs = rules.stored(view.written, of_study=True)
    if last_step is not None and not maker.deterministic and last_step != known:
        study_attrs[LAST_STEP] = last_step
    return PruneDecision(prune=prune, attrs=rules.stored(view.marks), study_attrs=study_attrs)


def bracket_pruner(maker: PrunerMaker, history: History, number: int) -> BasePruner:
    """Give the pruner that a study needs while a sampler is asked: Hyperband's decides which bracket it learns from."""
    if not maker.has_brackets:
        return optuna.pruners.NopPruner()
    storage = history.storage
    last_step = maker.last_step(storage.entries, storage.study_attrs.get(LAST_STEP))
    pruner = maker.pruner(number, last_step)
    # Brackets are only set up when it is asked; about a trial without reports it has nothing to say.
    pruner.prune(history.study, Entry(number, TrialState.RUNNING, storage.empty))
    return pruner


def pruner_maker(node: Mapping[str, Json] | None, spec: SearchSpec, *, seed: int) -> PrunerMaker:
    """Check a pruner's node against the search.

    Raises:
        UserError: the node, or the search with this pruner, cannot be.
    """
    if node is None:
        return PrunerMaker(None, seed=seed, deterministic=spec.deterministic)
    if len(spec.directions) > 1:
        raise UserError(
            f"a pruner compares reports of one objective, and there are {len(spec.directions)} directions",
            remedy="Take out the pruner, or search with one direction and put bounds on the rest by `constraints`.",
        )
    maker = PrunerMaker(recipe(node, PrunerRules()), seed=seed, deterministic=spec.deterministic)
    maker.check_resources()
    with quiet():
        maker.pruner(0, None)
    return maker


def _running(entry: Entry, reports: Sequence[Report]) -> Entry:
    running = copy.copy(entry)
    running.state = TrialState.RUNNING
    running.intermediate_values = {report.step: report.value for report in reports}
    return running


def _auto_argument(part: Recipe) -> str | None:
    """Name the argument of a pruner that is to be found out from the first trial, if it has one."""
    for known, argument in ((HyperbandPruner, "max_resource"), (SuccessiveHalvingPruner, "min_resource")):
        if _is(part.target, known) and part.kwargs.get(argument, _AUTO) == _AUTO:
            return argument
    return None


def _resolved(part: Recipe, last_step: int) -> dict[str, object]:
    """Reckon as the pruners themselves do, from one trial instead of all that are there at the moment."""
    if _is(part.target, HyperbandPruner):
        least = part.kwargs.get("min_resource", 1)
        return {"max_resource": max(last_step + 1, least if isinstance(least, int) else 1)}
    return {"min_resource": max(last_step // 100, 1)}


def _is(target: object, known: type) -> bool:
    return isinstance(target, type) and issubclass(target, known)
