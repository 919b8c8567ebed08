"""What is said of a failed trial when it fails, beside the progress display: hash, overrides, and its traceback."""

from __future__ import annotations

import logging
from collections.abc import Callable

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

    def transition(self, event: Transition) -> None:
        """Pass it on; a failure is logged with its traceback as well."""
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

    def close(self) -> None:
        """Pass it on."""
        self._sink.close()
