"""Housekeeping in the store: one piece at a time in the background, its ledger statements in the coordinator's loop."""

from __future__ import annotations

import logging
from collections.abc import Callable

from sweeper.checkpoint.collect import delete_checkpoints
from sweeper.checkpoint.outcomes import highest_fence, supply_outcome, write_config
from sweeper.checkpoint.ownership import owner_of, write_highwater
from sweeper.checkpoint.store import ObjectStore
from sweeper.coordinator.parts import CoordinatorParts
from sweeper.coordinator.rollback import ROLLED_BACK, last_mark
from sweeper.errors import CheckpointCorrupt, ObjectExists, StoreDenied, StoreUnavailable, UserError
from sweeper.ledger.checkpoints import collectable_checkpoints, forget_checkpoints
from sweeper.ledger.highwater import high_water, is_behind, note_rollback
from sweeper.ledger.results import OutcomeGap, outcome_gaps, record_outcome_object
from sweeper.model.highwater import HighWater
from sweeper.model.outcome import Outcome
from sweeper.model.tagged import to_tagged
from sweeper.model.waits import Future

log = logging.getLogger("sweeper.coordinator")

REPAIR_LIMIT = 50
COLLECT_LIMIT = 50

Finish = Callable[[], None]
"""Ledger statements that follow a piece of work in the store; run in the loop, replay-safe."""


class Chores:
    """At most one chore is under way; each is begun by a command of the plan."""

    def __init__(self, parts: CoordinatorParts) -> None:
        self._parts = parts
        self._future: Future[Finish] | None = None
        self._finish: Finish | None = None
        self.last: dict[str, float] = {}
        """When each chore was last begun, by name."""
        self.failures = 0
        """Failures in a row, for telling people once."""

    @property
    def busy(self) -> bool:
        """Whether one is under way."""
        return self._future is not None or self._finish is not None

    @property
    def futures(self) -> tuple[Future[Finish], ...]:
        """What to wait for."""
        return () if self._future is None else (self._future,)

    def repair_outcomes(self) -> None:
        """Write missing outcome objects of final trials, then name them in their rows (ONCE)."""
        parts = self._parts
        gaps = outcome_gaps(parts.database, parts.sweep.sweep_id, limit=REPAIR_LIMIT)

        def work() -> Finish:
            written = [(gap, *_supply(parts.store, gap)) for gap in gaps]

            def finish() -> None:
                for gap, key, digest in written:
                    record_outcome_object(parts.database, gap, key=key, hash_=digest)

            return finish

        self._begin("repair", work)

    def write_highwater(self) -> None:
        """See whether this ledger still owns the sweep's name and has lost nothing, and write how far it is."""
        parts = self._parts

        def work() -> Finish:
            owner = owner_of(parts.store, parts.sweep.name)
            if owner is not None and owner.ledger_id != parts.ledger_id:
                raise UserError(
                    f"The sweep {parts.sweep.name!r} now belongs to another ledger ({owner.ledger_id}).",
                    remedy="Point SWEEPER_DATABASE_URL at that one, or use another sweep name.",
                )
            mark = last_mark(parts.store, parts.sweep.sweep_id)
            return lambda: self._compare(mark)

        self._begin("highwater", work)

    def _compare(self, mark: HighWater | None) -> None:
        """The mark was read first, so only a ledger that went back can be behind it."""
        parts = self._parts
        if mark is None or not is_behind(parts.database, parts.sweep.sweep_id, mark):
            self._write_mark()
            return

        def work() -> Finish:
            seen_fence = highest_fence(parts.store, parts.sweep.sweep_id)
            return lambda: self._note_rollback(mark, seen_fence)

        self._begin("highwater", work)

    def _note_rollback(self, mark: HighWater, seen_fence: int) -> None:
        parts = self._parts
        note_rollback(parts.database, parts.sweep.sweep_id, seen_fence=seen_fence, next_number=mark.next_number)
        if parts.search is not None:
            parts.search.forget()
        self._write_mark()
        parts.sink.note(ROLLED_BACK)

    def _write_mark(self) -> None:
        parts = self._parts
        mark = high_water(parts.database, parts.sweep.sweep_id)
        written_at = parts.clock.wall().isoformat()

        def work() -> Finish:
            write_highwater(parts.store, parts.sweep.sweep_id, mark.as_mapping(written_at=written_at))
            return _nothing

        self._begin("highwater", work)

    def collect(self) -> None:
        """Delete the objects of checkpoints whose rows were retired long ago, then their rows."""
        parts = self._parts
        refs = collectable_checkpoints(
            parts.database, parts.sweep.sweep_id, older_than_s=parts.settings.collect_after_s, limit=COLLECT_LIMIT
        )

        def work() -> Finish:
            gone = delete_checkpoints(parts.store, refs, sweep_id=parts.sweep.sweep_id)
            return lambda: forget_checkpoints(parts.database, gone)

        self._begin("collect", work)

    def advance(self) -> None:
        """Take what has finished, and run the ledger statements that follow it.

        Raises:
            UserError: the sweep's name belongs to another ledger: stop.
            LedgerUnavailable: call again; what is left to do is kept.
        """
        if self._future is not None and self._future.done():
            future, self._future = self._future, None
            try:
                self._finish = future.result()
                self.failures = 0
            except (StoreUnavailable, StoreDenied, ObjectExists, CheckpointCorrupt) as error:
                self.failures += 1
                log.warning("housekeeping in the store failed, later again: %s", error)
        if self._finish is not None:
            self._finish()  # may begin the next piece of the same chore
            self._finish = None

    def _begin(self, name: str, work: Callable[[], Finish]) -> None:
        self.last[name] = self._parts.clock.monotonic_s()
        self._future = self._parts.background.submit(work)


def _supply(store: ObjectStore, gap: OutcomeGap) -> tuple[str, str]:
    """A worker that never saved has not written the config either, without which nobody could rebuild the trial."""
    write_config(store, gap.sweep_id, gap.config_hash, gap.lineage, gap.config_text)
    return supply_outcome(store, outcome_of(gap))


def outcome_of(gap: OutcomeGap) -> Outcome:
    """Build the outcome object that the last attempt of a final trial did not leave."""
    return Outcome(
        sweep_id=gap.sweep_id,
        config_hash=gap.config_hash,
        number=gap.number,
        lineage=gap.lineage,
        fence=gap.fence,
        lease_id=gap.lease_id,
        state=gap.state,
        reason=gap.reason,
        value=gap.value,
        step=gap.step,
        params=gap.params,
        reports=tuple((r.step, r.at_step, to_tagged(r.value), to_tagged(dict(r.metrics))) for r in gap.reports),
    )


def _nothing() -> None:
    return None
