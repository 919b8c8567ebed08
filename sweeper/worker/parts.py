"""What a worker is given: its doors to the outside, all passed in, so that the simulator can pass others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from sweeper.checkpoint.store import ObjectStore
from sweeper.clock import Clock
from sweeper.ids import RandomHex, SweepId
from sweeper.ledger.database import Statements
from sweeper.model.messages import Start
from sweeper.model.rungs import Scheduler, scheduler_from
from sweeper.model.search import DecisionKind, SearchSpec
from sweeper.model.trial import Grant, Holder, Sweep, WorkerRecord
from sweeper.model.waits import Background, Child
from sweeper.settings import WorkerSettings


class StartChild(Protocol):
    """Starts the process in which one trial trains."""

    def __call__(self, start: Start, restore_fd: int | None) -> Child:
        """Start it. The descriptor stays the caller's to close."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFacts:
    """What a worker must know of its sweep to start a child."""

    sweep_id: SweepId
    name: str
    seed: int
    sweep_dir: str
    checkpoint_keep: int
    objectives: int = 0
    """How many numbers a trial's function must return; 0 in a plain grid."""
    decides: DecisionKind | None = None
    """What the search decides on each report; None when no trial is ever stopped by it."""
    reports_wait: bool = False
    """Whether a report waits for that decision (SAME)."""
    rungs: Scheduler | None = None
    """Knows, without any rows, which reports come to a rung, where nothing else waits; None where all wait or none."""


def facts_of(sweep: Sweep) -> SweepFacts:
    """Give what a worker must know of the sweep in this row.

    Raises:
        ValueError: its search is none that this version knows.
    """
    facts = SweepFacts(
        sweep_id=sweep.sweep_id,
        name=sweep.name,
        seed=sweep.seed,
        sweep_dir=sweep.sweep_dir,
        checkpoint_keep=sweep.checkpoint_keep,
    )
    if sweep.search is None:
        return facts
    search = SearchSpec.from_json(sweep.search)
    decides = DecisionKind.REPORT if search.pruner else DecisionKind.RUNG if search.scheduler else None
    waits = search.deterministic and decides is not None
    rungs = None if waits else scheduler_from(search, seed=sweep.seed)
    return replace(facts, objectives=len(search.directions), decides=decides, reports_wait=waits, rungs=rungs)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """Everything with an outside; nothing here is built by the worker itself."""

    database: Statements
    store: ObjectStore
    clock: Clock
    background: Background
    """Uploads and restores run here."""
    start_child: StartChild
    random_hex: RandomHex
    jitter: Callable[[], float]
    """A number in [0, 1), fresh at each call; spreads retries."""
    holder_is_dead: Callable[[Holder], bool]
    """Proof on this host that a holder and its child are gone (their lock can be taken); False when unsure."""
    output_subdir: Callable[[Grant], str]
    """A trial's own directory below the sweep's, the same in every attempt."""
    sweep: SweepFacts
    record: WorkerRecord
    settings: WorkerSettings
