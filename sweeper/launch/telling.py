"""What is said of failed trials: hash, overrides and traceback when one fails, and what to do about it at the end."""

from __future__ import annotations

import logging
import shlex
from collections import Counter
from collections.abc import Callable, Sequence

from sweeper.ids import TrialNumber
from sweeper.model.progress import ProgressSink, SweepProgress, Transition
from sweeper.model.states import TrialState
from sweeper.model.trial import Trial

log = logging.getLogger("sweeper.launcher")


class FailureLog:
    """A progress sink that also logs each failure when it is seen, and passes everything on."""

    def __init__(self, sink: ProgressSink, look_up: Callable[[TrialNumber], Trial | None]) -> None:
        self._sink = sink
        self._look_up = look_up
        self.happened = False
        """Whether any trial has changed state."""

    def transition(self, event: Transition) -> None:
        """Pass it on; a failure is logged with its traceback as well."""
        self.happened = True
        self._sink.transition(event)
        if event.state is not TrialState.FAILED:
            return
        trial = self._look_up(event.number)
        if trial is not None:
            overrides = " ".join(trial.overrides) or "no overrides"
            error = (trial.error or event.reason or "").rstrip()
            log.error("trial %d failed (config %s, %s)\n%s", trial.number, trial.config_hash[:12], overrides, error)

    def turn(self, snapshot: SweepProgress) -> None:
        """Pass it on."""
        self._sink.turn(snapshot)

    def note(self, text: str) -> None:
        """Pass it on."""
        self._sink.note(text)

    def advise(self, name: str, trials: Sequence[Trial], *, done: bool) -> None:
        """Say what a person should know of a sweep at its command's end: that nothing was left to train, what failed.

        Args:
            name: the sweep's.
            trials: all of them.
            done: whether the command had nothing left to do when it ended.
        """
        if done and trials and not self.happened:
            self.note(nothing_to_run(name, trials))
        if advice := what_failed(name, trials):
            self.note(advice)

    def close(self) -> None:
        """Pass it on."""
        self._sink.close()


def nothing_to_run(name: str, trials: Sequence[Trial]) -> str:
    """Say that a command finds all its trials final."""
    if all(trial.state is TrialState.COMPLETED for trial in trials):
        return f"all {len(trials)} trials of sweep {name!r} are done already: nothing to train"
    counted = Counter(trial.state for trial in trials)
    counts = ", ".join(f"{counted[state]} {state.value}" for state in TrialState if counted[state])
    return f"all {len(trials)} trials of sweep {name!r} have ended before, so nothing is run: {counts}"


def what_failed(name: str, trials: Sequence[Trial]) -> str | None:
    """Say how many of a command's trials failed, and which commands tell why and run them again; None without any."""
    failed = [trial.number for trial in trials if trial.state is TrialState.FAILED]
    if not failed:
        return None
    quoted = shlex.quote(name)
    return (
        f"{len(failed)} of {len(trials)} trials failed: `sweeper show {quoted} {failed[0]}` says why, "
        f"`sweeper retry {quoted}` makes them pending again"
    )
