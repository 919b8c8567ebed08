"""What an ended child means for its trial: a pure reading of its last words, its exit status and our own deeds."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import assert_never

from sweeper.model.messages import Failed, Finished, Invalid, Refused, Stopped
from sweeper.model.states import AttemptOutcome, ObjectiveFault, SearchStopKind, TrialState
from sweeper.model.trial import Json, Report, SearchStop
from sweeper.model.waits import ExitStatus

TAIL_LINES = 40

LastMessage = Refused | Finished | Invalid | Stopped | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a child ended, before anything is made of it."""

    last: LastMessage | None
    status: ExitStatus | None
    """None: it had to be left alive at a deadline (its group was killed)."""
    killed_for: str | None
    """Why the worker itself killed it, if it did."""
    step: int
    safe_points: int
    started: bool
    reported: bool
    output_tail: str
    unsafe: tuple[Report, ...] = ()
    """Reports that a result has to take along: the ledger does not have them yet, or its server could forget them."""
    stop: SearchStop | None = None
    """What the search had decided by then, and is to be obeyed."""
    undecided: bool = False
    """Whether the function returned, but a notice came before the search had decided on its last report, and nothing
    may depend on that (SAME)."""
    unsaved: bool = False
    """Whether it left for a pause, but what it saved there, or could have, is not in the ledger, and nothing may depend
    on that (SAME)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How an attempt ended. `state` is set when that also ends the trial by this worker's own commit."""

    outcome: AttemptOutcome
    reason: str
    state: TrialState | None = None
    value: Json = None
    error: str | None = None
    exit_code: int | None = None
    fault: ObjectiveFault | None = None
    """Why the value that was returned is no objective."""
    ends_at: int | None = None
    """Step of the report at which the search ended the trial; its value is the result."""
    sick: bool = False
    """Died so early and so speechless that the machine may be to blame."""


def judge(ending: Ending, *, draining: bool, drain_reason: str) -> Verdict:
    """Give the attempt's outcome. The child's last message decides; without one it is a crash, whatever the status.

    Two exceptions, neither the trial's fault (FAIR): a child that dies while its machine is being taken was evicted,
    and so was one that this worker killed at the deadline.

    The search may have decided otherwise. A trial that it pruned ended at that report, whatever came of the training
    beyond it. One that it paused is paused however it was asked to leave, except that a function that returned is
    complete.
    """
    code = _exit_code(ending)
    stop = ending.stop
    if stop is not None and stop.kind is SearchStopKind.PRUNE and not isinstance(ending.last, Refused):
        return obeying(stop, exit_code=code)
    match ending.last:
        case Finished() | Invalid() if ending.undecided:
            reason = f"{drain_reason}; the search had not decided on the last report"
            return Verdict(outcome=AttemptOutcome.EVICTED, reason=reason, exit_code=code)
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
                fault=None if ending.last.fault is None else ObjectiveFault(ending.last.fault),
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


def obeying(stop: SearchStop, *, exit_code: int | None = None) -> Verdict:
    """Give the end of an attempt at what the search decided."""
    match stop.kind:
        case SearchStopKind.PRUNE:
            return Verdict(
                outcome=AttemptOutcome.PRUNED,
                state=TrialState.PRUNED,
                reason=f"pruned {_where(stop)}",
                ends_at=stop.step,
                exit_code=exit_code,
            )
        case SearchStopKind.PAUSE:
            return Verdict(outcome=AttemptOutcome.PAUSED, reason=f"paused {_where(stop)}", exit_code=exit_code)
        case _:
            assert_never(stop.kind)


def _where(stop: SearchStop) -> str:
    return f"{stop.reason}, at the report of step {stop.step}" if stop.reason else f"at the report of step {stop.step}"


def _stopped(ending: Ending, last: Stopped, drain_reason: str, code: int | None) -> Verdict:
    """A prune is the function's own here: those of the search were dealt with before."""
    if last.kind == "pruned":
        return Verdict(
            outcome=AttemptOutcome.PRUNED,
            state=TrialState.PRUNED,
            reason="the function raised sweeper.Pruned",
            exit_code=code,
        )
    if ending.stop is not None and ending.unsaved:  # the stop stays, and the next holder comes to that report again
        reason = f"{drain_reason or 'the store did not take it'}; the state at the pause is not saved"
        return Verdict(outcome=AttemptOutcome.EVICTED, reason=reason, exit_code=code)
    if ending.stop is not None:
        return obeying(ending.stop, exit_code=code)
    if last.kind == "paused":
        text = "the function raised sweeper.Paused, but nobody would take the trial up again"
        return Verdict(outcome=AttemptOutcome.CRASHED, reason=text, error=text, exit_code=code)
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
