"""What a command does first: see whether its ledger was put back to an earlier copy since the store was last told.

A ledger that is behind would have finished trials trained again. Nothing is leased by this command before it has been
noted; from then on every grant looks in the store first, under a fence above all that were ever seen (ONCE).
"""

from __future__ import annotations

import logging

from sweeper.checkpoint.outcomes import highest_fence
from sweeper.checkpoint.ownership import read_highwater, write_highwater
from sweeper.checkpoint.store import ObjectStore
from sweeper.clock import Clock
from sweeper.errors import CheckpointCorrupt
from sweeper.ids import SweepId
from sweeper.ledger.database import Statements
from sweeper.ledger.highwater import high_water, is_behind, note_rollback
from sweeper.model.highwater import HighWater

log = logging.getLogger("sweeper.coordinator")

ROLLED_BACK = (
    "The ledger is behind what the store has seen of this sweep (was an older copy restored?). "
    "What had finished is taken from the store, not trained again."
)


def last_mark(store: ObjectStore, sweep_id: SweepId) -> HighWater | None:
    """The sweep's high-water mark; None when there is none that can be read.

    Raises:
        StoreUnavailable, StoreDenied: cannot tell.
    """
    try:
        mark = read_highwater(store, sweep_id)
    except CheckpointCorrupt as error:
        log.warning("high-water mark is damaged and will be written anew: %s", error)
        return None
    return None if mark is None else HighWater.from_mapping(mark)


def notice_rollback(database: Statements, store: ObjectStore, sweep_id: SweepId, clock: Clock) -> bool:
    """Compare ledger and store, note it if the ledger is behind, and say whether it was. Safe to repeat.

    Raises:
        LedgerUnavailable, StoreUnavailable, StoreDenied: cannot tell; nothing may be leased on that.
    """
    mark = last_mark(store, sweep_id)  # before the ledger is asked, which may move on meanwhile
    if mark is None or not is_behind(database, sweep_id, mark):
        return False
    seen_fence = highest_fence(store, sweep_id)
    note_rollback(database, sweep_id, seen_fence=seen_fence, next_number=mark.next_number)
    facts = high_water(database, sweep_id)
    write_highwater(store, sweep_id, facts.as_mapping(written_at=clock.wall().isoformat()))
    log.warning("%s", ROLLED_BACK)
    return True
