"""Where real things are built from settings, and the only such place: ledger, store, drivers, workers, coordinators."""

from __future__ import annotations

import logging
import os
import random
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from sweeper.checkpoint.ownership import claim_name, owner_of, write_sweep_file
from sweeper.checkpoint.store import ObjectStore, open_store, probe
from sweeper.clock import Clock, SystemClock
from sweeper.coordinator.parts import CoordinatorParts, SearchPlan
from sweeper.coordinator.program import CoordinatorEnd, coordinator_program
from sweeper.coordinator.proposing import Chooser
from sweeper.coordinator.rollback import notice_rollback
from sweeper.engines.local import LocalWorkers, PipedWorker, WorkerHandle
from sweeper.errors import CheckpointCorrupt, StoreDenied, TransientError, UserError
from sweeper.ids import AskerId, CoordinatorId, LedgerId, SweepId, WorkerId, system_random_hex
from sweeper.ledger.database import Database, open_database
from sweeper.ledger.embedded import ensure_server
from sweeper.ledger.requests import register_asker, request_trials
from sweeper.ledger.searches import request_open
from sweeper.ledger.sweeps import find_sweep, ledger_id, open_sweep, require_sweep, settle_sweep
from sweeper.model.progress import ProgressSink
from sweeper.model.states import SweepState
from sweeper.model.trial import AskerRecord, Grant, Holder, Json, NewTrial, Sweep, SweepSpec, Trial, WorkerRecord
from sweeper.notices.launcher import LauncherGone
from sweeper.notices.signals import ParentGone, SignalNotices
from sweeper.settings import CoordinatorSettings, Places, WorkerSettings
from sweeper.trial.child_starter import ChildStarter
from sweeper.trial.host import LifeLock, boot_id, holder_is_dead
from sweeper.trial.spawning import Spawner
from sweeper.worker.background import ThreadBackground
from sweeper.worker.driver import NoticeSource, SelectorDriver
from sweeper.worker.parts import SweepFacts, WorkerParts, facts_of
from sweeper.worker.program import worker_program

log = logging.getLogger("sweeper.wiring")

T = TypeVar("T")

WORKER_ROLE = "worker"
EXIT_BAD_INPUT = 2
START_DELAYS_S = (0.2, 0.5, 1.0, 2.0, 4.0)
SWEEP_WAIT_TURNS, SWEEP_WAIT_TURN_S = 20, 1.0
"""How long a worker started by hand waits for its sweep to exist: both are often started by one script."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backends:
    """Ledger and store, both tried."""

    database: Database
    store: ObjectStore
    places: Places
    ledger_id: LedgerId

    def close(self) -> None:
        """Give the database's connections back."""
        self.database.close()


def connect(places: Places) -> Backends:
    """Open ledger and store; the embedded server is started when no database is named.

    Raises:
        UserError: one message that says which of them failed, why, and the remedy. Nothing was written.
    """
    store = open_store(places.store_url)
    probe(store)
    url = places.database_url or ensure_server(places.home)
    database = open_database(url)
    identity = _patiently(lambda: ledger_id(database))
    return Backends(database=database, store=store, places=places, ledger_id=identity)


def begin_sweep(backends: Backends, spec: SweepSpec) -> Sweep:
    """Write the sweep's row or match it, after the name was claimed in the store; running it again is resuming it.

    The claim comes first: a name that belongs to another ledger is refused before any row exists.

    Raises:
        UserError: the name belongs to another ledger, or the sweep differs (task, search, …).
    """
    return _patiently(lambda: _begin_sweep(backends, spec))


def _begin_sweep(backends: Backends, spec: SweepSpec) -> Sweep:
    database, store = backends.database, backends.store
    known = find_sweep(database, spec.name)
    owner = owner_of(store, spec.name)
    if known is not None:
        new_id = known.sweep_id
    elif owner is not None and owner.ledger_id == backends.ledger_id:
        new_id = owner.sweep_id  # claimed by a command that died, or one that is as far as we are
    else:
        new_id = SweepId(system_random_hex())
    claim_name(store, name=spec.name, sweep_id=new_id, ledger_id=backends.ledger_id)
    sweep = open_sweep(database, spec, new_id=new_id)
    if sweep.sweep_id != new_id:  # another first command was quicker; the store must name the sweep that there is
        claim_name(store, name=spec.name, sweep_id=sweep.sweep_id, ledger_id=backends.ledger_id)
    notice_rollback(database, store, sweep.sweep_id, SystemClock())
    write_sweep_file(store, _sweep_mapping(sweep))
    return sweep


class Asking:
    """A command's request: alive exactly as long as its lock file is held, so that a later one can tell it died."""

    def __init__(self, record: AskerRecord, lock: LifeLock) -> None:
        self.record = record
        self.trials: Sequence[NewTrial] = ()
        """What was asked for."""
        self.withdrawn = False
        """Whether the ledger was told that nothing is wanted any more."""
        self._lock = lock

    def close(self) -> None:
        """Let go of the lock. Its file is removed only after a withdrawal: otherwise it is the proof of this end."""
        if self.withdrawn:
            self._lock.close()
        else:
            os.close(self._lock.fileno())


def begin_asking(backends: Backends, sweep: Sweep) -> Asking:
    """Register this command as one that asks for trials.

    Raises:
        UserError: the lock folder cannot be used.
    """
    asker_id = AskerId(system_random_hex())
    lock = LifeLock.acquire(backends.places.home, WorkerId(asker_id))
    record = AskerRecord(
        asker_id=asker_id,
        host=socket.gethostname(),
        boot_id=boot_id(),
        lock_path=str(lock.path),
        lock_inode=lock.inode,
        pid=os.getpid(),
    )
    _patiently(lambda: register_asker(backends.database, sweep.sweep_id, record))
    return Asking(record, lock)


def ask_for(backends: Backends, sweep: Sweep, asking: Asking, trials: Sequence[NewTrial]) -> list[Trial]:
    """Request trials, one answer per trial in order; known configs give their trial. The sweep is active again if any
    of them is not final."""
    database, asker_id = backends.database, asking.record.asker_id
    asking.trials = tuple(trials)
    found = _patiently(lambda: request_trials(database, sweep.sweep_id, asker_id, trials))
    _patiently(lambda: settle_sweep(database, sweep.sweep_id))
    return found


def start_workers(
    spawner: Spawner, payload: Callable[[int], Json], *, role: str = WORKER_ROLE
) -> Callable[[int], WorkerHandle]:
    """Give what starts the worker in place `index`: role `worker`, its payload, and one descriptor, the parent pipe."""

    def start(index: int) -> WorkerHandle:
        read_end, write_end = os.pipe()
        try:
            process = spawner.spawn(role, payload(index), [read_end])
        except BaseException:
            os.close(write_end)
            raise
        finally:
            os.close(read_end)
        return PipedWorker(process, write_end)

    return start


def coordinate(
    backends: Backends,
    sweep: Sweep,
    asking: Asking,
    settings: CoordinatorSettings,
    *,
    start_workers: Callable[[int], WorkerHandle],
    progress: ProgressSink,
    search: SearchPlan | None = None,
) -> CoordinatorEnd:
    """Coordinate until everything this command asked for is final, or a signal comes. Call on the main thread.

    With a search nobody calls `ask_for`: whatever the sweep has open is asked for, and each new proposal. Returns at
    once, with no worker started, when all of it is final already. The caller maps the end's kind to an exit status:
    done (0, or 1 if any failed), stopped (0, with its reason as a line), evicted (75), failed_fast (1),
    workers_failed (1).

    Raises:
        UserError: the sweep's name was taken over by another ledger; the search cannot be one, or an enqueued point
            does not fit its space (nothing was proposed); or code that the search names cannot go on.
    """
    clock = SystemClock()
    launcher = LauncherGone.watch()
    signals = SignalNotices(signal.Signals[name] for name in settings.signals)
    driver = SelectorDriver(clock, [signals, *([launcher] if launcher else [])])
    background = ThreadBackground(driver.wake)
    workers = LocalWorkers(start_workers, places=settings.workers)
    here = boot_id()
    parts = CoordinatorParts(
        database=backends.database,
        store=backends.store,
        ledger_id=backends.ledger_id,
        clock=clock,
        background=background,
        jitter=random.SystemRandom().random,
        holder_is_dead=_holder_is_dead,
        asker_is_dead=_asker_is_dead,
        boot_id=here,
        coordinator_id=CoordinatorId(asking.record.asker_id),
        sweep=sweep,
        asker=asking.record,
        asked=len({trial.config_hash for trial in asking.trials}),
        ask_again=lambda: _ask_again(backends, sweep, asking),
        workers=workers,
        sink=progress,
        settings=settings,
    )
    try:
        if search is not None:
            parts = _with_search(parts, search, url=backends.database.url)
        end = driver.run(coordinator_program(parts))
        asking.withdrawn = end.withdrawn
        return end
    finally:
        workers.close()
        signals.close()
        if launcher is not None:
            launcher.close()
        driver.close()


def _with_search(parts: CoordinatorParts, plan: SearchPlan, *, url: str) -> CoordinatorParts:
    # Here and not above: a plain grid has no use for Optuna, whose import takes longer than a short trial.
    from sweeper.coordinator.mirror_opening import study_mirroring
    from sweeper.coordinator.search_opening import search_turns

    chooser = Chooser(
        database=parts.database,
        sweep_id=parts.sweep.sweep_id,
        coordinator_id=parts.coordinator_id,
        asker_id=parts.asker.asker_id,
    )
    return replace(
        parts,
        search=search_turns(
            plan, parts.sweep, chooser, clock=parts.clock, workers=parts.settings.workers, note=parts.sink.note
        ),
        mirror=study_mirroring(
            url,
            parts.sweep,
            database=parts.database,
            background=parts.background,
            clock=parts.clock,
            random_hex=system_random_hex,
            note=parts.sink.note,
        ),
    )


def _ask_again(backends: Backends, sweep: Sweep, asking: Asking) -> None:
    """One try of all that was done before to ask; the coordinator repeats it when ledger or store are away.

    Requests do not vanish in normal life, so this is also the moment to see whether the ledger was put back, before any
    worker is given something on its word.
    """
    database = backends.database
    if find_sweep(database, sweep.name) is None:
        raise UserError(
            f"The sweep {sweep.name!r} is gone from the ledger.", remedy="Run the same command again to begin it anew."
        )
    notice_rollback(database, backends.store, sweep.sweep_id, SystemClock())
    register_asker(database, sweep.sweep_id, asking.record)
    if sweep.search is None:
        request_trials(database, sweep.sweep_id, asking.record.asker_id, asking.trials)
    else:
        request_open(database, sweep.sweep_id, asking.record.asker_id)
    settle_sweep(database, sweep.sweep_id)


def run_worker(
    places: Places,
    *,
    sweep_name: str,
    spawner: Spawner,
    settings: WorkerSettings,
    fallback: Spawner | None = None,
    parent_fd: int | None = None,
    gpu: str | None = None,
    output_subdir: Callable[[Grant], str] | None = None,
) -> int:
    """Live as a worker of one sweep, from the main thread of a process of its own; give its exit status.

    Args:
        places: ledger and store; opened here, after `spawner` (this worker's own warm parent) was forked.
        sweep_name: the sweep, which must exist.
        spawner: starts children in role `child`.
        fallback: starts them as fresh interpreters once forking proved impossible; None when `spawner` does already.
        settings: see there.
        parent_fd: read end of a pipe whose other end the starting process holds; None when started by hand.
        gpu: the device of this worker's trials.
        output_subdir: a trial's own directory below the sweep's; its number by default.

    Raises:
        UserError: ledger, store or sweep cannot be used.
    """
    clock = SystemClock()
    parent = LauncherGone.watch() if parent_fd is None else ParentGone(parent_fd)
    notices: list[NoticeSource] = [SignalNotices(signal.Signals[name] for name in settings.signals)]
    if parent is not None:
        notices.append(parent)
    driver = SelectorDriver(clock, notices)
    worker_id = WorkerId(system_random_hex())
    lock = LifeLock.acquire(places.home, worker_id)
    try:
        database = open_database(places.database_url or ensure_server(places.home))
        if parent_fd is None:
            _await_sweep(database, sweep_name)
        facts = _patiently(lambda: _facts(database, sweep_name))
    except UserError as error:
        lock.close()
        if parent_fd is None:
            raise
        log.error("worker cannot start: %s", error)  # a command watches: it starts the next one, or gives up
        return EXIT_BAD_INPUT
    store = open_store(places.store_url)
    if parent_fd is None:  # nobody has looked before this worker
        _notice_rollback_if_the_store_answers(database, store, facts.sweep_id, clock)
    parts = WorkerParts(
        database=database,
        store=store,
        clock=clock,
        background=ThreadBackground(driver.wake),
        start_child=ChildStarter(spawner, fallback=fallback, clock=clock, lock_fd=lock.fileno()).start,
        random_hex=system_random_hex,
        jitter=random.SystemRandom().random,
        holder_is_dead=_holder_is_dead,
        output_subdir=output_subdir or _by_number,
        sweep=facts,
        record=_record(worker_id, lock, settings),
        settings=replace(settings, gpu=gpu or settings.gpu),
    )
    end = driver.run(worker_program(parts))
    if end.clean:  # otherwise the file stays: that its lock can be taken is the proof that we are gone
        lock.close()
    database.close()
    return end.status


def _notice_rollback_if_the_store_answers(
    database: Database, store: ObjectStore, sweep_id: SweepId, clock: Clock
) -> None:
    try:
        notice_rollback(database, store, sweep_id, clock)
    except (TransientError, StoreDenied) as error:  # the worker bears that; coordinators look again and again
        log.warning("cannot tell whether the ledger is behind the store: %s", error)


def _await_sweep(database: Database, name: str) -> None:
    """Give a command that is being started beside this worker the time to write its sweep's row."""
    for turn in range(SWEEP_WAIT_TURNS):
        if _patiently(lambda: find_sweep(database, name)) is not None:
            return
        if turn == 0:
            log.warning("no sweep named %r in this ledger yet; waiting for its command to begin", name)
        threading.Event().wait(SWEEP_WAIT_TURN_S)


def _facts(database: Database, name: str) -> SweepFacts:
    sweep = require_sweep(database, name)
    if sweep.state is SweepState.CANCELLED:
        raise UserError(f"The sweep {name!r} is cancelled.", remedy=f"`sweeper retry {name}` takes it up again.")
    try:
        return facts_of(sweep)
    except ValueError as error:
        raise UserError(
            f"The search of sweep {name!r} cannot be read: {error}.",
            remedy="Run the worker with the version of sweeper that the sweep's command runs with.",
        ) from error


def _record(worker_id: WorkerId, lock: LifeLock, settings: WorkerSettings) -> WorkerRecord:
    return WorkerRecord(
        worker_id=worker_id,
        host=socket.gethostname(),
        boot_id=boot_id(),
        lock_path=str(lock.path),
        lock_inode=lock.inode,
        pid=os.getpid(),
        pool=settings.pool,
    )


def _patiently(work: Callable[[], T]) -> T:
    """Do what a command does before it has anything to go back to; a replay-safe call is tried for a while.

    Raises:
        UserError: ledger or store do not answer, or do not let us in.
    """
    for delay_s in START_DELAYS_S:
        try:
            return work()
        except TransientError as error:
            log.warning("no answer yet, trying again: %s", error)
            threading.Event().wait(delay_s)
        except (StoreDenied, CheckpointCorrupt) as error:
            raise UserError(str(error), remedy="`sweeper doctor` looks closer.") from error
    try:
        return work()
    except TransientError as error:
        raise UserError(str(error), remedy="Run the same command again when it answers.") from error


def _holder_is_dead(holder: Holder) -> bool:
    return holder_is_dead(Path(holder.lock_path), holder.lock_inode, holder.boot_id)


def _asker_is_dead(asker: AskerRecord) -> bool:
    return holder_is_dead(Path(asker.lock_path), asker.lock_inode, asker.boot_id)


def _by_number(grant: Grant) -> str:
    return str(grant.number)


def _sweep_mapping(sweep: Sweep) -> Mapping[str, Json]:
    """The copy of the row that the store keeps; no credentials, nothing that names code to run but the task's name."""
    return {
        "sweep_id": sweep.sweep_id,
        "name": sweep.name,
        "task": sweep.task,
        "source_digest": sweep.source_digest,
        "sweep_dir": sweep.sweep_dir,
        "store_url": sweep.store_url,
        "seed": sweep.seed,
        "search": None if sweep.search is None else dict(sweep.search),
        "identity": dict(sweep.identity),
        "created_at": sweep.created_at.isoformat(),
        "retry": {
            "max_crashes": sweep.retry.max_crashes,
            "max_no_progress": sweep.retry.max_no_progress,
            "backoff_s": sweep.retry.backoff_s,
            "backoff_max_s": sweep.retry.backoff_max_s,
        },
        "checkpoint_keep": sweep.checkpoint_keep,
    }
