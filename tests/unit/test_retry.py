"""FAIR: what an ended attempt does to its trial."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sweeper.model.retry import Counters, RetryPolicy, after_attempt
from sweeper.model.states import TRANSITIONS, AttemptOutcome, TrialState

POLICY = RetryPolicy(max_crashes=3, max_no_progress=10, backoff_s=1.0, backoff_max_s=60.0)
UNFAIR = [AttemptOutcome.EVICTED, AttemptOutcome.LOST, AttemptOutcome.ENVIRONMENT]


def test_the_third_crash_fails_the_trial() -> None:
    counters = Counters()
    states = []
    for _ in range(3):
        verdict = after_attempt(POLICY, counters, AttemptOutcome.CRASHED, child_started=True, head_moved=True)
        counters = verdict.counters
        states.append(verdict.state)
    assert states == [TrialState.PENDING, TrialState.PENDING, TrialState.FAILED]
    assert verdict.reason == "crashed 3 times"


def test_crashes_wait_twice_as_long_each_time_up_to_the_limit() -> None:
    policy = RetryPolicy(max_crashes=100, max_no_progress=1000, backoff_s=1.0, backoff_max_s=60.0)
    delays = []
    counters = Counters()
    for _ in range(8):
        verdict = after_attempt(policy, counters, AttemptOutcome.CRASHED, child_started=True, head_moved=True)
        counters = verdict.counters
        delays.append(verdict.delay_s)
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60]
    assert all(before <= after for before, after in pairwise(delays))


@given(st.lists(st.sampled_from(UNFAIR), max_size=200))
def test_evictions_losses_and_environments_never_count_as_crashes(outcomes: list[AttemptOutcome]) -> None:
    counters = Counters(crashes=2)
    for outcome in outcomes:
        verdict = after_attempt(POLICY, counters, outcome, child_started=True, head_moved=True)
        counters = verdict.counters
        assert verdict.state is TrialState.PENDING
        assert verdict.delay_s == 0
    assert counters.crashes == 2


def test_ten_attempts_in_a_row_without_the_head_moving_fail_the_trial() -> None:
    counters = Counters()
    for _ in range(9):
        verdict = after_attempt(POLICY, counters, AttemptOutcome.EVICTED, child_started=True, head_moved=False)
        assert verdict.state is TrialState.PENDING
        counters = verdict.counters
    last = after_attempt(POLICY, counters, AttemptOutcome.LOST, child_started=True, head_moved=False)
    assert last.state is TrialState.FAILED
    assert "without a new checkpoint" in last.reason


def test_a_moved_head_starts_the_count_of_attempts_without_progress_again() -> None:
    verdict = after_attempt(POLICY, Counters(no_progress=9), AttemptOutcome.LOST, child_started=True, head_moved=True)
    assert verdict.counters.no_progress == 0


def test_an_attempt_whose_child_never_started_is_no_evidence_of_a_stuck_trial() -> None:
    verdict = after_attempt(
        POLICY, Counters(no_progress=9), AttemptOutcome.ENVIRONMENT, child_started=False, head_moved=False
    )
    assert verdict.state is TrialState.PENDING
    assert verdict.counters.no_progress == 9


def test_a_result_that_cannot_be_one_fails_at_once() -> None:
    verdict = after_attempt(POLICY, Counters(), AttemptOutcome.INVALID, child_started=True, head_moved=True)
    assert verdict.state is TrialState.FAILED


@given(
    outcome=st.sampled_from(AttemptOutcome),
    crashes=st.integers(0, 5),
    no_progress=st.integers(0, 12),
    child_started=st.booleans(),
    head_moved=st.booleans(),
)
def test_every_verdict_is_a_transition_that_running_may_make(
    outcome: AttemptOutcome, crashes: int, no_progress: int, child_started: bool, head_moved: bool
) -> None:
    verdict = after_attempt(
        POLICY,
        Counters(crashes=crashes, no_progress=no_progress),
        outcome,
        child_started=child_started,
        head_moved=head_moved,
    )
    assert verdict.state in TRANSITIONS[TrialState.RUNNING]
    assert 0 <= verdict.delay_s <= POLICY.backoff_max_s
    assert verdict.counters.crashes - crashes in (0, 1)
