"""What the store knows that this ledger does not: a config that already finished is adopted, not trained (ONCE)."""

from __future__ import annotations

import logging

from sweeper.checkpoint.outcomes import find_outcomes
from sweeper.errors import StoreUnavailable
from sweeper.ledger.results import commit_result, record_reports
from sweeper.model.outcome import Outcome
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.trial import Grant
from sweeper.model.waits import Program
from sweeper.worker.keeping import Interrupted, LeaseKeeper
from sweeper.worker.patience import Backoff
from sweeper.worker.state import WorkerState

log = logging.getLogger("sweeper.worker")

MAX_LOOKS = 5
ADOPTED = {
    TrialState.COMPLETED: AttemptOutcome.COMPLETED,
    TrialState.PRUNED: AttemptOutcome.PRUNED,
}
"""A failure is never adopted: the retry that leases the trial again exists to try once more."""

Found = tuple[str, str, Outcome]


def adopt_evidence(worker: WorkerState, keeper: LeaseKeeper, grant: Grant) -> Program[bool]:
    """If an earlier attempt of this lineage left its outcome, commit it under our own lease and say True.

    Raises:
        StoreUnavailable, StoreDenied: cannot tell; training now could repeat a finished trial, so the attempt ends.
        LeaseLost, Interrupted: see `LeaseKeeper.attend`.
    """
    if not grant.look_for_evidence:
        return False
    found = newest_adoptable(grant, (yield from _look(worker, keeper, grant)))
    if found is None:
        return False
    key, digest, outcome = found
    database = worker.parts.database
    # The grant deleted those from beyond the head, for training that would make them again.
    reports, lease_s = outcome.read_reports(), worker.parts.settings.lease.lease_s
    if reports:
        yield from worker.insist(lambda: record_reports(database, grant.lease, reports, lease_s=lease_s))
    yield from worker.insist(
        lambda: commit_result(
            database,
            grant.lease,
            state=outcome.state,
            outcome=ADOPTED[outcome.state],
            result=outcome.value,
            reason=outcome.reason,
            outcome_key=key,
            outcome_hash=digest,
            outcome_stored=True,
            last_step=outcome.step,
            adopted_from=key,
        )
    )
    log.info("outcome adopted trial=%d fence=%d from fence %d", grant.number, grant.lease.fence, outcome.fence)
    return True


def newest_adoptable(grant: Grant, found: list[Found]) -> Found | None:
    """Choose among outcomes: same sweep, config and lineage, completed or pruned, highest fence."""
    fitting = [
        (key, digest, outcome)
        for key, digest, outcome in found
        if outcome.sweep_id == grant.sweep_id
        and outcome.config_hash == grant.config_hash
        and outcome.lineage == grant.lineage
        and outcome.state in ADOPTED
    ]
    return max(fitting, key=lambda item: (item[2].fence, item[0]), default=None)


def _look(worker: WorkerState, keeper: LeaseKeeper, grant: Grant) -> Program[list[Found]]:
    store = worker.parts.store
    backoff = Backoff(worker.parts.jitter, first_s=0.5)
    while True:
        work = worker.parts.background.submit(lambda: find_outcomes(store, grant.sweep_id, grant.config_hash))
        try:
            return (yield from keeper.attend(work))
        except StoreUnavailable as error:
            if backoff.failures + 1 >= MAX_LOOKS:
                raise
            log.warning("store does not answer, looking again trial=%d: %s", grant.number, error)
            yield from keeper.idle(worker.now_s() + backoff.next_s())
            if worker.drain.active:
                raise Interrupted from error
