"""From ledger rows to what a person is told: one event per transition that was seen."""

from __future__ import annotations

from sweeper.ids import TrialNumber
from sweeper.model.progress import Transition
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.tagged import from_tagged
from sweeper.model.trial import Trial

_OUTCOMES = {
    TrialState.COMPLETED: AttemptOutcome.COMPLETED,
    TrialState.PRUNED: AttemptOutcome.PRUNED,
    TrialState.CANCELLED: AttemptOutcome.CANCELLED,
}


class Teller:
    """Remembers what was told last, for display only; a new one begins by keeping silent about what already is."""

    def __init__(self) -> None:
        self._seen: dict[TrialNumber, tuple[TrialState, int, int]] | None = None

    def transitions(self, trials: list[Trial]) -> list[Transition]:
        """Give what changed of these since they were last given, by number."""
        now = {t.number: (t.state, t.fence, t.crashes) for t in trials}
        if self._seen is None:
            self._seen = now
            return []
        before = self._seen
        told = [
            _event(trial, before.get(trial.number))
            for trial in trials
            if trial.requested or trial.state.final
            if before.get(trial.number) != now[trial.number]
            if trial.number in before or trial.state is not TrialState.PENDING
        ]
        before |= now
        return told


def _event(trial: Trial, before: tuple[TrialState, int, int] | None) -> Transition:
    outcome = _OUTCOMES.get(trial.state)
    reason = ""
    if trial.state is TrialState.FAILED or (trial.state is TrialState.PENDING and before and trial.crashes > before[2]):
        outcome = AttemptOutcome.CRASHED
        reason = _last_word(trial.error or "")
    if trial.state is TrialState.PENDING and before and before[0] is TrialState.PAUSED:
        outcome = AttemptOutcome.PAUSED
    step = trial.step
    if trial.state is TrialState.RUNNING:  # where it begins, not how far it is by the time we look
        step = 0 if trial.head is None or trial.head.fence == trial.fence else trial.head.step
    return Transition(
        number=trial.number,
        state=trial.state,
        outcome=outcome,
        reason=reason,
        attempt=trial.fence,
        step=step,
        value=from_tagged(trial.result) if trial.state is TrialState.COMPLETED else None,
        overrides=trial.overrides,
    )


def _last_word(error: str) -> str:
    """The line of an error that says what it was: the last that is not indented, since messages have several lines."""
    lines = [line for line in error.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if not line[0].isspace()), lines[-1].strip() if lines else "")
