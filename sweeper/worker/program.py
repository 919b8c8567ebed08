"""A worker's life: register, lease one trial at a time, leave when told to or when nothing is left."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from sweeper.checkpoint.store import probe
from sweeper.errors import LedgerUnavailable, SweeperError
from sweeper.ids import LeaseId, TrialId
from sweeper.ledger.leases import lease_trial, register_worker, retire_worker
from sweeper.ledger.sweeps import find_sweep
from sweeper.model.states import AttemptOutcome, SweepState
from sweeper.model.trial import Grant
from sweeper.model.waits import Program, Wait
from sweeper.worker.attempt import AttemptEnd, attempt_program
from sweeper.worker.idling import Idling
from sweeper.worker.parts import WorkerParts
from sweeper.worker.patience import Backoff
from sweeper.worker.state import GaveUp, WorkerState

log = logging.getLogger("sweeper.worker")

EXIT_DONE = 0
EXIT_SICK = 70
EXIT_EVICTED = 75

MAX_SICK = 2
"""Start-up crashes in a row, on different trials, that close the worker: the machine is likelier to blame."""
MAX_ENVIRONMENT = 3
"""Children in a row that could not be started, on whatever trials, that close the worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEnd:
    """Why a worker left, as its exit status and in words."""

    status: int
    reason: str
    clean: bool = True
    """Whether no lease was left behind."""


def worker_program(parts: WorkerParts) -> Program[WorkerEnd]:
    """Work until a notice comes, the sweep is over, or this machine proves unfit.

    Whoever has this program killed at any point loses at most the work since the last commit: the lease expires, or a
    process on the same host sees the freed lock.
    """
    worker = WorkerState(parts)
    try:
        yield from worker.insist(lambda: register_worker(parts.database, parts.record, sweep_id=parts.sweep.sweep_id))
        end = yield from _work(worker)
    except GaveUp:
        end = WorkerEnd(
            status=EXIT_EVICTED, reason=f"{worker.drain.reason}; the ledger did not answer in time", clean=False
        )
    try:
        retire_worker(parts.database, parts.record.worker_id, reason=end.reason)
    except LedgerUnavailable as error:  # only a courtesy to people who look: the lock proves that we are gone
        log.info("not signed off: %s", error)
    log.info("worker leaves worker=%s: %s", parts.record.worker_id[:8], end.reason)
    return end


def _work(worker: WorkerState) -> Program[WorkerEnd]:
    health = Health()
    floor = 0
    settings = worker.parts.settings
    idling = Idling(worker.parts.jitter, first_s=settings.first_poll_s, most_s=settings.poll_s)
    while not worker.drain.active:
        grant = yield from _lease(worker, floor, scarce=idling.scarce)
        if grant is None:
            if idling.found_none(worker.now_s()) and (yield from _is_over(worker)):
                return WorkerEnd(status=EXIT_DONE, reason="the sweep is over")
            yield from worker.pause(Wait(until_s=worker.now_s() + idling.next_s(worker.now_s())))
            continue
        floor = grant.number
        idling.found()
        end = yield from attempt_program(worker, grant)
        if (complaint := health.learn(end)) is not None:
            log.error("this worker closes itself: %s", complaint)
            return WorkerEnd(status=EXIT_SICK, reason=complaint)
        if end.failed and worker.parts.settings.fail_fast:
            return WorkerEnd(status=EXIT_DONE, reason="a trial failed, and the command stops at the first failure")
        if end.store_away:
            yield from _store_answers(worker)
    return WorkerEnd(status=EXIT_EVICTED, reason=worker.drain.reason)


def _lease(worker: WorkerState, floor: int, *, scarce: bool) -> Program[Grant | None]:
    """Ask for a trial; the number claimed last spares the database a walk past finished rows."""
    parts, settings = worker.parts, worker.parts.settings
    lease_id = LeaseId(parts.random_hex())
    # Repeated with the same id until answered, also in a drain: a grant whose reply was lost must be given back.
    return (
        yield from worker.insist(
            lambda: lease_trial(
                parts.database,
                sweep_id=parts.sweep.sweep_id,
                worker_id=parts.record.worker_id,
                lease_id=lease_id,
                lease_s=settings.lease.lease_s,
                heartbeat_s=settings.lease.heartbeat_s,
                pool=settings.pool,
                host=parts.record.host,
                threads=settings.threads,
                number_floor=floor,
                scarce=scarce,
            )
        )
    )


def _is_over(worker: WorkerState) -> Program[bool]:
    """With nothing to lease: look after the dead, then see whether the sweep still needs workers."""
    parts = worker.parts
    yield from worker.insist(worker.tend)
    sweep = yield from worker.insist(lambda: find_sweep(parts.database, parts.sweep.name))
    return sweep is None or sweep.sweep_id != parts.sweep.sweep_id or sweep.state is not SweepState.ACTIVE


def _store_answers(worker: WorkerState) -> Program[None]:
    """Lease nothing until the store passes a probe: its outage would fail the whole sweep in a minute otherwise."""
    parts = worker.parts
    backoff = Backoff(parts.jitter, first_s=1.0, most_s=parts.settings.probe_max_s)
    while not worker.drain.active:
        yield from worker.pause(Wait(until_s=worker.now_s() + backoff.next_s()))
        future = parts.background.submit(lambda: probe(parts.store))
        while not future.done() and not worker.drain.active:
            yield from worker.pause(Wait(until_s=worker.now_s() + parts.settings.probe_max_s, futures=(future,)))
        if not future.done():
            return
        try:
            future.result()
        except SweeperError as error:
            log.warning("store still fails its probe: %s", error)
            try:
                worker.tend()
            except LedgerUnavailable as unavailable:
                worker.line.refused(worker.now_s(), unavailable)
        else:
            log.info("store answers again")
            return


class Health:
    """Counts the signs that this machine, and not the trials, is at fault."""

    def __init__(self) -> None:
        self._sick_on: list[TrialId] = []
        self._environment = 0

    def learn(self, end: AttemptEnd) -> str | None:
        """Take an attempt's end; give the complaint when the worker should close."""
        if end.outcome is AttemptOutcome.ENVIRONMENT and not end.store_away:
            self._environment += 1
        elif not end.store_away:
            self._environment = 0
        if not end.sick:
            self._sick_on.clear()
        elif end.trial_id not in self._sick_on:
            self._sick_on.append(end.trial_id)
        if len(self._sick_on) >= MAX_SICK:
            return f"{len(self._sick_on)} different trials in a row died at their start; last: {end.reason}"
        if self._environment >= MAX_ENVIRONMENT:
            return f"{self._environment} trials in a row could not be started; last: {end.reason}"
        return None
