"""What a coordinator is given: its doors to the outside, all passed in, so that the simulator can pass others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from sweeper.checkpoint.store import ObjectStore
from sweeper.clock import Clock
from sweeper.ids import CoordinatorId, LedgerId
from sweeper.ledger.database import Statements
from sweeper.model.plan import SearchEnd
from sweeper.model.progress import ProgressSink, SearchProgress
from sweeper.model.search import SearchSpec
from sweeper.model.states import TrialState
from sweeper.model.trial import AskerRecord, Holder, Json, NewTrial, Sweep
from sweeper.model.waits import Background, Future, Waitable
from sweeper.settings import CoordinatorSettings

if TYPE_CHECKING:  # a plain grid has no use for Optuna, whose import takes longer than a short trial
    from sweeper.search.define_by_run import SuggestMore


class Workers(Protocol):
    """The local workers, as the coordinator needs them (`sweeper.engines.local.LocalWorkers`)."""

    @property
    def failed(self) -> str | None:
        """Why workers cannot be kept going, if so."""
        ...

    @property
    def alive(self) -> int:
        """Workers that have not exited."""
        ...

    @property
    def waitables(self) -> tuple[Waitable, ...]:
        """What to wait on for news of them."""
        ...

    def wake_at_s(self, now_s: float) -> float:
        """When one may be started again."""
        ...

    def keep(self, count: int, now_s: float) -> None:
        """Have that many going."""
        ...

    def progressed(self) -> None:
        """The sweep moved on."""
        ...

    def drain(self) -> None:
        """Tell them to leave; told again, they hurry."""
        ...

    def kill(self) -> None:
        """End those that are left."""
        ...

    def reap(self, now_s: float) -> None:
        """Take note of those that have exited."""
        ...


class Composer(Protocol):
    """Makes a job of what was proposed."""

    def __call__(self, number: int, params: Mapping[str, Json]) -> NewTrial:
        """Compose the sweep's fixed values and these parameters, and identify the result.

        Args:
            number: the number that the config gets if it is new.
            params: by parameter name, as `Proposal.params`; an absent parameter gets no override.

        Raises:
            UserError: there is no such config; the number is refused with that reason.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """When a search ends before its numbers are used up."""

    value: float | None = None
    """The first objective's value that is good enough, in its direction."""
    timeout_s: float | None = None
    """How long this run may take; what is unfinished then stays for the next run."""
    max_failure_rate: float = 1.0
    """Share of `n_trials` that may fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """A search as the running command gives it; code that it names is the command's own, never the ledger's (SAFE)."""

    spec: SearchSpec
    compose: Composer
    enqueue: tuple[Mapping[str, Json], ...] = ()
    """Points to try first, once each: values by parameter name, as tagged JSON. What is left out is chosen."""
    suggest_more: SuggestMore | None = None
    """The define-by-run function, called for each proposal after the plain space."""
    limits: SearchLimits = field(default_factory=SearchLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStanding:
    """How a search stands after a turn."""

    counts: Mapping[TrialState, int]
    """Its trials by state; states without any may be absent."""
    end: SearchEnd | None
    """None while there is more to propose."""
    wanted: int
    """How many workers of this command could have something to do before long."""
    changed: tuple[int, ...]
    """Numbers of trials that may have changed state in this turn, for telling people."""
    moved: bool
    """Whether anything happened in this turn, so that more may before long."""
    progress: SearchProgress
    leaderless: bool = False
    """Whether nobody led the sweep when the turn began: who asked in vain before may ask again at once."""


class SearchTurns(Protocol):
    """A search as its coordinator sees it; its turn comes before the plan is made."""

    def turn(self, fence: int | None) -> SearchStanding:
        """Bring memory in line with the ledger; with the sweep's fence also decide, promote and propose.

        Raises:
            LedgerUnavailable: call again; whatever was committed is kept, whatever was not is chosen again, the same.
            CoordinatorLost: another coordinator leads; call with that fence no more.
            UserError: the command's own code (its space, its sampler) cannot go on.
        """
        ...

    def forget(self) -> None:
        """Believe nothing of what is remembered: the ledger may have been put back."""
        ...

    def finish(self) -> None:
        """Call the sweep finished if its search has ended and all its trials are final.

        Raises:
            LedgerUnavailable: it stays as it is.
        """
        ...


class Mirroring(Protocol):
    """Keeps the Optuna study current, in the background; what is wrong with it never stops a sweep.

    Implementations say what went wrong by themselves, once, and raise nothing but `LedgerUnavailable`.
    """

    @property
    def futures(self) -> tuple[Future[Any], ...]:
        """What to wait for; empty when nothing is under way."""
        ...  # Any: whatever the work gives is its own business

    @property
    def lag(self) -> int | None:
        """Trials that are not shown as they are; None when it is not known."""
        ...

    def turn(self, fence: int | None) -> None:
        """Take what is finished and begin the next piece of work, if any is due; only a leader writes.

        Points that somebody enqueued on the study are put into the ledger, where the search finds them.
        """
        ...

    def finish(self, fence: int | None) -> bool:
        """Like `turn`, once the search is over; say whether all is written. Called again until it is, or time is up."""
        ...

    def close(self) -> None:
        """Let go of the study."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorParts:
    """Everything with an outside; nothing here is built by the coordinator itself."""

    database: Statements
    store: ObjectStore
    ledger_id: LedgerId
    clock: Clock
    background: Background
    """Housekeeping in the store runs here."""
    jitter: Callable[[], float]
    """A number in [0, 1), fresh at each call."""
    holder_is_dead: Callable[[Holder], bool]
    asker_is_dead: Callable[[AskerRecord], bool]
    """Proof on this host, by the lock; False when unsure."""
    boot_id: str
    coordinator_id: CoordinatorId
    sweep: Sweep
    asker: AskerRecord
    asked: int
    """How many trials this command asks for."""
    ask_again: Callable[[], None]
    """Repeats the command's request, once its rows are gone (taken for dead, or lost with a restored ledger)."""
    workers: Workers
    sink: ProgressSink
    settings: CoordinatorSettings
    search: SearchTurns | None = None
    """None for a plain grid."""
    mirror: Mirroring | None = None
