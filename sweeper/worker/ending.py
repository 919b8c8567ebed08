"""What an ended child means for its trial: a pure reading of its last words, its exit status and our own deeds."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import assert_never

from sweeper.model.messages import Failed, Finished, Invalid, Refused, Stopped
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.tagged import to_tagged
from sweeper.model.trial import Json
from sweeper.worker.conversation import Ending

TAIL_LINES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How an attempt ended. `state` is set when that also ends the trial by this worker's own commit."""

    outcome: AttemptOutcome
    reason: str
    state: TrialState | None = None
    value: Json = None
    error: str | None = None
    exit_code: int | None = None
    sick: bool = False
    """Died so early and so speechless that the machine may be to blame."""


def judge(ending: Ending, *, draining: bool, drain_reason: str) -> Verdict:
    """Give the attempt's outcome. The child's last message decides; without one it is a crash, whatever the status.

    Two exceptions, neither the trial's fault (FAIR): a child that dies while its machine is being taken was evicted,
    and so was one that this worker killed at the deadline.
    """
    code = _exit_code(ending)
    match ending.last:
        case Finished():
            return Verdict(
                outcome=AttemptOutcome.COMPLETED,
                state=TrialState.COMPLETED,
                reason="the function returned",
                value=ending.last.value,
                exit_code=code,
            )
        case Invalid():
            return Verdict(
                outcome=AttemptOutcome.INVALID,
                state=TrialState.FAILED,
                reason=ending.last.detail,
                error=ending.last.detail,
                exit_code=code,
            )
        case Stopped():
            return _stopped(ending, ending.last, drain_reason, code)
        case Failed():
            return Verdict(
                outcome=AttemptOutcome.CRASHED,
                reason=_failure(ending.last),
                error=_raised(ending.last.traceback, ending.output_tail),
                exit_code=code,
                sick=ending.last.category == "import",
            )
        case Refused():
            return _refused(ending, ending.last, code)
        case None:
            return _speechless(ending, draining, drain_reason, code)
        case _:
            assert_never(ending.last)


def _stopped(ending: Ending, last: Stopped, drain_reason: str, code: int | None) -> Verdict:
    if last.kind == "pruned":
        return Verdict(
            outcome=AttemptOutcome.PRUNED,
            state=TrialState.PRUNED,
            reason="pruned",
            value=to_tagged(ending.last_value),
            exit_code=code,
        )
    if last.kind == "paused":
        return Verdict(outcome=AttemptOutcome.PAUSED, reason="paused", exit_code=code)
    return Verdict(outcome=AttemptOutcome.EVICTED, reason=drain_reason or "asked to stop", exit_code=code)


def _refused(ending: Ending, last: Refused, code: int | None) -> Verdict:
    """The trial never ran, so it is nobody's crash (FAIR).

    That holds for a config that composes differently here, too: other config files on this machine must not fail a
    trial that another worker can run. This worker closes itself when it happens again and again.
    """
    return Verdict(
        outcome=AttemptOutcome.ENVIRONMENT,
        reason=f"{last.reason}: {last.detail}"[:1000],
        error=_with_tail(last.detail, ending.output_tail),
        exit_code=code,
        sick=True,
    )


def _speechless(ending: Ending, draining: bool, drain_reason: str, code: int | None) -> Verdict:
    if draining:
        return Verdict(outcome=AttemptOutcome.EVICTED, reason=drain_reason, exit_code=code)
    reason = ending.killed_for or _death(ending)
    return Verdict(
        outcome=AttemptOutcome.CRASHED,
        reason=reason,
        error=_with_tail(reason, ending.output_tail),
        exit_code=code,
        sick=ending.safe_points == 0 and ending.killed_for is None,
    )


def _failure(last: Failed) -> str:
    match last.category:
        case "memory":
            return f"out of memory: {last.summary}"
        case "import":
            return f"import failed: {last.summary}"
        case _:
            return last.summary


def _death(ending: Ending) -> str:
    status = ending.status
    if status is None:
        return "the child was lost"
    if status.signal is None:
        return f"exited with {status.code} without a word"
    try:
        name = signal.Signals(status.signal).name
    except ValueError:
        name = str(status.signal)
    hint = " (often the kernel, out of memory)" if status.signal == signal.SIGKILL else ""
    return f"killed by signal {name}{hint}"


def _exit_code(ending: Ending) -> int | None:
    status = ending.status
    if status is None:
        return None
    return status.code if status.signal is None else -status.signal


def _with_tail(text: str, tail: str) -> str:
    lines = "\n".join(tail.splitlines()[-TAIL_LINES:])
    return f"{text.rstrip()}\n--- last output ---\n{lines}" if lines else text


def _raised(traceback: str, tail: str) -> str:
    """What was printed last, then the traceback, which so ends the text; once, though the child prints it too."""
    printed = tail.rstrip().removesuffix(traceback.strip()).rstrip()
    lines = "\n".join(printed.splitlines()[-TAIL_LINES:])
    return f"--- last output ---\n{lines}\n--- error ---\n{traceback.strip()}" if lines else traceback
