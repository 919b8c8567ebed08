"""What a watcher of a sweep is shown, and the sink that shows it: a live display, lines of text, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sweeper.ids import TrialNumber
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.trial import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningTrial:
    """A trial that some worker holds now."""

    number: TrialNumber
    worker: str
    """The worker's host and the start of its id."""
    step: int
    last_value: float | None
    """Value of the newest report."""
    checkpoint_age_s: float | None
    """Seconds since the last committed checkpoint of any attempt; None before the first."""
    attempt: int
    """1 for the first attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProgress:
    """What only a search has, at one moment."""

    proposed: int
    """Numbers given so far, repeats and refused proposals too."""
    n_trials: int
    repeats: int = 0
    """Proposals that gave a config which another number had first."""
    best: tuple[TrialNumber, float] | None = None
    """The best completed trial and its value; None before the first, and with several objectives."""
    mirror_lag: int | None = None
    """Trials that the Optuna study does not show as they are; None where there is none, or it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepProgress:
    """A sweep at one moment."""

    name: str
    counts: Mapping[TrialState, int]
    """Requested trials by state; states without any may be absent."""
    running: tuple[RunningTrial, ...]
    evictions: int
    """Attempts that ended evicted, since the sweep began."""
    not_requested: int = 0
    """Unfinished trials that no live command asks for."""
    search: SearchProgress | None = None
    """None for a plain grid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A trial that changed state, as one line tells it."""

    number: TrialNumber
    state: TrialState
    outcome: AttemptOutcome | None = None
    """How the attempt that caused it ended; None when one began."""
    reason: str = ""
    attempt: int = 0
    step: int | None = None
    value: Json = None
    """The result as tagged JSON, for a completed trial."""
    overrides: tuple[str, ...] = field(default=())


class ProgressSink(Protocol):
    """Told by a coordinator what happens. Calls return at once and never raise for what the terminal does."""

    def transition(self, event: Transition) -> None:
        """A trial changed state."""
        ...

    def turn(self, snapshot: SweepProgress) -> None:
        """One turn of the coordinator is over and this is how things stand."""
        ...

    def note(self, text: str) -> None:
        """Say something that a person should know once (nothing to train, a fallback taken, …)."""
        ...

    def close(self) -> None:
        """Show nothing more; leave the terminal as it was."""
        ...
