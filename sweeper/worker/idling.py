"""How often a worker that has nothing to do looks for a trial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SHARE: Final = 0.1
"""Of the time without a trial: what a proposal that comes meanwhile waits at most. So short trials of a sequential
search lose little, and a worker that is idle for long asks once in `most_s`."""
LOOK_AFTER_S: Final = 0.1
"""Without a trial for so long it is worth looking whether the sweep is over; where trials are short and many, somebody
is always idle for a moment."""


class Idling:
    """Pauses between two looks, short at first; each shortened by up to a half so that crowds spread out."""

    def __init__(self, jitter: Callable[[], float], *, first_s: float, most_s: float) -> None:
        self._jitter = jitter
        self._first_s = first_s
        self._most_s = most_s
        self._since_s: float | None = None
        self._look_due_s = float("inf")
        self.scarce = False
        """Whether the last trial had to be waited for, so that the next one probably will be too."""

    def found_none(self, now_s: float) -> bool:
        """Take in that there was no trial; whether it is time to see to the dead, and whether the sweep is over."""
        if self._since_s is None:
            self._since_s, self._look_due_s = now_s, now_s + LOOK_AFTER_S
        looks = now_s >= self._look_due_s
        if looks:
            self._look_due_s = now_s + self._most_s
        self.scarce = not looks  # once in a while it is asked in earnest, and so seen by whoever counts workers
        return looks

    def next_s(self, now_s: float) -> float:
        """Give the next pause in seconds."""
        waited_s = 0.0 if self._since_s is None else now_s - self._since_s
        pause_s = min(max(waited_s * SHARE, self._first_s), self._most_s)
        return pause_s * (1.0 - 0.5 * self._jitter())

    def found(self) -> None:
        """Take in that there was a trial."""
        self.scarce = self._since_s is not None
        self._since_s = None
