"""A save's way from sealed memory to committed row: packs and manifest in the background, then one statement.

One save at a time, as the child has one staging file: it takes the next only after `Saved`. A sealed save outlives its
child, so a save of a child that died is still uploaded and committed.
"""

from __future__ import annotations

import logging

from sweeper.checkpoint.keys import attempt_prefix
from sweeper.checkpoint.outcomes import write_config
from sweeper.checkpoint.writer import write_checkpoint
from sweeper.errors import LedgerUnavailable, ObjectExists, StoreDenied, StoreUnavailable
from sweeper.ledger.checkpoints import commit_checkpoint, retire_checkpoints
from sweeper.model.messages import Saved, Sealed
from sweeper.model.staging import Layout, SaveFacts
from sweeper.model.trial import CheckpointRef, Grant
from sweeper.model.waits import Child, Future
from sweeper.worker.patience import Backoff
from sweeper.worker.state import WorkerState

log = logging.getLogger("sweeper.worker")

MAX_UPLOADS = 6
"""Tries of one save while the store does not answer; training goes on and the next save gets its own."""


class Saving:
    """The save that is under way, if any, and how long saves have taken."""

    def __init__(self, worker: WorkerState, grant: Grant, child: Child, *, previous: CheckpointRef | None) -> None:
        self._worker = worker
        self._grant = grant
        self._child = child
        self._sealed: Sealed | None = None
        self._sealed_at_s = 0.0
        self._retry_at_s: float | None = None
        self._future: Future[CheckpointRef] | None = None
        self._ref: CheckpointRef | None = None
        self._backoff = Backoff(worker.parts.jitter, first_s=1.0, most_s=30.0)
        self._config_written = False
        self.head = previous
        self.committed = 0
        self.given_up = False
        """Whether the newest save that the child has sealed was lost on its way."""
        self.slowest_s = 0.0
        """The longest time from sealed to committed so far."""

    @property
    def busy(self) -> bool:
        """Whether a sealed save is not yet committed or given up."""
        return self._sealed is not None

    @property
    def futures(self) -> tuple[Future[CheckpointRef], ...]:
        """What to wait for."""
        return () if self._future is None else (self._future,)

    @property
    def wake_at_s(self) -> float:
        """When to try an upload again; infinity when there is none to repeat."""
        return float("inf") if self._retry_at_s is None else self._retry_at_s

    @property
    def ready(self) -> bool:
        """Whether everything lies in the store and only the row is missing."""
        return self._ref is not None

    def begin(self, sealed: Sealed) -> None:
        """Take over a save that the child has sealed."""
        self._sealed = sealed
        self._sealed_at_s = self._worker.now_s()
        self._backoff.reset()
        self._submit()

    def advance(self, *, hopeless: bool) -> None:
        """Collect a finished upload, or start it again when its time has come.

        Args:
            hopeless: give up at the first failure, since nobody will need this save.
        """
        if self._retry_at_s is not None and self._worker.now_s() >= self._retry_at_s:
            self._submit()
        if self._future is None or not self._future.done():
            return
        future, self._future = self._future, None
        try:
            self._ref = future.result()
        except StoreUnavailable as error:
            if hopeless or self._backoff.failures + 1 >= MAX_UPLOADS:
                self._give_up(str(error))
            else:
                log.warning("upload failed, trying again trial=%d: %s", self._grant.number, error)
                self._retry_at_s = self._worker.now_s() + self._backoff.next_s()
        except (StoreDenied, ObjectExists, ValueError) as error:
            self._give_up(str(error))

    def commit(self) -> None:
        """Make the uploaded save the trial's head, retire old ones, and free the child's staging file.

        Raises:
            LeaseLost: the save stays nameless in the store; delete nothing.
            LedgerUnavailable: call again.
        """
        ref = self._ref
        assert ref is not None, "only when ready"
        worker, settings = self._worker, self._worker.parts.settings
        save_s = worker.now_s() - self._sealed_at_s
        database, lease = worker.parts.database, self._grant.lease
        commit_checkpoint(database, lease, ref, save_s=save_s, lease_s=settings.lease.lease_s)
        log.info("checkpoint committed trial=%d fence=%d step=%d", self._grant.number, lease.fence, ref.step)
        self.head = ref
        self.committed += 1
        self.slowest_s = max(self.slowest_s, save_s)
        self._end(ok=True)
        try:
            retire_checkpoints(database, lease, keep=worker.parts.sweep.checkpoint_keep)
        except LedgerUnavailable as error:  # the next commit retires these too
            log.info("retiring is put off trial=%d: %s", self._grant.number, error)

    def _submit(self) -> None:
        sealed = self._sealed
        assert sealed is not None, "there is a save to upload"
        self._retry_at_s = None
        self._future = self._worker.parts.background.submit(lambda: self._upload(sealed))

    def _upload(self, sealed: Sealed) -> CheckpointRef:
        """Runs in the background; touches nothing of ours that changes, and no ledger."""
        grant, store = self._grant, self._worker.parts.store
        if not self._config_written:
            write_config(store, grant.sweep_id, grant.config_hash, grant.lineage, grant.config_text)
            self._config_written = True
        staged = self._child.staged()
        end = sealed.layout_offset + sealed.layout_bytes
        layout = Layout.from_bytes(staged[sealed.layout_offset : end])
        return write_checkpoint(
            store,
            prefix=attempt_prefix(grant.sweep_id, grant.config_hash, grant.lease.fence, grant.lease.lease_id),
            staged=staged,
            layout=layout,
            facts=SaveFacts(**sealed.facts),
            sweep_id=grant.sweep_id,
            config_hash=grant.config_hash,
            lineage=grant.lineage,
            fence=grant.lease.fence,
            lease_id=grant.lease.lease_id,
            previous=self.head,
        )

    def _give_up(self, detail: str) -> None:
        log.warning("save given up trial=%d: %s", self._grant.number, detail)
        self._end(ok=False)

    def _end(self, *, ok: bool) -> None:
        assert self._sealed is not None, "there is a save to end"
        seq = self._sealed.seq
        self.given_up = not ok
        self._sealed = self._ref = None
        self._child.send(Saved(seq=seq, ok=ok))
