"""How often a worker that has nothing to do looks for a trial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SHARE: Final = 0.1
"""Of the time without a trial: what a proposal that comes meanwhile waits at most. So short trials of a sequential
search lose little, and a worker that is idle for long asks once in `most_s`."""


class Idling:
    """Pauses between two looks, short at first; each shortened by up to a half so that crowds spread out."""

    def __init__(self, jitter: Callable[[], float], *, first_s: float, most_s: float) -> None:
        self._jitter = jitter
        self._first_s = first_s
        self._most_s = most_s
        self._since_s: float | None = None
        self._look_due_s = float("-inf")

    def looks_around(self, now_s: float) -> bool:
        """Whether it is time to see to the dead, and whether the sweep is over: at once, then once in `most_s`."""
        if now_s < self._look_due_s:
            return False
        self._look_due_s = now_s + self._most_s
        return True

    def next_s(self, now_s: float) -> float:
        """Give the next pause in seconds."""
        if self._since_s is None:
            self._since_s = now_s
        pause_s = min(max((now_s - self._since_s) * SHARE, self._first_s), self._most_s)
        return pause_s * (1.0 - 0.5 * self._jitter())

    def reset(self) -> None:
        """There was a trial."""
        self._since_s = None
        self._look_due_s = float("-inf")
