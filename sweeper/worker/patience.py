"""How a worker bears an outage: delays that grow, and a memory of when the ledger last answered."""

from __future__ import annotations

import logging
from collections.abc import Callable

from sweeper.errors import LedgerUnavailable

log = logging.getLogger("sweeper.worker")


class Backoff:
    """Delays that double from `first_s` up to `most_s`, each shortened by up to a half so that crowds spread out."""

    def __init__(self, jitter: Callable[[], float], *, first_s: float = 0.2, most_s: float = 10.0) -> None:
        self._jitter = jitter
        self._first_s = first_s
        self._most_s = most_s
        self._failures = 0

    @property
    def failures(self) -> int:
        """Delays taken since the last reset."""
        return self._failures

    def next_s(self) -> float:
        """Give the next delay in seconds."""
        delay_s = min(self._first_s * 2.0 ** min(self._failures, 30), self._most_s)
        self._failures += 1
        return delay_s * (1.0 - 0.5 * self._jitter())

    def reset(self) -> None:
        """Begin with the short delays again."""
        self._failures = 0


class LedgerLine:
    """Whether to ask the ledger now, and for how long it has not answered (BLIND)."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._retry_at_s = float("-inf")
        self._blind_since_s: float | None = None

    @property
    def retry_at_s(self) -> float | None:
        """When to ask again; None while the ledger answers."""
        return None if self._blind_since_s is None else self._retry_at_s

    def open(self, now_s: float) -> bool:
        """Whether a call may be tried now."""
        return self._blind_since_s is None or now_s >= self._retry_at_s

    def blind_for_s(self, now_s: float) -> float:
        """Seconds since the first unanswered call; 0 while the ledger answers."""
        return 0.0 if self._blind_since_s is None else now_s - self._blind_since_s

    def answered(self, now_s: float) -> None:
        """A call went through."""
        if self._blind_since_s is not None:
            log.warning("ledger answers again after %.1f s", now_s - self._blind_since_s)
        self._blind_since_s = None
        self._backoff.reset()

    def refused(self, now_s: float, error: LedgerUnavailable) -> None:
        """A call did not go through; its effect is unknown and it will be repeated."""
        if self._blind_since_s is None:
            self._blind_since_s = now_s
            log.warning("ledger does not answer, trying again: %s", error)
        self._retry_at_s = now_s + self._backoff.next_s()
