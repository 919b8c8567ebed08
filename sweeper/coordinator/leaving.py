"""How a run ends: workers leave in good order, rows and store are brought in line, and the ledger is told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from sweeper.coordinator.chores import Chores
from sweeper.coordinator.parts import CoordinatorParts, SearchStanding
from sweeper.coordinator.showing import Display
from sweeper.coordinator.tending import Tending
from sweeper.errors import LedgerUnavailable
from sweeper.ledger.reads import requested_counts
from sweeper.ledger.requests import retire_asker
from sweeper.ledger.results import outcome_gaps
from sweeper.ledger.sweeps import settle_sweep
from sweeper.model.plan import End
from sweeper.model.states import TrialState
from sweeper.model.waits import Program

log = logging.getLogger("sweeper.coordinator")

LAST_CHORES_S: Final = 20.0
"""How long the end waits for outcome objects that are still missing."""
LAST_MIRRORING_S: Final = 20.0
"""How long the end waits for the Optuna study to show everything."""
WITHDRAWING: Final = ("done", "stopped", "failed_fast")
"""Ends after which nothing is wanted. After an eviction the request stays: workers elsewhere go on, and the next
command sees that this one is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorEnd:
    """How a run ended: `kind` is done, stopped, evicted, failed_fast or workers_failed.

    `counts` are of the requested trials; of a search, of all its trials.
    """

    kind: str
    reason: str
    counts: Mapping[TrialState, int]
    withdrawn: bool = False
    """Whether the ledger was told that this command wants nothing any more."""


class Sleep(Protocol):
    """The coordinator's own way to wait, which takes notices and exits of workers meanwhile."""

    def __call__(self, until_s: float, *, for_chores: bool = True) -> Program[None]:
        """Wait until then, or until there is news."""
        ...


class Leaving:
    """The last steps of a coordinator; each bears that ledger or store are away."""

    def __init__(
        self, parts: CoordinatorParts, chores: Chores, tending: Tending, sleep: Sleep, noticed: Callable[[], bool]
    ) -> None:
        """`noticed`: whether this process was told to leave; then store and study are waited for no longer."""
        self._parts = parts
        self._chores = chores
        self._tending = tending
        self._sleep = sleep
        self._noticed = noticed

    def leave(self, end: End, display: Display, counts: Mapping[TrialState, int]) -> Program[CoordinatorEnd]:
        """Drain the workers, then bring rows, store and study in line as far as they answer."""
        withdrawn = False
        yield from self.workers_leave()
        yield from self._last_chores(end)
        yield from self._last_mirroring()
        try:
            counts = self._sign_off(display)
            withdrawn = self._withdraw(end)
        except LedgerUnavailable as error:
            log.warning("not signed off, the next command will see that this one is gone: %s", error)
        return CoordinatorEnd(kind=end.kind, reason=end.reason, counts=counts, withdrawn=withdrawn)

    def workers_leave(self) -> Program[None]:
        """Tell the local workers to leave; end those that do not."""
        parts = self._parts
        parts.workers.drain()
        give_up_s = parts.clock.monotonic_s() + parts.settings.drain_grace_s
        while parts.workers.alive and parts.clock.monotonic_s() < give_up_s:
            # A chore that has finished stays finished until somebody takes its result: waiting on it would spin.
            yield from self._sleep(parts.clock.monotonic_s() + 1.0, for_chores=False)
        if parts.workers.alive:
            parts.workers.kill()

    def _last_chores(self, end: End) -> Program[None]:
        parts = self._parts
        give_up_s = parts.clock.monotonic_s() + LAST_CHORES_S
        try:
            yield from self._finish_chore(give_up_s)
            while end.kind != "evicted" and self._may_repair(give_up_s):
                self._chores.repair_outcomes()
                yield from self._finish_chore(give_up_s)
            if self._tending.fence is not None and not self._chores.busy:
                self._chores.write_highwater()
                yield from self._finish_chore(give_up_s)
        except LedgerUnavailable as error:
            log.warning("outcome objects are left for the next command to repair: %s", error)

    def _finish_chore(self, give_up_s: float) -> Program[None]:
        clock = self._parts.clock
        while self._chores.busy and clock.monotonic_s() < give_up_s:
            yield from self._sleep(clock.monotonic_s() + 1.0)
            self._chores.advance()

    def _may_repair(self, give_up_s: float) -> bool:
        if self._chores.busy or self._chores.failures or self._parts.clock.monotonic_s() >= give_up_s:
            return False
        return bool(outcome_gaps(self._parts.database, self._parts.sweep.sweep_id, limit=1))

    def _last_mirroring(self) -> Program[None]:
        """Have the study show the end; a leader that was told to leave has no time for that."""
        mirror, clock = self._parts.mirror, self._parts.clock
        if mirror is None:
            return
        give_up_s = clock.monotonic_s() + LAST_MIRRORING_S
        try:
            while not self._noticed() and not mirror.finish(self._tending.fence) and clock.monotonic_s() < give_up_s:
                yield from self._sleep(clock.monotonic_s() + 1.0)
        except LedgerUnavailable as error:
            log.warning("the Optuna study is left as it is: %s", error)
        mirror.close()

    def _sign_off(self, display: Display) -> Mapping[TrialState, int]:
        parts = self._parts
        search: SearchStanding | None = None
        if parts.search is None:
            counts = requested_counts(parts.database, parts.sweep.sweep_id, parts.asker.asker_id)
        else:
            search = parts.search.turn(None)  # as one that does not lead: nothing more is chosen
            counts = search.counts
            display.saw(search)
        display.show(parts.clock.monotonic_s(), counts, search, last=True)
        if parts.search is None:
            settle_sweep(parts.database, parts.sweep.sweep_id)
        else:
            parts.search.finish()
        return counts

    def _withdraw(self, end: End) -> bool:
        parts = self._parts
        if end.kind in WITHDRAWING:
            retire_asker(parts.database, parts.asker.asker_id)
        self._tending.release()
        return end.kind in WITHDRAWING
