"""From a trial's head to bytes that a child may load: verified, or the previous one, or a clear end (FALLBACK).

On any bad read the lease is renewed *first*: a lost lease explains a missing checkpoint better than a broken store
does, since the successor may have retired it.
"""

from __future__ import annotations

import logging
import mmap
import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TypeVar

from sweeper.checkpoint.reader import newest_valid_manifest, read_checkpoint
from sweeper.errors import CheckpointCorrupt, ObjectMissing, StoreUnavailable
from sweeper.ledger.checkpoints import adopt_checkpoint, mark_suspect
from sweeper.model.messages import Restore
from sweeper.model.staging import Layout, SaveFacts
from sweeper.model.trial import CheckpointRef, Grant
from sweeper.model.waits import Program
from sweeper.worker.keeping import Interrupted, LeaseKeeper
from sweeper.worker.patience import Backoff
from sweeper.worker.state import WorkerState

log = logging.getLogger("sweeper.worker")
T = TypeVar("T")

MAX_READS = 5
"""Tries of one checkpoint while the store does not answer."""
MAX_FALLBACKS = 16
"""Checkpoints tried before the trial starts from zero; more than retention ever keeps."""


class RestoreFile:
    """Anonymous memory that is filled from the store and handed to the child as a descriptor."""

    def __init__(self) -> None:
        self._fd = _anonymous_file()
        self._map: mmap.mmap | None = None
        self._view = memoryview(b"")
        self._size_bytes = 0

    def into(self, size_bytes: int) -> memoryview:
        """Give that many bytes of memory to fill; the last call counts."""
        self._let_go()
        self._size_bytes = size_bytes
        os.ftruncate(self._fd, size_bytes)
        if size_bytes:
            self._map = mmap.mmap(self._fd, size_bytes)
            self._view = memoryview(self._map)
        return self._view

    def seal(self, layout: Layout) -> tuple[int, int]:
        """Put the layout behind the tensor bytes; give its offset and length in bytes."""
        self._let_go()
        data = layout.to_bytes()
        os.pwrite(self._fd, data, self._size_bytes)
        return self._size_bytes, len(data)

    def fileno(self) -> int:
        """The descriptor, valid until `close`."""
        return self._fd

    def close(self) -> None:
        """Free our side; a child that was given the descriptor keeps the memory."""
        self._let_go()
        os.close(self._fd)

    def _let_go(self) -> None:
        if self._map is not None:
            self._view.release()
            self._map.close()
            self._map = None
        self._view = memoryview(b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A verified checkpoint in memory."""

    ref: CheckpointRef
    file: RestoreFile
    message: Restore

    def as_mapping(self) -> dict[str, int]:
        """The form that `Start` carries."""
        return asdict(self.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """What an attempt begins with."""

    restored: Restored | None
    """None: from zero."""
    note: str = ""
    """What is to be told about it, with the attempt's end."""

    def close(self) -> None:
        """Free our side of the memory."""
        if self.restored is not None:
            self.restored.file.close()


def restore_head(worker: WorkerState, keeper: LeaseKeeper, grant: Grant) -> Program[Beginning]:
    """Read the trial's newest checkpoint that verifies.

    An heir's inherited one is read as what it is, another trial's. Behind it there is nothing to fall back on: what the
    heir trained before belongs to another lineage.

    Raises:
        StoreUnavailable, StoreDenied: nothing can be concluded; the attempt ends as `environment`.
        LeaseLost, Interrupted: see `LeaseKeeper.attend`.
    """
    head = yield from _newest(worker, keeper, grant)
    lost = ""
    for _ in range(MAX_FALLBACKS):
        if head is None:
            break
        file = RestoreFile()
        try:
            layout, facts = yield from _read(worker, keeper, grant, head, file)
        except ObjectMissing as error:
            file.close()
            lost = lost or _inheritance_lost(grant, head, error)
            head = yield from _refind(worker, keeper, grant, head, str(error))
        except CheckpointCorrupt as error:
            file.close()
            lost = lost or _inheritance_lost(grant, head, error)
            head = yield from _previous(worker, keeper, grant, head, str(error))
        except BaseException:
            file.close()
            raise
        else:
            offset, size = file.seal(layout)
            message = Restore(step=facts.step, seq=facts.seq, layout_offset=offset, layout_bytes=size)
            return Beginning(restored=Restored(ref=head, file=file, message=message), note=lost)
    return Beginning(restored=None, note=lost)


def _inheritance_lost(grant: Grant, head: CheckpointRef, error: Exception) -> str:
    if head.config_hash in (None, grant.config_hash):
        return ""
    return f"the checkpoint inherited from trial {head.config_hash:.12} could not be used ({error})"


def _newest(worker: WorkerState, keeper: LeaseKeeper, grant: Grant) -> Program[CheckpointRef | None]:
    """The head, or after a rollback what had come further by then, though the ledger has forgotten it (RESUME)."""
    if grant.seen_fence == 0:
        return grant.head
    store = worker.parts.store

    def look() -> CheckpointRef | None:
        return newest_valid_manifest(
            store,
            sweep_id=grant.sweep_id,
            config_hash=grant.config_hash,
            lineage=grant.lineage,
            up_to_fence=grant.seen_fence,
        )

    found = yield from _patiently(worker, keeper, grant, look)
    if found is None or (grant.head is not None and grant.head.step >= found.step):
        return grant.head
    yield from _adopt(worker, grant, found)
    return found


def _adopt(worker: WorkerState, grant: Grant, found: CheckpointRef) -> Program[None]:
    log.warning("checkpoint adopted from the store trial=%d step=%d", grant.number, found.step)
    yield from worker.insist(lambda: adopt_checkpoint(worker.parts.database, grant.lease, found))


def _read(
    worker: WorkerState, keeper: LeaseKeeper, grant: Grant, ref: CheckpointRef, file: RestoreFile
) -> Program[tuple[Layout, SaveFacts]]:
    parts = worker.parts

    def work() -> tuple[Layout, SaveFacts]:
        owner = ref.config_hash or grant.config_hash
        return read_checkpoint(parts.store, ref, sweep_id=grant.sweep_id, config_hash=owner, into=file.into)

    return (yield from _patiently(worker, keeper, grant, work))


def _patiently(worker: WorkerState, keeper: LeaseKeeper, grant: Grant, work: Callable[[], T]) -> Program[T]:
    """Do store work in the background, again while the store does not answer."""
    backoff = Backoff(worker.parts.jitter, first_s=0.5)
    while True:
        try:
            return (yield from keeper.attend(worker.parts.background.submit(work)))
        except StoreUnavailable as error:
            if backoff.failures + 1 >= MAX_READS:
                raise
            log.warning("store does not answer, reading again trial=%d: %s", grant.number, error)
            yield from keeper.idle(worker.now_s() + backoff.next_s())
            if worker.drain.active:
                raise Interrupted from error


def _previous(
    worker: WorkerState, keeper: LeaseKeeper, grant: Grant, ref: CheckpointRef, evidence: str
) -> Program[CheckpointRef | None]:
    yield from worker.insist(keeper.renew)
    log.warning("checkpoint is bad, using the previous one trial=%d step=%d: %s", grant.number, ref.step, evidence)
    database = worker.parts.database
    return (yield from worker.insist(lambda: mark_suspect(database, grant.lease, ref, evidence=evidence)))


def _refind(
    worker: WorkerState, keeper: LeaseKeeper, grant: Grant, ref: CheckpointRef, evidence: str
) -> Program[CheckpointRef | None]:
    """The head's objects are missing: adopt the newest valid manifest of this lineage, else fall back."""
    yield from worker.insist(keeper.renew)
    parts = worker.parts

    def look() -> CheckpointRef | None:
        return newest_valid_manifest(
            parts.store, sweep_id=grant.sweep_id, config_hash=grant.config_hash, lineage=grant.lineage
        )

    found = yield from _patiently(worker, keeper, grant, look)
    previous = yield from _previous(worker, keeper, grant, ref, evidence)
    if found is None or found.manifest_key == ref.manifest_key:
        return previous
    if previous is not None and found.step <= previous.step:
        return previous
    yield from _adopt(worker, grant, found)
    return found


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("sweeper-restore", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
