"""FAIR: the retry rule in SQL is the one in `model.retry`."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeper.ledger.database import Database
from sweeper.ledger.leases import RELEASES, expire_dead_holder, renew_lease
from sweeper.model.retry import Counters, RetryPolicy, after_attempt
from sweeper.model.states import AttemptOutcome, TrialState
from tests.ledger.world import LEASE_S, START, Clock, World, hex_id

POLICIES = st.builds(
    RetryPolicy,
    max_crashes=st.integers(1, 5),
    max_no_progress=st.integers(1, 5),
    backoff_s=st.sampled_from([0.0, 0.25, 1.0, 30.0]),
    backoff_max_s=st.sampled_from([0.0, 2.0, 60.0]),
)
COUNTERS = st.builds(Counters, crashes=st.integers(0, 6), no_progress=st.integers(0, 6))


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    policy=POLICIES,
    before=COUNTERS,
    outcome=st.sampled_from(sorted(RELEASES | {AttemptOutcome.LOST})),
    child_started=st.booleans(),
    head_moved=st.booleans(),
    jitter=st.sampled_from([0.0, 0.5]),
)
def test_an_ended_attempt_does_in_sql_what_the_model_says(
    db: Database,
    policy: RetryPolicy,
    before: Counters,
    outcome: AttemptOutcome,
    child_started: bool,
    head_moved: bool,
    jitter: float,
) -> None:
    world = World.build(db, Clock(), retry=policy, name=hex_id())
    world.add(1)
    world.sql(
        "UPDATE sweeper.trials SET crashes = :c, no_progress = :n WHERE sweep_id = :s",
        c=before.crashes,
        n=before.no_progress,
        s=world.sweep_id,
    )
    grant = world.lease()
    if head_moved:
        world.save(grant, 1, 10)
    version = world.row().version
    if outcome is AttemptOutcome.LOST:
        renew_lease(db, grant.lease, lease_s=LEASE_S, child_started=child_started)
        state = expire_dead_holder(db, grant.lease, reason="dead")
    else:
        state = world.release(grant.lease, outcome, child_started=child_started, delay_jitter=jitter)
    expected = after_attempt(policy, before, outcome, child_started=child_started, head_moved=head_moved)
    trial, row = world.trial(), world.row()
    assert state is trial.state is expected.state
    assert Counters(crashes=trial.crashes, no_progress=trial.no_progress) == expected.counters
    crashed = outcome is AttemptOutcome.CRASHED and expected.state is TrialState.PENDING
    wait = timedelta(seconds=expected.delay_s * (1 + jitter))
    assert trial.available_at == (START + wait if crashed else None)
    assert (row.reason or "") == expected.reason
    assert (row.finished_at is not None) == expected.state.final
    assert row.version == version + (expected.state is not TrialState.PENDING)
    assert (row.crash_host is not None) == (outcome is AttemptOutcome.CRASHED)
    assert world.attempts()[0].outcome is outcome


def test_a_thousand_crashes_do_not_overflow_the_backoff(db: Database) -> None:
    world = World.build(db, Clock(), retry=RetryPolicy(max_crashes=10**6, max_no_progress=10**6))
    world.add(1)
    world.sql("UPDATE sweeper.trials SET crashes = 5000")
    world.release(world.lease().lease, AttemptOutcome.CRASHED)
    assert world.trial().available_at == START + timedelta(seconds=60)


@pytest.mark.parametrize("outcome", [AttemptOutcome.COMPLETED, AttemptOutcome.PRUNED])
def test_a_result_leaves_the_counters_alone(world: World, outcome: AttemptOutcome) -> None:
    world.add(1)
    world.sql("UPDATE sweeper.trials SET crashes = 2, no_progress = 3")
    world.complete(world.lease().lease)
    expected = after_attempt(
        RetryPolicy(), Counters(crashes=2, no_progress=3), outcome, child_started=True, head_moved=False
    )
    assert (world.trial().crashes, world.trial().no_progress) == (
        expected.counters.crashes,
        expected.counters.no_progress,
    )
