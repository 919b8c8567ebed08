"""Does a script resume exactly? Trained straight, and again with a save, a death and a resume in a fresh process.

Both sides save at nearly every save point. What a save holds (registered state, random state, loader position with
the digest of delivered batches) is compared by fingerprint at every step that both saved, then reports and result.
The sides run under different hash seeds, since a resumed process has another one too.
"""

from __future__ import annotations

import os
import select
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from sweeper.model.messages import (
    LAST_MESSAGES,
    Failed,
    Finished,
    Invalid,
    Refused,
    Reported,
    Restore,
    Saved,
    Sealed,
    Start,
    Stopped,
    ToWorker,
)
from sweeper.model.staging import Layout, SaveFacts
from sweeper.model.waits import Child, ExitStatus
from sweeper.trial.side_by_side import MAX_NAMED, Place, SealedCopy, Side, differences, fingerprint

StartChild = Callable[[Start, int | None, int], Child]
"""Starts a child: what to run, a restore file's descriptor or None, and the hash seed (`PYTHONHASHSEED`)."""
EVERY_S: Final = 1e-9
"""Cadence that makes a save due at every save point."""
LOOK_S: Final = 0.5
UNSTEADY: Final = "two undisturbed runs differ as well, so this is not about resuming:"
UNRESTORED: Final = (
    "two undisturbed runs agree: something that matters is not restored "
    "(a local variable? an object that was not given to sweeper.resume?)"
)
_STRAIGHT_SEED, _RESUMED_SEED, _AFTER_SEED = 1, 2, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The answer: whether the script resumes exactly, and the lines that say so."""

    exact: bool
    lines: tuple[str, ...]


def check_resume(start_child: StartChild, start: Start, *, tell: Callable[[str], None]) -> Finding:
    """Run both sides and compare them; takes two to three times as long as the script.

    Args:
        start_child: starts each process.
        start: the job; its output directory gets one folder for each side.
        tell: says what is being done, for people.
    """
    start = replace(start, every_s=EVERY_S, trace=True)
    tell("training straight through")
    straight = observe(start_child(_into(start, "straight"), None, _STRAIGHT_SEED))
    problem = _no_result(straight)
    if problem:
        return Finding(exact=False, lines=problem)
    if not any(not final for _, _, final in straight.saves):
        text = "it never saves: an interrupted trial of this script restarts from zero (see sweeper.resume)"
        return Finding(exact=False, lines=(text,))
    # Within an epoch if possible: there a local variable is lost, which the end of an epoch would hide.
    places = sorted(straight.inside) or sorted(place for place in straight.saves if not place[2])
    middle = places[len(places) // 2]
    tell(f"training again, killed after the save at step {middle[0]}")
    resumed, copy = _interrupted(start_child, _into(start, "resumed"), middle, tell)
    if copy is None:
        return Finding(exact=False, lines=("it ended before it saved in the second run: the two runs differ",))
    problem = _no_result(resumed)
    if problem:
        return Finding(exact=False, lines=(f"resumed from step {copy.place[0]}:", *problem))
    found = differences(straight, resumed, after=copy.place)
    if not found:
        return Finding(exact=not resumed.inexact, lines=_praise(straight, resumed, copy.place))
    tell("they differ; training straight through once more, to see whether it agrees with itself")
    again = observe(start_child(_into(start, "again"), None, _RESUMED_SEED))
    own = differences(straight, again, after=(-1, -1, False))
    blame = (UNRESTORED,) if not own else (UNSTEADY, *own[:MAX_NAMED])
    return Finding(exact=False, lines=(*found[:MAX_NAMED], *blame))


def _into(start: Start, folder: str) -> Start:
    return replace(start, output_subdir=f"{folder}/{start.output_subdir}")


def _interrupted(
    start_child: StartChild, start: Start, middle: Place, tell: Callable[[str], None]
) -> tuple[Side, SealedCopy | None]:
    """Run until the first save at or after `middle`, kill the process, and resume in another one."""
    first = observe(start_child(start, None, _RESUMED_SEED), stop_at=middle)
    copy = first.stopped_at
    if copy is None:
        return first, None
    tell(f"resuming from step {copy.place[0]} in a fresh process")
    restore = Restore(
        step=copy.place[0],
        seq=copy.message.seq,
        layout_offset=copy.message.layout_offset,
        layout_bytes=copy.message.layout_bytes,
    )
    mapping = {name: getattr(restore, name) for name in ("step", "seq", "layout_offset", "layout_bytes")}
    with tempfile.TemporaryFile() as file:
        file.write(copy.content)
        file.flush()
        second = observe(
            start_child(replace(start, restore=mapping, attempt=2, fence=start.fence + 1), file.fileno(), _AFTER_SEED)
        )
    before = [report for report in first.reports if report.at_step <= copy.place[0]]
    second.reports = before + second.reports
    return second, copy


def observe(child: Child, *, stop_at: Place | None = None) -> Side:
    """Serve a child until it ends, or until its first save at or after `stop_at`, when it is killed."""
    side = Side()
    try:
        while True:
            exited = child.exited
            if any(_take(child, message, side, stop_at) for message in child.receive()):
                break
            if exited is not None:
                side.exited = exited
                break
            _wait(child)
        side.output = child.output_tail()
    finally:
        child.kill()
        for _ in range(100):
            if child.exited is not None:
                break
            child.receive()
            _wait(child, LOOK_S / 10)
        child.close()
    return side


def _wait(child: Child, limit_s: float = LOOK_S) -> None:
    watch = select.poll()
    for descriptor in child.filenos():
        watch.register(descriptor, select.POLLIN)
    watch.poll(limit_s * 1000)


def _take(child: Child, message: ToWorker, side: Side, stop_at: Place | None) -> bool:
    """Note what a message says; whether the child is to be killed now."""
    match message:
        case Sealed():
            facts = message.facts
            final = isinstance(facts["position"], dict) and bool(facts["position"].get("final"))
            place = (int(facts["step"]), int(facts["epoch"]), final)
            if isinstance(facts["position"], dict) and facts["position"].get("batch"):
                side.inside.add(place)
            staged = child.staged()
            end = message.layout_offset + message.layout_bytes
            layout = Layout.from_bytes(staged[message.layout_offset : end])
            side.saves[place] = dict(fingerprint(layout, staged))
            side.inexact.update(SaveFacts(**facts).inexact_reasons)
            if stop_at is not None and place >= stop_at and not final:
                side.stopped_at = SealedCopy(place=place, message=message, content=bytes(staged[:end]))
            staged.release()
            child.send(Saved(seq=message.seq, ok=True))
        case Reported():
            side.reports.append(message)
        case _ if isinstance(message, LAST_MESSAGES):
            side.last = message
        case _:
            pass
    return side.stopped_at is not None


def _no_result(side: Side) -> tuple[str, ...]:
    """Say why a side has no result to compare; nothing when it has."""
    match side.last:
        case Finished():
            return ()
        case Failed(summary=summary, traceback=traceback):
            return (f"the script failed: {summary}", traceback.rstrip())
        case Refused(reason=reason, detail=detail):
            return (f"the script could not start ({reason}): {detail}",)
        case Invalid(detail=detail):
            return (f"the script returned what cannot be a result: {detail}",)
        case Stopped(kind=kind):
            return (f"the script stopped: {kind}",)
        case _:
            return (f"the script's process ended without a word: {_words(side.exited)}", side.output.rstrip())


def _words(exited: ExitStatus | None) -> str:
    if exited is None:
        return "it was killed"
    return f"signal {signal.Signals(exited.signal).name}" if exited.signal else f"status {exited.code}"


def _praise(straight: Side, resumed: Side, place: Place) -> tuple[str, ...]:
    common = [key for key in straight.saves.keys() & resumed.saves.keys() if key >= place]
    compared = f"state and random state at {len(common)} save points after it, {len(straight.reports)} reports"
    lines = [f"resumed from step {place[0]}, bit for bit as if nothing had happened: {compared} and the result"]
    if resumed.inexact:
        lines = [f"the same this time, but not promised: {reason}" for reason in sorted(resumed.inexact)]
    return tuple(lines)


def with_hash_seed(seed: int) -> None:
    """Let interpreters that this process starts from now on hash text with this seed."""
    os.environ["PYTHONHASHSEED"] = str(seed)
