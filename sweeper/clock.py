"""Time, passed in rather than called: the simulator drives it, the linter bans direct calls elsewhere."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What a program may know about time on its own machine. The ledger's clock is the authority on leases."""

    def monotonic_s(self) -> float:
        """Seconds on a clock that never goes back; for intervals and timeouts."""
        ...

    def wall(self) -> datetime:
        """The machine's idea of the date, timezone-aware in UTC; for display and logs only."""
        ...


class SystemClock:
    """The operating system's clocks."""

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary start."""
        return time.monotonic()  # noqa: TID251 the one place

    def wall(self) -> datetime:
        """Now, in UTC."""
        return datetime.now(UTC)  # noqa: TID251 the one place
