"""One attempt, in a straight line: evidence, what the search decided, restore, child, ending, commit.

Every way out is here: a lost lease stops at once and writes nothing more (FENCE); a store that does not let us read
ends as `environment`, which is nobody's crash (FAIR); a notice before the child runs gives the trial back unharmed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sweeper.errors import LeaseLost, LedgerUnavailable, StoreDenied, StoreUnavailable
from sweeper.ids import TrialId
from sweeper.ledger.highwater import note_rollback
from sweeper.ledger.reads import reports_of
from sweeper.model.config_hash import hash_text
from sweeper.model.messages import Start
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.trial import Grant, Report
from sweeper.model.waits import Child, Program, Wait
from sweeper.worker.committing import commit_end, release
from sweeper.worker.conversation import Conversation
from sweeper.worker.ending import Verdict, judge, obeying
from sweeper.worker.evidence import adopt_evidence
from sweeper.worker.keeping import Interrupted, LeaseKeeper
from sweeper.worker.restoring import Beginning, Restored, restore_head
from sweeper.worker.saving import Saving
from sweeper.worker.state import WorkerState
from sweeper.worker.stopping import holds

log = logging.getLogger("sweeper.worker")

GONE_S = 30.0
"""How long a killed child, or an upload from its memory, is waited for before its memory is left to the system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """What the worker's own life learns from an attempt."""

    trial_id: TrialId
    outcome: AttemptOutcome | None
    """None when the lease was lost."""
    sick: bool = False
    """Ended so early that this machine may be to blame."""
    store_away: bool = False
    """The store must answer a probe before the next lease."""
    failed: bool = False
    """The trial is failed for good."""
    reason: str = ""


def attempt_program(worker: WorkerState, grant: Grant) -> Program[AttemptEnd]:
    """Bring one granted trial as far as it will go here.

    Raises:
        GaveUp: the ledger did not answer before the drain's deadline; the lease is left to expire.
    """
    keeper = LeaseKeeper(worker, grant)
    log.info("trial leased trial=%d fence=%d attempt=%d", grant.number, grant.lease.fence, grant.attempt)
    try:
        if (yield from adopt_evidence(worker, keeper, grant)):
            return AttemptEnd(trial_id=grant.lease.trial_id, outcome=AttemptOutcome.COMPLETED)
        if (stopped := (yield from _stopped_before_start(worker, grant))) is not None:
            step = 0 if grant.head is None else grant.head.step
            return (yield from _settle(worker, keeper, grant, stopped, step=step, started=False, has_reports=True))
        beginning = yield from restore_head(worker, keeper, grant)
        if worker.drain.active:  # a notice that came while the grant was waited for
            beginning.close()
            raise Interrupted
        return (yield from _train(worker, keeper, grant, beginning))
    except LeaseLost as error:
        return _lost(worker, grant, error)
    except Interrupted:
        verdict = Verdict(outcome=AttemptOutcome.EVICTED, reason=worker.drain.reason)
    except (StoreUnavailable, StoreDenied) as error:
        verdict = Verdict(outcome=AttemptOutcome.ENVIRONMENT, reason=f"store: {error}")
    return (yield from _give_back(worker, grant, verdict, store_away=verdict.outcome is AttemptOutcome.ENVIRONMENT))


def _stopped_before_start(worker: WorkerState, grant: Grant) -> Program[Verdict | None]:
    """Give the end of an attempt that needs no child, since the search decided while nobody held the trial.

    A pause whose state was lost is taken at once, and what is lost is trained again only if the trial is promoted. But
    where nothing may depend on timing, training comes to that report first: the function might return before it pauses.
    """
    stop = grant.stop
    if stop is None:
        return None
    reports = yield from worker.insist(lambda: reports_of(worker.parts.database, grant.lease.trial_id))
    trained_to = float("inf")
    if worker.parts.sweep.reports_wait:
        trained_to = -1 if grant.head is None else grant.head.step
    return obeying(stop) if holds(stop, reports, trained_to=trained_to) else None


def _train(worker: WorkerState, keeper: LeaseKeeper, grant: Grant, beginning: Beginning) -> Program[AttemptEnd]:
    restored = beginning.restored
    try:
        child = worker.parts.start_child(
            start_message(worker, grant, restored), None if restored is None else restored.file.fileno()
        )
    finally:
        beginning.close()
    saving = Saving(worker, grant, child, previous=None if restored is None else restored.ref)
    try:
        ending = yield from Conversation(worker, keeper, grant, child, saving).run()
        # Also after its exit: loader workers outlive a killed child, and must not meet the next one on the GPU.
        yield from _put_away(worker, child, saving)
        verdict = judge(ending, draining=worker.drain.active, drain_reason=worker.drain.reason)
        verdict = replace(verdict, reason="; ".join(text for text in (verdict.reason, beginning.note) if text))
        unsafe = ending.unsafe
        if unsafe and verdict.outcome in (AttemptOutcome.PRUNED, AttemptOutcome.CRASHED):
            # A deadline came before they were told, and this may be the trial's end; a result takes them along.
            yield from worker.insist(lambda: keeper.report(ending.unsafe, durable=True))
            unsafe = ()
        return (
            yield from _settle(
                worker, keeper, grant, verdict,
                step=ending.step, started=ending.started, has_reports=ending.reported or grant.attempt > 1,
                unsafe=unsafe,
            )
        )  # fmt: skip
    except LeaseLost as error:
        yield from _put_away(worker, child, saving)
        return _lost(worker, grant, error)


def start_message(worker: WorkerState, grant: Grant, restored: Restored | None) -> Start:
    """Say what the child is to run."""
    settings, sweep = worker.parts.settings, worker.parts.sweep
    owner = None if restored is None else restored.ref.config_hash
    return Start(
        number=grant.number,
        config_hash=hash_text(grant.config_text),  # an heir's config is another one than its trial's name
        overrides=list(grant.overrides),
        sweep_dir=sweep.sweep_dir,
        output_subdir=worker.parts.output_subdir(grant),
        attempt=grant.attempt,
        fence=grant.lease.fence,
        seed=sweep.seed,
        threads=grant.threads or settings.threads,
        gpu=settings.gpu,
        every_s=settings.checkpoint.every_s,
        restore=None if restored is None else restored.as_mapping(),
        first_seq=1,
        objectives=sweep.objectives,
        reports_wait=sweep.reports_wait or sweep.rungs is not None,
        inherited=owner not in (None, grant.config_hash),
    )


def _settle(
    worker: WorkerState, keeper: LeaseKeeper, grant: Grant, verdict: Verdict, *, step: int, started: bool,
    has_reports: bool, unsafe: Sequence[Report] = (),
) -> Program[AttemptEnd]:  # fmt: skip
    if verdict.state is not None:
        yield from commit_end(worker, keeper, grant, verdict, step=step, has_reports=has_reports, unsafe=unsafe)
        state = verdict.state
    else:
        state = yield from release(worker, grant, verdict, step=step, child_started=started)
    return AttemptEnd(
        trial_id=grant.lease.trial_id,
        outcome=verdict.outcome,
        sick=verdict.sick,
        failed=state is TrialState.FAILED,
        reason=verdict.reason,
    )


def _give_back(worker: WorkerState, grant: Grant, verdict: Verdict, *, store_away: bool) -> Program[AttemptEnd]:
    """Release a trial whose child never started."""
    try:
        yield from release(worker, grant, verdict, step=None, child_started=False)
    except LeaseLost as error:
        return _lost(worker, grant, error)
    return AttemptEnd(
        trial_id=grant.lease.trial_id, outcome=verdict.outcome, store_away=store_away, reason=verdict.reason
    )


def _put_away(worker: WorkerState, child: Child, saving: Saving) -> Program[None]:
    """End the child's group and free its memory once nobody reads it any more."""
    child.kill()
    give_up_s = worker.now_s() + GONE_S
    while not (gone := child.exited is not None) or any(not future.done() for future in saving.futures):
        if worker.now_s() >= min(give_up_s, worker.drain.deadline_s):
            return
        children = () if gone else (child,)
        futures = tuple(future for future in saving.futures if not future.done())  # nobody collects one that is
        yield from worker.pause(Wait(until_s=worker.now_s() + 1.0, children=children, futures=futures))
        child.receive()
    child.close()


def _lost(worker: WorkerState, grant: Grant, error: LeaseLost) -> AttemptEnd:
    """Stop. A ledger that does not know the grant at all has lost it, and perhaps more: let it look in the store."""
    if error.unknown:
        try:
            note_rollback(worker.parts.database, grant.sweep_id, seen_fence=grant.lease.fence)
        except LedgerUnavailable as unavailable:  # the coordinator's high-water mark tells it as well
            log.info("rollback not noted trial=%d: %s", grant.number, unavailable)
    level = logging.INFO if error.cancelled else logging.WARNING
    log.log(level, "lease lost trial=%d fence=%d: %s", grant.number, grant.lease.fence, error)
    return AttemptEnd(trial_id=grant.lease.trial_id, outcome=None, reason=str(error))
