"""Reports and results: what the ledger says ran is what ran, value and type (TRUTH), and it ran once (ONCE)."""

from __future__ import annotations

import math
import sys

import pytest

from sweeper.errors import LeaseLost
from sweeper.ledger.commands import cancel_trials, retry_trials
from sweeper.ledger.reads import reports_of
from sweeper.ledger.results import OutcomeGap, commit_result, outcome_gaps, record_outcome_object, record_reports
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.tagged import from_tagged, to_tagged
from sweeper.model.trial import Grant, Json, Report
from tests.ledger.world import LEASE_S, World


def report(world: World, grant: Grant, *reports: Report) -> None:
    record_reports(world.db, grant.lease, reports, lease_s=LEASE_S)


def values(world: World) -> dict[int, float]:
    return {found.step: found.value for found in reports_of(world.db, world.trial().trial_id)}


@pytest.mark.parametrize(
    "value",
    [0.1 + 0.2, 1e300, 5e-324, sys.float_info.max, -0.0, math.inf, -math.inf, math.nan, 1.0],
)
def test_a_reported_value_comes_back_bit_for_bit(world: World, value: float) -> None:
    world.add(1)
    grant = world.lease()
    report(world, grant, Report(step=2**62, at_step=2**61, value=value, metrics={"acc": value, "n": 1.0}))
    (found,) = reports_of(world.db, world.trial().trial_id)
    assert (found.step, found.at_step) == (2**62, 2**61)
    for back in (found.value, found.metrics["acc"], world.trial().last_value):
        assert back is not None
        assert back.hex() == value.hex()


@pytest.mark.parametrize(
    "value",
    [1, 1.0, True, None, "x", 1e300, 1e16, 2**80, -0.0, math.nan, [1.0, {"a": (1, 2)}], {"$x": b"\x00"}, "\x00"],
)
def test_a_result_comes_back_with_its_type(world: World, value: object) -> None:
    """As jsonb, 1e300 would come back as an integer of 301 digits."""
    world.add(1)
    world.complete(world.lease().lease, to_tagged(value))
    back = from_tagged(world.trial().result)
    assert type(back) is type(value)
    assert repr(back) == repr(value)


def test_the_first_value_of_a_fence_stays_and_a_higher_fence_replaces_it(world: World) -> None:
    world.add(1)
    first = world.lease()
    report(world, first, Report(step=1, at_step=5, value=1.0), Report(step=1, at_step=6, value=2.0))
    report(world, first, Report(step=1, at_step=7, value=3.0))
    world.save(first, 1, 10)
    assert values(world) == {1: 1.0}
    world.release(first.lease)
    second = world.lease()
    report(world, second, Report(step=1, at_step=5, value=4.0))
    report(world, second, Report(step=1, at_step=5, value=5.0))
    assert values(world) == {1: 4.0}


def test_a_grant_deletes_reports_from_beyond_the_head(world: World) -> None:
    """Their own steps say nothing: the unit is the user's."""
    world.add(1)
    first = world.lease()
    report(world, first, Report(step=900, at_step=10, value=1.0), Report(step=1, at_step=11, value=2.0))
    world.save(first, 1, 10)
    world.release(first.lease)
    assert values(world) == {1: 2.0, 900: 1.0}
    world.lease()
    assert values(world) == {900: 1.0}


def test_a_grant_without_a_head_deletes_every_report(world: World) -> None:
    world.add(1)
    first = world.lease()
    report(world, first, Report(step=0, at_step=0, value=1.0))
    world.release(first.lease)
    world.lease()
    assert values(world) == {}


def test_many_reports_at_once(world: World) -> None:
    world.add(1)
    grant = world.lease()
    report(world, grant, *(Report(step=step, at_step=step, value=float(step)) for step in range(2500)))
    assert len(values(world)) == 2500
    assert world.trial().step == 2499


def test_no_reports_are_still_a_heartbeat(world: World) -> None:
    world.add(1)
    grant = world.lease()
    world.clock.advance(20)
    report(world, grant)
    assert (world.row().lease_expires_at - world.clock.now).total_seconds() == LEASE_S


def test_a_result_is_committed_once_and_its_replay_succeeds(world: World) -> None:
    """ONCE."""
    world.add(1)
    grant = world.lease()
    world.complete(grant.lease, 1.5, last_step=77, exit_code=0)
    version = world.row().version
    world.complete(grant.lease, 9.9)
    trial = world.trial()
    assert (trial.state, trial.result, trial.step, trial.worker_id) == (TrialState.COMPLETED, 1.5, 77, None)
    assert (trial.outcome_key, world.row().outcome_hash, trial.outcome_stored) == ("k", "h", True)
    assert world.row().version == version
    (attempt,) = world.attempts()
    assert (attempt.outcome, attempt.reason, attempt.last_step) == (AttemptOutcome.COMPLETED, "returned", 77)
    assert world.try_lease() is None


def test_a_result_takes_along_the_reports_that_the_ledger_lacks(world: World) -> None:
    world.add(1)
    first = world.lease()
    report(world, first, Report(step=1, at_step=1, value=1.0), Report(step=2, at_step=2, value=2.0))
    world.save(first, 1, 10)
    world.release(first.lease)
    second = world.lease()
    report(world, second, Report(step=2, at_step=2, value=3.0), Report(step=3, at_step=3, value=4.0))
    unsafe = [
        Report(step=1, at_step=1, value=5.0),
        Report(step=3, at_step=9, value=6.0),
        Report(step=4, at_step=4, value=7.0, metrics={"acc": 0.5}),
        Report(step=4, at_step=4, value=8.0),
    ]
    world.complete(second.lease, 1.5, reports=unsafe)
    assert values(world) == {1: 5.0, 2: 3.0, 3: 4.0, 4: 7.0}
    world.complete(second.lease, 1.5, reports=[*unsafe, Report(step=5, at_step=5, value=9.0)])
    assert 5 not in values(world)
    assert reports_of(world.db, world.trial().trial_id)[-1].metrics == {"acc": 0.5}


def test_the_reports_of_a_result_that_comes_too_late_are_not_written(world: World) -> None:
    """FENCE."""
    world.add(1)
    first = world.lease()
    world.expire_all()
    second = world.lease()
    with pytest.raises(LeaseLost):
        world.complete(first.lease, 1.0, reports=[Report(step=1, at_step=1, value=1.0)])
    assert values(world) == {}
    world.complete(second.lease, 2.0)


def test_a_pruned_trials_end_takes_no_reports_along(world: World) -> None:
    """Where its history ends is read from those that are there."""
    world.add(1)
    grant = world.lease()
    with pytest.raises(ValueError, match="before its end"):
        commit_result(
            world.db, grant.lease, state=TrialState.PRUNED, outcome=AttemptOutcome.PRUNED, result=1.0, reason="pruned",
            outcome_key="k", outcome_hash="h", outcome_stored=True, reports=[Report(step=1, at_step=1, value=1.0)],
        )  # fmt: skip
    assert world.trial().state is TrialState.RUNNING


def test_a_late_completion_of_an_earlier_attempt_changes_nothing(world: World) -> None:
    """FENCE."""
    world.add(1)
    first = world.lease()
    world.expire_all()
    second = world.lease()
    with pytest.raises(LeaseLost):
        world.complete(first.lease, 1.0)
    assert world.trial().lease_id == second.lease.lease_id
    world.complete(second.lease, 2.0)
    with pytest.raises(LeaseLost):
        world.complete(first.lease, 1.0)
    assert world.trial().result == 2.0


def test_an_invalid_result_fails_the_trial_at_once(world: World) -> None:
    world.add(1)
    grant = world.lease()
    commit_result(
        world.db, grant.lease, state=TrialState.FAILED, outcome=AttemptOutcome.INVALID, result="x", reason="no number",
        error="returned 'x'", outcome_key=None, outcome_hash=None, outcome_stored=False,
    )  # fmt: skip
    trial = world.trial()
    assert (trial.state, trial.result, trial.error, trial.crashes) == (TrialState.FAILED, None, "returned 'x'", 0)


def test_an_adopted_result_names_where_it_came_from(world: World) -> None:
    world.add(1)
    grant = world.lease()
    world.complete(grant.lease, adopted_from="trials/x/3-abc/outcome.json")
    assert world.attempts()[0].adopted_from == "trials/x/3-abc/outcome.json"


@pytest.mark.parametrize(
    ("state", "outcome"),
    [(TrialState.COMPLETED, AttemptOutcome.EVICTED), (TrialState.CANCELLED, AttemptOutcome.CANCELLED)],
)
def test_a_result_is_not_an_ending_that_holders_cannot_bring_about(
    world: World, state: TrialState, outcome: AttemptOutcome
) -> None:
    world.add(1)
    lease = world.lease().lease
    with pytest.raises(ValueError, match="cannot end"):
        commit_result(
            world.db, lease, state=state, outcome=outcome, result=None, reason="", outcome_key=None, outcome_hash=None,
            outcome_stored=False,
        )  # fmt: skip


def test_the_mirrors_version_counts_ends_and_decisions_but_no_heartbeats(world: World) -> None:
    world.add(1)
    versions = [world.row().version]

    def note() -> None:
        versions.append(world.row().version - sum(versions[:1]))

    grant = world.lease()
    report(world, grant, Report(step=1, at_step=1, value=1.0))
    world.save(grant, 1, 1)
    world.release(grant.lease)
    note()
    world.release(world.lease().lease, AttemptOutcome.CRASHED)
    note()
    world.clock.advance(120)
    world.complete(world.lease().lease)
    note()
    retry_trials(world.db, world.sweep_id, [0], from_zero=True)
    note()
    assert versions == [1, 0, 0, 1, 2]


def gap_of(world: World) -> OutcomeGap | None:
    gaps = outcome_gaps(world.db, world.sweep_id, limit=10)
    return gaps[0] if gaps else None


def test_a_final_state_without_its_object_is_a_gap_until_the_object_is_named(world: World) -> None:
    world.add(1)
    grant = world.lease()
    report(world, grant, Report(step=1, at_step=1, value=math.nan, metrics={"a": 1.0}))
    assert gap_of(world) is None
    world.complete(grant.lease, 1.5, outcome_key=None, outcome_hash=None, outcome_stored=False, last_step=9)
    gap = gap_of(world)
    assert gap is not None
    assert (gap.number, gap.lineage, gap.fence, gap.lease_id) == (0, 0, 1, grant.lease.lease_id)
    assert (gap.state, gap.value, gap.step, gap.reason) == (TrialState.COMPLETED, 1.5, 9, "returned")
    assert (len(gap.reports), gap.reports[0].metrics, gap.params) == (1, {"a": 1.0}, {})
    for key in ("key", "another"):
        record_outcome_object(world.db, gap, key=key, hash_="digest")
    assert gap_of(world) is None
    assert (world.trial().outcome_key, world.trial().outcome_stored) == ("key", True)


def test_a_trial_that_never_ran_leaves_no_object(world: World) -> None:
    world.add(1)
    cancel_trials(world.db, world.sweep_id, None)
    assert gap_of(world) is None


def test_failures_that_nobody_could_write_down_belong_under_the_last_attempts_prefix(world: World) -> None:
    world.add(1)
    for _ in range(10):
        grant = world.lease()
        world.release(grant.lease)
    gap = gap_of(world)
    assert gap is not None
    assert (gap.state, gap.fence, gap.lease_id) == (TrialState.FAILED, 10, grant.lease.lease_id)
    assert gap.reason == "10 attempts in a row without a new checkpoint"


def test_an_object_of_a_history_that_was_cut_is_not_named(world: World) -> None:
    world.add(1)
    world.complete(world.lease().lease, outcome_key=None, outcome_hash=None, outcome_stored=False)
    gap = gap_of(world)
    assert gap is not None
    retry_trials(world.db, world.sweep_id, [0], from_zero=True)
    record_outcome_object(world.db, gap, key="key", hash_="digest")
    world.complete(world.lease().lease, outcome_key=None, outcome_hash=None, outcome_stored=False)
    record_outcome_object(world.db, gap, key="key", hash_="digest")
    assert world.trial().outcome_key is None


def test_an_object_of_an_earlier_end_is_not_named_after_a_retry(world: World) -> None:
    """TRUTH: a chore that took long must not hang the failure's object on the result that came after it."""
    world.add(1)
    for _ in range(3):
        world.clock.advance(120)
        world.release(world.lease().lease, AttemptOutcome.CRASHED)
    gap = gap_of(world)
    assert gap is not None
    assert gap.state is TrialState.FAILED
    retry_trials(world.db, world.sweep_id, [0], from_zero=False)
    world.complete(world.lease().lease, outcome_key=None, outcome_hash=None, outcome_stored=False)
    record_outcome_object(world.db, gap, key="the failure's", hash_="digest")
    assert world.trial().outcome_key is None
    later = gap_of(world)
    assert later is not None
    assert later.state is TrialState.COMPLETED


def test_json_of_every_kind_survives_as_text(world: World) -> None:
    value: Json = {"a": [1, 1.0, {"$float": "nan"}, "é\u2028"], "b": None}
    world.add(1)
    world.complete(world.lease().lease, value)
    assert world.trial().result == value
