"""The one table of transitions, and what the statements and CHECKs allow."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
import sqlalchemy as sa

from sweeper.errors import LeaseLost
from sweeper.ids import CoordinatorId, SweepId
from sweeper.ledger.commands import cancel_sweep, cancel_trials, retry_trials
from sweeper.ledger.database import Database
from sweeper.ledger.enqueued import enqueue
from sweeper.ledger.leases import RELEASES, expire_dead_holder
from sweeper.ledger.pins import pin_head
from sweeper.ledger.promotions import promote_trial, prune_paused
from sweeper.ledger.results import RESULTS, commit_result
from sweeper.ledger.sweeps import acquire_coordinator
from sweeper.model.search import Decision, DecisionKind
from sweeper.model.states import TRANSITIONS, AttemptOutcome, PinReason, PointSource, TrialState
from sweeper.model.trial import Lease
from tests.ledger.search_world import SearchWorld
from tests.ledger.world import LEASE_S, World, hex_id

NOBODY = Lease(trial_id=0, fence=1, lease_id="0" * 32)  # type: ignore[arg-type]


def reach(world: World, state: TrialState) -> Lease:
    """Bring trial 0 into the state; gives its last lease."""
    world.add(1)
    if state is TrialState.PENDING:
        return NOBODY
    lease = world.lease().lease
    match state:
        case TrialState.COMPLETED | TrialState.PRUNED | TrialState.FAILED:
            end(world, lease, state, dict(sorted(RESULTS))[state])
        case TrialState.PAUSED:
            world.release(lease, AttemptOutcome.PAUSED)
        case TrialState.CANCELLED:
            cancel_trials(world.db, world.sweep_id, None)
    return lease


def end(world: World, lease: Lease, state: TrialState, outcome: AttemptOutcome) -> None:
    commit_result(
        world.db, lease, state=state, outcome=outcome, result=None, reason="r", outcome_key=None, outcome_hash=None,
        outcome_stored=False,
    )  # fmt: skip


def expire(world: World, lease: Lease) -> None:
    world.awake(3 * LEASE_S)
    world.sql("UPDATE sweeper.pulse SET awake_since = 'epoch'")
    world.expire()


def lease_it(world: World, lease: Lease) -> None:
    world.clock.advance(1000)
    world.try_lease()


STATEMENTS: dict[str, list[Callable[[World, Lease], object]]] = {
    "lease_trial": [lease_it],
    "commit_result": [
        lambda world, lease, pair=pair: end(world, lease, *pair)  # type: ignore[misc]
        for pair in sorted(RESULTS)
    ],
    "release_trial": [
        lambda world, lease, outcome=outcome: world.release(lease, outcome)  # type: ignore[misc]
        for outcome in sorted(RELEASES)
    ],
    "expire_leases": [expire, lambda world, lease: expire_dead_holder(world.db, lease, reason="dead")],
    "cancel_trials": [
        lambda world, lease: cancel_trials(world.db, world.sweep_id, None),
        lambda world, lease: cancel_sweep(world.db, world.sweep_id),
    ],
    "retry_trials": [lambda world, lease: retry_trials(world.db, world.sweep_id, [0], from_zero=False)],
    "promote_trial": [lambda world, lease: promote_trial(world.db, *lead(world), about(world), priority=1)],
    "prune_paused": [
        lambda world, lease: prune_paused(world.db, *lead(world), about(world).trial_id, result=0.5, reason="r")
    ],
}


def lead(world: World) -> tuple[SweepId, CoordinatorId, int]:
    coordinator_id = CoordinatorId(hex_id())
    fence = acquire_coordinator(world.db, world.sweep_id, coordinator_id, lease_s=30)
    assert fence is not None
    return world.sweep_id, coordinator_id, fence


def about(world: World) -> Decision:
    return Decision(
        trial_id=world.trial().trial_id, number=0, lineage=0, kind=DecisionKind.PROMOTE, step=1, action="go_on"
    )


def run_all(world: World, state: TrialState, name: str) -> set[TrialState]:
    """Where the statement leads from the state, over all its variants, with lenient and with exhausted limits."""
    found = set()
    for variant in STATEMENTS[name]:
        for crashes in (0, 50):
            world.sql("DELETE FROM sweeper.sweeps")
            fresh = World.build(world.db, world.clock)
            lease = reach(fresh, state)
            fresh.sql("UPDATE sweeper.trials SET crashes = :c, no_progress = :c", c=crashes)
            with suppress(LeaseLost):
                variant(fresh, lease)
            found.add(fresh.trial().state)
    return found - {state}


@pytest.mark.parametrize("state", TrialState)
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_leads_where_the_table_says_and_nowhere_else(world: World, state: TrialState, name: str) -> None:
    row = TRANSITIONS[state]
    assert run_all(world, state, name) == {target for target, names in row.items() if name in names.split(", ")}


def test_the_table_names_no_statement_but_these() -> None:
    named = {name for row in TRANSITIONS.values() for names in row.values() for name in names.split(", ")}
    assert named == set(STATEMENTS)


def test_a_history_that_is_cut_leads_out_of_every_final_state(world: World) -> None:
    """Beyond the table, which is about one lineage: `retry --from-zero` begins the next."""
    for state in TrialState:
        world.sql("DELETE FROM sweeper.sweeps")
        fresh = World.build(world.db, world.clock)
        reach(fresh, state)
        retry_trials(world.db, fresh.sweep_id, [0], from_zero=True)
        trial = fresh.trial()
        assert (trial.state, trial.lineage) == ((TrialState.PENDING, 1) if state.final else (state, 0))


FINAL = {"completed", "pruned", "failed", "cancelled"}
NOT_RUNNING = {*TrialState} - {"running"}
ASSIGNMENTS: list[tuple[str, set[str]]] = [
    ("state = 'sleeping'", set()),
    ("lease_id = 'x'", {"running"}),
    ("lease_id = NULL", NOT_RUNNING),
    ("worker_id = 'w'", {"running"}),
    ("worker_id = NULL", NOT_RUNNING),
    ("lease_expires_at = 'epoch'", {"running"}),
    ("lease_expires_at = NULL", NOT_RUNNING),
    ("finished_at = 'epoch'", FINAL),
    ("finished_at = NULL", {*TrialState} - FINAL),
    ("result = '1'", {"completed", "pruned"}),
    ("outcome_key = 'k', outcome_hash = 'h'", FINAL),
    ("outcome_key = 'k', outcome_hash = NULL", set()),
    ("outcome_key = NULL, outcome_hash = NULL, outcome_stored = true", set()),
    ("head_step = 3", set()),
    ("crash_host = 'h'", set()),
    ("attempts = 0", NOT_RUNNING),
    ("fence = 0", {"pending", "paused", "failed", "cancelled"}),
    ("fence = -1", set()),
    ("fault = 'nan'", {"failed"}),
    ("fault = 'tired'", set()),
    ("stop_kind = 'prune', stop_step = 1, stop_reason = ''", {"pending", "running", "pruned"}),
    ("stop_kind = 'rest', stop_step = 1, stop_reason = ''", set()),
    ("stop_kind = 'pause', stop_step = NULL, stop_reason = ''", set()),
    ("stop_step = 1", set()),
    ("stop_reason = 'because'", set()),
]
"""An assignment to a trial's row, and the states whose CHECKs let it pass."""


@pytest.mark.parametrize("state", TrialState)
def test_a_row_cannot_contradict_its_state(world: World, db: Database, state: TrialState) -> None:
    reach(world, state)
    with db.transaction() as connection:
        for assignment, allowed in ASSIGNMENTS:
            change = sa.text(f"UPDATE sweeper.trials SET {assignment}")
            with connection.begin_nested() as savepoint:
                if state in allowed:
                    connection.execute(change)
                else:
                    with pytest.raises(sa.exc.IntegrityError, match="trials_"):
                        connection.execute(change)
                savepoint.rollback()


def test_rows_of_a_search_say_only_what_can_be(search: SearchWorld) -> None:
    grant = search.pause(0)
    search.promote(grant)
    pin_head(search.db, grant.lease.trial_id, PinReason.RUNG)
    enqueue(search.db, search.sweep_id, [("k", {})], source=PointSource.CONFIG)
    for table, change in (
        ("decisions", "kind = 'whim'"),
        ("decisions", "action = 'dither'"),
        ("pins", "reason = 'sentiment'"),
        ("enqueued", "source = 'nowhere'"),
        ("enqueued", "number = 1, refused = 'both'"),
    ):
        with pytest.raises(sa.exc.IntegrityError, match=f"{table}_"):
            search.sql(f"UPDATE sweeper.{table} SET {change}")


def test_an_attempt_ends_once_and_wholly(world: World) -> None:
    world.add(1)
    world.lease()
    for change in (
        "outcome = 'lost'",
        "ended_at = 'epoch'",
        "outcome = 'lost', ended_at = 'epoch', led_to = 'running'",
        "outcome = 'tired', ended_at = 'epoch', led_to = 'pending'",
    ):
        with pytest.raises(sa.exc.IntegrityError):
            world.sql(f"UPDATE sweeper.attempts SET {change}")


def test_a_config_has_one_trial_in_a_sweep_and_a_lease_one_trial(db: Database, world: World) -> None:
    world.add(2)
    lease = world.lease().lease
    with pytest.raises(sa.exc.IntegrityError, match="trials_sweep_id_config_hash_key"):
        world.sql("UPDATE sweeper.trials SET config_hash = 'same'")
    world.lease()
    with pytest.raises(sa.exc.IntegrityError, match="trials_lease"):
        world.sql("UPDATE sweeper.trials SET lease_id = :lease", lease=lease.lease_id)
