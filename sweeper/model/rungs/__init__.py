"""Schedulers: who pauses, goes on or is pruned at which rung, decided from the sweep's decision rows alone.

A *rung* is a resource level, counted in the steps that trials report (plus 1 where they count from zero). A trial comes
to a rung with its first report at or beyond it; a report beyond several rungs counts at the highest of them. Every
answer to a report is a row in the ledger, and so is every promotion and every exploit; a scheduler is built by feeding
it those rows in their order, so a coordinator that was killed goes on deciding as if nothing had happened (SAME).
"""

from __future__ import annotations

from sweeper.errors import UserError
from sweeper.model.rungs.asha import Asha
from sweeper.model.rungs.history import Standing
from sweeper.model.rungs.hyperband import Hyperband
from sweeper.model.rungs.nodes import AshaRules, HyperbandRules, PbtRules, read_node
from sweeper.model.rungs.pbt import Pbt, exploit_params, exploit_source
from sweeper.model.rungs.scheduler import LeftOver, Scheduler
from sweeper.model.search import SearchSpec

__all__ = [
    "LeftOver",
    "Scheduler",
    "Standing",
    "check_scheduler",
    "exploit_params",
    "exploit_source",
    "scheduler_from",
]


def scheduler_from(spec: SearchSpec, *, seed: int) -> Scheduler | None:
    """Build the scheduler of a search, before any row is fed; None when it has none.

    Raises:
        UserError: the node cannot be one, or the search has several objectives.
    """
    rules = _rules(spec)
    match rules:
        case None:
            return None
        case AshaRules():
            return Asha(rules, spec.directions[0])
        case HyperbandRules():
            return Hyperband(rules, spec.directions[0])
        case PbtRules():
            return Pbt(rules, spec.directions[0], space=spec.space, population=spec.n_trials, seed=seed)


def check_scheduler(spec: SearchSpec) -> None:
    """Check a search's scheduler before any trial exists (CLEAR).

    Raises:
        UserError: as `scheduler_from`.
    """
    _rules(spec)


def _rules(spec: SearchSpec) -> AshaRules | HyperbandRules | PbtRules | None:
    if spec.scheduler is None:
        return None
    rules = read_node(spec.scheduler, names=spec.space)
    if len(spec.directions) != 1:
        raise UserError(
            f"scheduler={spec.scheduler['kind']} cannot compare trials by {len(spec.directions)} objectives",
            remedy="Use one direction, or no scheduler.",
        )
    if spec.pruner is not None:
        raise UserError(
            f"scheduler={spec.scheduler['kind']} and a pruner would both decide about each report",
            remedy="Use one of them: the other is none.",
        )
    return rules
