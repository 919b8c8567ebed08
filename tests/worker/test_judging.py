"""What an ended child means: the last message decides; without one it is a crash, whatever the status (FAIR)."""

from __future__ import annotations

import pytest

from sweeper.model.messages import Failed, Finished, Invalid, Refused, Stopped
from sweeper.model.states import AttemptOutcome, ObjectiveFault, SearchStopKind, TrialState
from sweeper.model.trial import SearchStop
from sweeper.model.waits import ExitStatus
from sweeper.worker.ending import Ending, LastMessage, judge


def _ending(last: LastMessage | None, status: ExitStatus | None = None, **rest: object) -> Ending:
    facts = {
        "killed_for": None, "step": 3, "safe_points": 3, "started": True, "reported": True,
        "output_tail": "last words",
    }  # fmt: skip
    return Ending(last=last, status=status or ExitStatus(code=0), **(facts | rest))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("last", "outcome", "state"),
    [
        (Finished(value=1, step=3), AttemptOutcome.COMPLETED, TrialState.COMPLETED),
        (Invalid(detail="return the objective", step=3), AttemptOutcome.INVALID, TrialState.FAILED),
        (Stopped(kind="pruned", step=3), AttemptOutcome.PRUNED, TrialState.PRUNED),
        (Stopped(kind="paused", step=3), AttemptOutcome.CRASHED, None),
        (Stopped(kind="evicted", step=3), AttemptOutcome.EVICTED, None),
        (Failed(category="error", summary="E", traceback="T", step=3), AttemptOutcome.CRASHED, None),
        (Refused(reason="config", detail="differs"), AttemptOutcome.ENVIRONMENT, None),
        (Refused(reason="start", detail="no memory"), AttemptOutcome.ENVIRONMENT, None),
        (None, AttemptOutcome.CRASHED, None),
    ],
)
def test_the_last_message_decides(last: LastMessage | None, outcome: AttemptOutcome, state: TrialState | None) -> None:
    verdict = judge(_ending(last), draining=False, drain_reason="")
    assert (verdict.outcome, verdict.state) == (outcome, state)


PRUNE = SearchStop(kind=SearchStopKind.PRUNE, step=2, reason="by the pruner")
PAUSE = SearchStop(kind=SearchStopKind.PAUSE, step=2)
ENDS: list[LastMessage | None] = [
    Finished(value=1, step=3),
    Invalid(detail="return the objective", step=3),
    Stopped(kind="pruned", step=3),
    Stopped(kind="evicted", step=3),
    Failed(category="error", summary="E", traceback="T", step=3),
    None,
]


@pytest.mark.parametrize("last", ENDS)
@pytest.mark.parametrize("draining", [False, True])
def test_a_trial_that_the_search_pruned_ended_at_that_report_whatever_came_of_it_beyond(
    last: LastMessage | None, *, draining: bool
) -> None:
    """SAME, FAIR: also a crash beyond that point is nobody's crash, and a returned value nobody's result."""
    verdict = judge(_ending(last, stop=PRUNE), draining=draining, drain_reason="signal")
    assert (verdict.outcome, verdict.state) == (AttemptOutcome.PRUNED, TrialState.PRUNED)
    assert (verdict.ends_at, verdict.reason) == (2, "pruned by the pruner, at the report of step 2")


@pytest.mark.parametrize("last", ENDS)
def test_a_pause_is_obeyed_by_whoever_left_as_asked_but_a_function_that_returned_is_complete(
    last: LastMessage | None,
) -> None:
    verdict = judge(_ending(last, stop=PAUSE), draining=False, drain_reason="")
    expected = judge(_ending(last), draining=False, drain_reason="").outcome
    paused = isinstance(last, Stopped) and last.kind != "pruned"
    assert verdict.outcome is (AttemptOutcome.PAUSED if paused else expected)


def test_a_child_that_never_started_leaves_the_decision_to_the_next_grant() -> None:
    verdict = judge(_ending(Refused(reason="start", detail="no memory"), stop=PRUNE), draining=False, drain_reason="")
    assert verdict.outcome is AttemptOutcome.ENVIRONMENT


def test_a_result_that_the_search_may_still_have_pruned_is_not_taken_in_a_drain() -> None:
    """SAME: an undisturbed run would have waited for the decision."""
    verdict = judge(_ending(Finished(value=1, step=3), undecided=True), draining=True, drain_reason="signal: SIGTERM")
    assert (verdict.outcome, verdict.state) == (AttemptOutcome.EVICTED, None)
    assert verdict.reason == "signal: SIGTERM; the search had not decided on the last report"


def test_what_is_wrong_with_an_objective_is_told_by_its_kind() -> None:
    last = Invalid(detail="the function returned NaN: return the objective", step=3, fault="nan")
    assert judge(_ending(last), draining=False, drain_reason="").fault is ObjectiveFault.NAN


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (ExitStatus(code=0), "exited with 0 without a word"),
        (ExitStatus(code=3), "exited with 3 without a word"),
        (ExitStatus(code=None, signal=11), "killed by signal SIGSEGV"),
        (ExitStatus(code=None, signal=9), "killed by signal SIGKILL (often the kernel, out of memory)"),
    ],
)
def test_a_speechless_death_says_how(status: ExitStatus, reason: str) -> None:
    verdict = judge(_ending(None, status), draining=False, drain_reason="")
    assert verdict.reason == reason
    assert verdict.error is not None
    assert verdict.error.endswith("last words")


def test_categories_are_told_apart() -> None:
    memory = Failed(category="memory", summary="CUDA", traceback="", step=0)
    missing = Failed(category="import", summary="No module named x", traceback="", step=0)
    assert judge(_ending(memory), draining=False, drain_reason="").reason == "out of memory: CUDA"
    verdict = judge(_ending(missing), draining=False, drain_reason="")
    assert verdict.reason.startswith("import failed")
    assert verdict.sick


def test_a_child_that_dies_while_its_machine_is_taken_was_evicted() -> None:
    """PR-05: the signal went to the whole process group."""
    status = ExitStatus(code=None, signal=15)
    verdict = judge(_ending(None, status), draining=True, drain_reason="signal: SIGTERM")
    assert (verdict.outcome, verdict.reason) == (AttemptOutcome.EVICTED, "signal: SIGTERM")


def test_only_an_early_speechless_death_makes_the_machine_suspect() -> None:
    assert judge(_ending(None, safe_points=0), draining=False, drain_reason="").sick
    assert not judge(_ending(None, safe_points=1), draining=False, drain_reason="").sick
    user_error = Failed(category="error", summary="E", traceback="T", step=0)
    assert not judge(_ending(user_error, safe_points=0), draining=False, drain_reason="").sick
