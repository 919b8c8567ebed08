"""What a coordinator is given: its doors to the outside, all passed in, so that the simulator can pass others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sweeper.checkpoint.store import ObjectStore
from sweeper.clock import Clock
from sweeper.ids import CoordinatorId, LedgerId
from sweeper.ledger.database import Statements
from sweeper.model.progress import ProgressSink
from sweeper.model.trial import AskerRecord, Holder, Sweep
from sweeper.model.waits import Background, Waitable
from sweeper.settings import CoordinatorSettings


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
