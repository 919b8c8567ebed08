"""What a coordinator does next: a pure function from what it sees to commands (RECONCILE).

Start-up is the first turn and nothing special: the same snapshot leads to the same commands whether this coordinator
was here before or not. Each command is a conditional write or an idempotent call, so a turn cut short is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sweeper.ids import AskerId
from sweeper.model.states import FINAL_STATES, TrialState


@dataclass(frozen=True, slots=True, kw_only=True)
class AskerSeen:
    """Another command that asked for trials of this sweep."""

    asker_id: AskerId
    silent_s: float
    dead: bool
    """Proven on this host: its lock can be taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEnd:
    """That a search proposes nothing more, and why.

    `kind` is done (what is unfinished is waited for), or one that ends the run at once and leaves the rest pending:
    stopped (time is up) or failed_fast.
    """

    kind: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSeen:
    """What the plan needs to know of a search."""

    end: SearchEnd | None
    """None while more is to be proposed: an end of the trials that there are is no end of the sweep."""
    wanted: int
    """How many workers could have something to do before long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything a turn's plan rests on."""

    now_s: float
    counts: Mapping[TrialState, int]
    """Trials that this command asked for, by state."""
    leads: bool
    """Whether this coordinator holds the sweep's fenced lease."""
    notice: str | None = None
    """Why this process must leave, if it must."""
    failed_before: int = 0
    """Requested trials that had failed before this run; they stop nothing (a stopped sweep must be able to go on)."""
    workers_failed: str | None = None
    """Why local workers cannot be kept going, if so."""
    askers: tuple[AskerSeen, ...] = ()
    gaps: int = 0
    """Final trials whose outcome object is not in the store."""
    last: Mapping[str, float] = field(default_factory=dict)
    """When each chore was last done, by name; absent: never."""
    search: SearchSeen | None = None
    """None for a plain grid, which is over with what was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Settings that the plan rests on; times in seconds."""

    workers: int
    fail_fast: bool
    asker_silent_s: float
    highwater_every_s: float
    collect_every_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepWorkers:
    """Have at least this many local workers going; surplus ones are left alone, since they may be the busy ones."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DropAsker:
    """Withdraw what a dead command asked for."""

    asker_id: AskerId


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOutcomes:
    """Write the outcome objects that are missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteHighWater:
    """Check who owns the sweep's name in the store, and write how far this ledger is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectRetired:
    """Delete the objects of checkpoints that were retired long ago."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Drain the local workers and end. `kind` is done, stopped, evicted, failed_fast or workers_failed."""

    kind: str
    reason: str


Command = KeepWorkers | DropAsker | RepairOutcomes | WriteHighWater | CollectRetired | End


def outstanding(counts: Mapping[TrialState, int]) -> int:
    """How many trials are not final."""
    return sum(count for state, count in counts.items() if state not in FINAL_STATES)


def plan(snapshot: Snapshot, rules: Rules) -> tuple[Command, ...]:
    """Give this turn's commands, in order. The last is `KeepWorkers` or `End`, never both."""
    return (*_chores(snapshot, rules), _workers_or_end(snapshot, rules))


def _workers_or_end(snapshot: Snapshot, rules: Rules) -> KeepWorkers | End:
    left = outstanding(snapshot.counts)
    failed = snapshot.counts.get(TrialState.FAILED, 0) - snapshot.failed_before
    # Also when a notice came: everything is there, so nothing has to be said about leaving.
    if (end := _end_of_work(snapshot, left)) is not None:
        return end
    if snapshot.notice is not None:
        return End(kind="evicted", reason=snapshot.notice)
    if rules.fail_fast and failed > 0:
        return End(kind="failed_fast", reason=f"{failed} trial{'s' if failed > 1 else ''} failed; {left} left pending")
    if snapshot.workers_failed is not None:
        return End(kind="workers_failed", reason=snapshot.workers_failed)
    return KeepWorkers(count=min(rules.workers, left if snapshot.search is None else snapshot.search.wanted))


def _end_of_work(snapshot: Snapshot, left: int) -> End | None:
    if snapshot.search is None:
        return None if left else End(kind="done", reason="every requested trial is final")
    end = snapshot.search.end
    if end is None or (end.kind == "done" and left):
        return None
    return End(kind=end.kind, reason=end.reason)


def _chores(snapshot: Snapshot, rules: Rules) -> list[Command]:
    commands: list[Command] = [
        DropAsker(asker_id=asker.asker_id)
        for asker in snapshot.askers
        if asker.dead or asker.silent_s > rules.asker_silent_s
    ]
    if snapshot.gaps:
        commands.append(RepairOutcomes())
    if snapshot.leads and _due(snapshot, "highwater", rules.highwater_every_s):
        commands.append(WriteHighWater())
    if snapshot.leads and _due(snapshot, "collect", rules.collect_every_s):
        commands.append(CollectRetired())
    return commands


def _due(snapshot: Snapshot, chore: str, every_s: float) -> bool:
    last_s = snapshot.last.get(chore)
    return last_s is None or snapshot.now_s - last_s >= every_s
