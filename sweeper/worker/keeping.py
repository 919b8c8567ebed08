"""Keeping a lease: the heartbeat, from the same loop that serves the child (never a thread that outlives it)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from sweeper.errors import LedgerUnavailable
from sweeper.ledger.leases import renew_lease
from sweeper.ledger.results import record_reports
from sweeper.model.trial import Grant, Report
from sweeper.model.waits import Future, Program, Wait
from sweeper.worker.state import WorkerState

T = TypeVar("T")

TELL_STARTED_S = 1.0


class Interrupted(Exception):
    """A notice came while nothing was running yet: give the trial back at once."""


class LeaseKeeper:
    """Renews one lease when it is due."""

    def __init__(self, worker: WorkerState, grant: Grant) -> None:
        self._worker = worker
        self._grant = grant
        self._settings = worker.parts.settings.lease
        self._due_s = worker.now_s() + self._settings.heartbeat_s
        self.child_started = False
        """Whether user code was reached; told to the ledger with the next heartbeat."""
        self.stop = grant.stop
        """What the search has decided about the trial, as the ledger last said."""

    @property
    def due_s(self) -> float:
        """When the next heartbeat is due, or when the ledger may be asked again."""
        retry_at_s = self._worker.line.retry_at_s
        return self._due_s if retry_at_s is None else max(self._due_s, retry_at_s)

    def renew(self, *, step: int | None = None) -> None:
        """Renew now.

        Raises:
            LeaseLost: the trial is someone else's, or cancelled.
            LedgerUnavailable: unknown; ask again.
        """
        self.stop = renew_lease(
            self._worker.parts.database,
            self._grant.lease,
            lease_s=self._settings.lease_s,
            child_started=self.child_started,
            step=step,
            heartbeat_s=self._settings.heartbeat_s,
        )
        now_s = self._worker.now_s()
        self._worker.line.answered(now_s)
        self._due_s = now_s + self._settings.heartbeat_s

    def report(self, reports: Sequence[Report], *, durable: bool) -> None:
        """Write reports, which extends the lease, but is no heartbeat: that has more to tell, and to see to.

        Errors as in `renew`.

        `durable`: whether to wait for the disk, so that a server that fails can forget none of them.
        """
        self.stop = record_reports(
            self._worker.parts.database,
            self._grant.lease,
            reports,
            lease_s=self._settings.lease_s,
            heartbeat_s=self._settings.heartbeat_s,
            durable=durable,
        )
        self._worker.line.answered(self._worker.now_s())

    def beat(self, *, step: int | None = None) -> None:
        """Renew if it is due and look after the dead. Errors as in `renew`."""
        if self._worker.now_s() >= self._due_s:
            self.renew(step=step)
            self._worker.tend()

    def hurry(self) -> None:
        """User code was reached: tell the ledger soon, so that attempts without progress are counted (FAIR).

        Not at once: a trial that is over within that time is spared the statement.
        """
        self.child_started = True
        self._due_s = min(self._due_s, self._worker.now_s() + TELL_STARTED_S)

    def attend(self, future: Future[T], *, until_s: Callable[[], float] | None = None) -> Program[T]:
        """Wait for background work while the lease is kept.

        Args:
            future: the work.
            until_s: when to stop waiting, asked again at each wake-up; by default as soon as a notice has come.

        Raises:
            Interrupted: the time was over first (the work is left to end by itself).
            LeaseLost: see `renew`.
        """
        worker = self._worker
        limit = until_s or (lambda: float("-inf") if worker.drain.active else float("inf"))
        while not future.done():
            if worker.now_s() >= limit():
                raise Interrupted
            yield from self._pause(Wait(until_s=min(self.due_s, limit()), futures=(future,)))
        return future.result()

    def idle(self, until_s: float) -> Program[None]:
        """Keep the lease until then, or until a notice comes."""
        while self._worker.now_s() < until_s and not self._worker.drain.active:
            yield from self._pause(Wait(until_s=min(until_s, self.due_s)))

    def _pause(self, wait: Wait) -> Program[None]:
        worker = self._worker
        yield from worker.pause(wait)
        if not worker.line.open(worker.now_s()):
            return
        try:
            self.beat()
        except LedgerUnavailable as error:
            worker.line.refused(worker.now_s(), error)
