"""How long after the beginning of a turn the next begins: soon while things happen, never so soon that it is a load."""

from __future__ import annotations

from typing import Final

GROWTH: Final = 1.5
"""Per quiet turn, where nobody waits for this coordinator."""
STEADY_GROWTH: Final = 1.05
"""Per quiet turn of a search, where a worker may have nothing to do until the next proposal: the pause stays a
twentieth of the time since something last happened, so that is all that short trials lose, and long ones cost the
ledger no more than `most_s` allows."""


class Pace:
    """From the beginning of a turn to that of the next."""

    def __init__(self, *, first_s: float, most_s: float, steady: bool) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._growth = STEADY_GROWTH if steady else GROWTH
        self._pause_s = first_s

    def moved(self) -> None:
        """Something happened: more may before long."""
        self._pause_s = self._first_s

    def wait(self, pause_s: float) -> None:
        """Let the next pause be this one."""
        self._pause_s = pause_s

    def next_s(self) -> float:
        """Give the pause that is due now; the next is longer unless something happens."""
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * self._growth, self._most_s)
        return pause_s
