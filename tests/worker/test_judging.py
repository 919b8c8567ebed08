"""What an ended child means: the last message decides; without one it is a crash, whatever the status (FAIR)."""

from __future__ import annotations

import pytest

from sweeper.model.messages import Failed, Finished, Invalid, Refused, Stopped
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.waits import ExitStatus
from sweeper.worker.conversation import Ending, LastMessage
from sweeper.worker.ending import judge


def _ending(last: LastMessage | None, status: ExitStatus | None = None, **rest: object) -> Ending:
    facts = {
        "killed_for": None, "step": 3, "safe_points": 3, "started": True, "reported": True, "last_value": 0.5,
        "output_tail": "last words",
    }  # fmt: skip
    return Ending(last=last, status=status or ExitStatus(code=0), **(facts | rest))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("last", "outcome", "state"),
    [
        (Finished(value=1, step=3), AttemptOutcome.COMPLETED, TrialState.COMPLETED),
        (Invalid(detail="return the objective", step=3), AttemptOutcome.INVALID, TrialState.FAILED),
        (Stopped(kind="pruned", step=3), AttemptOutcome.PRUNED, TrialState.PRUNED),
        (Stopped(kind="paused", step=3), AttemptOutcome.PAUSED, None),
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
