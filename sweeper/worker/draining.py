"""The drain: what a worker knows about its own end, from the notices it was given."""

from __future__ import annotations

from sweeper.model.waits import Notice

SHORTENED = 3.0
"""A repeated notice divides the time that is left by this."""


class Drain:
    """Collects notices. The first begins the drain; later ones can only bring the deadline forward (PR-06).

    One eviction is often told by several sources at once (a signal to every process reaches this one and the command
    that then asks it to leave): only a source that repeats itself is in a hurry.
    """

    def __init__(self, *, grace_s: float) -> None:
        self._grace_s = grace_s
        self._first: Notice | None = None
        self._began_s = 0.0
        self._deadline_s = float("inf")
        self._heard: set[str] = set()

    @property
    def active(self) -> bool:
        """Whether a notice has come."""
        return self._first is not None

    @property
    def reason(self) -> str:
        """Source and reason of the first notice, for the attempt's row."""
        return "" if self._first is None else f"{self._first.source}: {self._first.reason}"

    @property
    def began_s(self) -> float:
        """When the first notice came, on the worker's monotonic clock."""
        return self._began_s

    @property
    def deadline_s(self) -> float:
        """When this process must be gone, on the worker's monotonic clock; infinity without a notice."""
        return self._deadline_s

    def take(self, notices: tuple[Notice, ...], now_s: float) -> None:
        """Learn of notices that came up to now."""
        for notice in notices:
            if self._first is None:
                self._first = notice
                self._began_s = now_s
                self._deadline_s = now_s + self._grace_s if notice.deadline_s is None else notice.deadline_s
            elif notice.deadline_s is not None:
                self._deadline_s = min(self._deadline_s, notice.deadline_s)
            elif notice.source in self._heard:
                self._deadline_s = min(self._deadline_s, now_s + max(0.0, self._deadline_s - now_s) / SHORTENED)
            self._heard.add(notice.source)
