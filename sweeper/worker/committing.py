"""The end of an attempt in store and ledger: the outcome object first, then the row (ONCE)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from sweeper.checkpoint.outcomes import write_config, write_outcome
from sweeper.errors import ObjectExists, StoreDenied, StoreUnavailable
from sweeper.ledger.leases import release_trial
from sweeper.ledger.reads import reports_of
from sweeper.ledger.results import commit_result
from sweeper.model.outcome import Outcome
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.tagged import to_tagged
from sweeper.model.trial import Grant, Report
from sweeper.model.waits import Program
from sweeper.worker.conversation import LEAVING_S
from sweeper.worker.ending import Verdict
from sweeper.worker.keeping import Interrupted, LeaseKeeper
from sweeper.worker.patience import Backoff
from sweeper.worker.state import WorkerState
from sweeper.worker.stopping import history_to

log = logging.getLogger("sweeper.worker")


def commit_end(
    worker: WorkerState,
    keeper: LeaseKeeper,
    grant: Grant,
    verdict: Verdict,
    *,
    step: int,
    has_reports: bool,
    unsafe: Sequence[Report] = (),
) -> Program[None]:
    """End the trial: its outcome object, then its result.

    Args:
        worker: whose store and ledger are written.
        keeper: keeps the lease meanwhile.
        grant: the attempt's.
        verdict: how the attempt ended; its `state` is the trial's.
        step: the training step that was reached.
        has_reports: whether the ledger may hold any of this trial.
        unsafe: those of this attempt that it may lack; none for a pruned trial, which were told before.

    A store that is away is waited for (not when a notice comes); then the row is committed without the object, and
    whoever reconciles writes it.

    Raises:
        LeaseLost: nothing was changed; the object, if written, is evidence only.
        GaveUp: the ledger did not answer before the drain's deadline; the object is there for the next holder to adopt.
    """
    assert verdict.state is not None, "only for an end that is the trial's as well"
    database, state = worker.parts.database, verdict.state
    reports: list[Report] = []
    if has_reports:
        reports = yield from worker.insist(lambda: reports_of(database, grant.lease.trial_id))
    if state is TrialState.PRUNED:
        reports, verdict, step = _pruned(verdict, reports, step)
    elif unsafe:
        by_step = {report.step: report for report in (*reports, *unsafe)}
        reports = [by_step[step] for step in sorted(by_step)]
    outcome = outcome_of(grant, state, verdict, step=step, reports=reports)
    stored = yield from _store_outcome(worker, keeper, grant, outcome)
    key, digest = stored or (None, None)
    yield from worker.insist(
        lambda: commit_result(
            database,
            grant.lease,
            state=state,
            outcome=verdict.outcome,
            result=verdict.value,
            reason=verdict.reason,
            error=verdict.error,
            outcome_key=key,
            outcome_hash=digest,
            outcome_stored=stored is not None,
            exit_code=verdict.exit_code,
            last_step=step,
            fault=verdict.fault,
            reports=unsafe,
        )
    )
    log.info("trial ended trial=%d fence=%d state=%s: %s", grant.number, grant.lease.fence, state, verdict.reason)


def _pruned(verdict: Verdict, reports: list[Report], step: int) -> tuple[list[Report], Verdict, int]:
    """History, value and training step of a trial that ends at the report on which that was decided, or at its last."""
    history = list(history_to(reports, verdict.ends_at))
    if not history:
        return history, verdict, step
    last = history[-1]
    at_step = step if verdict.ends_at is None else last.at_step
    return history, replace(verdict, value=to_tagged(last.value)), at_step


def release(
    worker: WorkerState, grant: Grant, verdict: Verdict, *, step: int | None, child_started: bool
) -> Program[TrialState]:
    """Give the trial back. Errors as in `commit_end`."""
    jitter = worker.parts.jitter()
    state = yield from worker.insist(
        lambda: release_trial(
            worker.parts.database,
            grant.lease,
            outcome=verdict.outcome,
            reason=verdict.reason,
            error=verdict.error,
            exit_code=verdict.exit_code,
            last_step=step,
            child_started=child_started,
            delay_jitter=jitter,
        )
    )
    level = logging.WARNING if verdict.outcome is AttemptOutcome.CRASHED else logging.INFO
    log.log(
        level,
        "attempt ended trial=%d fence=%d outcome=%s state=%s: %s",
        grant.number,
        grant.lease.fence,
        verdict.outcome,
        state,
        verdict.reason,
    )
    return state


def outcome_of(grant: Grant, state: TrialState, verdict: Verdict, *, step: int, reports: list[Report]) -> Outcome:
    """Build the outcome object of an end."""
    return Outcome(
        sweep_id=grant.sweep_id,
        config_hash=grant.config_hash,
        number=grant.number,
        lineage=grant.lineage,
        fence=grant.lease.fence,
        lease_id=grant.lease.lease_id,
        state=state,
        reason=verdict.reason,
        value=verdict.value,
        step=step,
        params=grant.params,
        reports=tuple((r.step, r.at_step, to_tagged(r.value), to_tagged(dict(r.metrics))) for r in reports),
    )


def _store_outcome(
    worker: WorkerState, keeper: LeaseKeeper, grant: Grant, outcome: Outcome
) -> Program[tuple[str, str] | None]:
    """Write config and outcome, keeping the lease; None when the store stays away too long."""
    store = worker.parts.store

    def work() -> tuple[str, str]:
        write_config(store, grant.sweep_id, grant.config_hash, grant.lineage, grant.config_text)
        return write_outcome(store, outcome)

    backoff = Backoff(worker.parts.jitter, first_s=0.5)
    give_up_s = worker.now_s() + worker.parts.settings.outcome_patience_s

    def until_s() -> float:
        return worker.drain.deadline_s - LEAVING_S if worker.drain.active else give_up_s

    why = "the store did not answer in time"
    while True:
        try:
            return (yield from keeper.attend(worker.parts.background.submit(work), until_s=until_s))
        except ObjectExists as error:
            log.error("another outcome lies under this attempt's own key trial=%d: %s", grant.number, error)
            return None
        except (StoreUnavailable, StoreDenied, Interrupted) as error:
            why = str(error) or why
            if isinstance(error, Interrupted) or worker.now_s() >= give_up_s or worker.drain.active:
                log.warning("outcome not stored yet trial=%d: %s", grant.number, why)
                return None
            yield from keeper.idle(worker.now_s() + backoff.next_s())
