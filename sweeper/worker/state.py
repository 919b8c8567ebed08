"""What lasts for a worker's whole life: its parts, its drain, its line to the ledger."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from sweeper.errors import LedgerUnavailable
from sweeper.ledger.leases import expire_dead_holder, expire_leases, running_holders
from sweeper.model.waits import Program, Wait, Woken
from sweeper.worker.draining import Drain
from sweeper.worker.parts import WorkerParts
from sweeper.worker.patience import Backoff, LedgerLine

log = logging.getLogger("sweeper.worker")
T = TypeVar("T")

EXPIRE_LIMIT = 20
"""Leases of the dead that one look may close, so that a heartbeat stays short."""


class GaveUp(Exception):
    """The drain's deadline came before the ledger answered; what was held is left to expire."""


class WorkerState:
    """Shared by every part of a worker's program; each of them waits through `pause`, so that no notice is missed."""

    def __init__(self, parts: WorkerParts) -> None:
        self.parts = parts
        self.drain = Drain(grace_s=parts.settings.grace_s)
        self.line = LedgerLine(Backoff(parts.jitter))

    def now_s(self) -> float:
        """The worker's monotonic clock."""
        return self.parts.clock.monotonic_s()

    def pause(self, wait: Wait) -> Program[Woken]:
        """Wait, and take the notices that came meanwhile."""
        woken = yield wait
        self.drain.take(woken.notices, woken.now_s)
        return woken

    def insist(self, work: Callable[[], T], *, until_s: Callable[[], float] | None = None) -> Program[T]:
        """Repeat a ledger call until it is answered.

        Args:
            work: one replay-safe call.
            until_s: when to give up; the drain's deadline by default.

        Raises:
            GaveUp: the time was over first.
        """
        limit = until_s or (lambda: self.drain.deadline_s)
        while True:
            try:
                value = work()
            except LedgerUnavailable as error:
                now_s = self.now_s()
                self.line.refused(now_s, error)
                if now_s >= limit():
                    raise GaveUp from error
                yield from self.pause(Wait(until_s=min(self.line.retry_at_s or now_s, limit())))
            else:
                self.line.answered(self.now_s())
                return value

    def tend(self) -> None:
        """Close the leases of the dead: those that ran out, and those whose holder on this host is provably gone.

        Every worker does this with its heartbeat, so trials of the dead need no coordinator (BLIND, RECONCILE).

        Raises:
            LedgerUnavailable: try again later; nothing is lost.
        """
        parts, lease = self.parts, self.parts.settings.lease
        expired = expire_leases(
            parts.database,
            parts.sweep.sweep_id,
            lease_s=lease.lease_s,
            heartbeat_s=lease.heartbeat_s,
            limit=EXPIRE_LIMIT,
        )
        for gone in expired:
            log.warning("lease expired trial=%d fence=%d", gone.number, gone.lease.fence)
        for holder in running_holders(parts.database, parts.sweep.sweep_id, boot_id=parts.record.boot_id):
            if holder.worker_id == parts.record.worker_id or not parts.holder_is_dead(holder):
                continue
            expire_dead_holder(parts.database, holder.lease, reason="holder on this host is gone")
            log.warning("holder is gone trial=%d fence=%d", holder.number, holder.lease.fence)
