"""Making a search's turns of a command's plan. Imports Optuna, for which a plain grid has no use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sweeper.clock import Clock
from sweeper.coordinator.parts import SearchPlan
from sweeper.coordinator.proposing import Chooser
from sweeper.coordinator.searching import Searching
from sweeper.model.trial import Sweep
from sweeper.search.optimizer import Optimizer
from sweeper.search.points import checked_point


def search_turns(
    plan: SearchPlan, sweep: Sweep, chooser: Chooser, *, clock: Clock, workers: int, note: Callable[[str], None]
) -> Searching:
    """Make the turns; nothing is read or proposed before the first one.

    Args:
        plan: what the command searches, with its own nodes and functions (SAFE).
        sweep: its row.
        chooser: in whose name the ledger is written.
        clock: for limits of time.
        workers: local workers of this command.
        note: tells people something once.

    Raises:
        UserError: the search cannot be one, or an enqueued point does not fit its space.
    """
    spec, open_space = plan.spec, plan.suggest_more is not None
    points = tuple(checked_point(spec.space, point, open_space=open_space) for point in plan.enqueue)
    optimizer = Optimizer(
        spec, seed=sweep.seed, sampler=spec.sampler, pruner=spec.pruner, suggest_more=plan.suggest_more
    )
    return Searching(
        chooser,
        replace(plan, enqueue=points),
        optimizer,
        clock=clock,
        workers=workers,
        seed=sweep.seed,
        note=note,
    )
