"""What a coordinator looks after beside the plan: its own lease, its sign of life, the dead, and what is to repair."""

from __future__ import annotations

import logging

from sweeper.coordinator.parts import CoordinatorParts
from sweeper.ids import AskerId
from sweeper.ledger.leases import expire_dead_holder, expire_leases, running_holders
from sweeper.ledger.requests import list_askers, touch_asker
from sweeper.ledger.results import outcome_gaps
from sweeper.ledger.sweeps import acquire_coordinator, release_coordinator, renew_coordinator
from sweeper.model.plan import AskerSeen

log = logging.getLogger("sweeper.coordinator")


class Tending:
    """Each part is done when due; what was seen last is kept for the plan."""

    def __init__(self, parts: CoordinatorParts) -> None:
        self._parts = parts
        self.fence: int | None = None
        """Of the sweep's lease; None while another one leads."""
        self.askers: tuple[AskerSeen, ...] = ()
        self.asker_gone = False
        """Whether others took this command for dead, or its ledger was put back."""
        self.gaps = 0
        self._lease_due_s = float("-inf")
        self._touch_due_s = float("-inf")
        self._tend_due_s = float("-inf")

    def keep_leases(self, now_s: float) -> None:
        """Renew the sweep's lease or try to get it, and show a sign of life beside what this command asked for."""
        parts, settings = self._parts, self._parts.settings
        sweep_id, me = parts.sweep.sweep_id, parts.coordinator_id
        if now_s >= self._lease_due_s:
            if self.fence is not None and not renew_coordinator(
                parts.database, sweep_id, me, self.fence, lease_s=settings.coordinator_lease_s
            ):
                self.fence = None
            if self.fence is None:
                self.fence = acquire_coordinator(parts.database, sweep_id, me, lease_s=settings.coordinator_lease_s)
            self._lease_due_s = now_s + settings.coordinator_lease_s / 4
        if now_s >= self._touch_due_s:
            touch_asker(parts.database, parts.asker.asker_id)
            self._touch_due_s = now_s + settings.lease.heartbeat_s

    def lost_lead(self) -> None:
        """Another coordinator chooses; ask again when it is time."""
        self.fence = None

    def may_lead(self) -> None:
        """Nobody leads the sweep: ask at the next turn, not when the pause between two tries is over."""
        self._lease_due_s = float("-inf")

    def drop(self, asker_id: AskerId) -> None:
        """That asker's request was withdrawn."""
        self.askers = tuple(asker for asker in self.askers if asker.asker_id != asker_id)

    def release(self) -> None:
        """Give the sweep's lease back."""
        if self.fence is not None:
            release_coordinator(
                self._parts.database, self._parts.sweep.sweep_id, self._parts.coordinator_id, self.fence
            )

    def tend(self, now_s: float) -> None:
        """Look after the dead, as every worker does too; and see what else is to repair."""
        if now_s < self._tend_due_s:
            return
        parts, lease = self._parts, self._parts.settings.lease
        sweep_id = parts.sweep.sweep_id
        for gone in expire_leases(parts.database, sweep_id, lease_s=lease.lease_s, heartbeat_s=lease.heartbeat_s):
            log.warning("lease expired trial=%d fence=%d", gone.number, gone.lease.fence)
        for holder in running_holders(parts.database, sweep_id, boot_id=parts.boot_id):
            if parts.holder_is_dead(holder):
                expire_dead_holder(parts.database, holder.lease, reason="holder on this host is gone")
                log.warning("holder is gone trial=%d fence=%d", holder.number, holder.lease.fence)
        me, seen = parts.asker.asker_id, list_askers(parts.database, sweep_id)
        self.asker_gone = all(asker.asker_id != me for asker in seen)
        self.askers = tuple(
            AskerSeen(asker_id=asker.asker_id, silent_s=asker.seconds_silent, dead=parts.asker_is_dead(asker))
            for asker in seen
            if asker.asker_id != me
        )
        self.gaps = len(outcome_gaps(parts.database, sweep_id, limit=1))
        self._tend_due_s = now_s + parts.settings.tend_every_s
