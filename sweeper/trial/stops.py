"""How training code is told to leave: `SystemExit` subclasses, so a broad `except Exception` cannot swallow them."""

from __future__ import annotations

from typing import ClassVar, Final

EVICTED_STATUS: Final = 75
"""EX_TEMPFAIL of sysexits.h: "try again later"."""


class StopTraining(SystemExit):
    """Training leaves here, at a safe point, because the worker asked for it.

    Once raised it latches: every later `run.*` call raises it again, and it is the attempt's outcome whatever the
    function returns.
    """

    kind: ClassVar[str] = ""
    status: ClassVar[int] = 0

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(self.status)

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


class Evicted(StopTraining):
    """The machine is being taken away; the trial goes on elsewhere from its checkpoint. Exit status 75."""

    kind = "evicted"
    status = EVICTED_STATUS


class Pruned(StopTraining):
    """The search gave this trial up; its reports so far are its result."""

    kind = "pruned"


class Paused(StopTraining):
    """The search puts this trial aside; it may be continued later from its checkpoint."""

    kind = "paused"
    status = EVICTED_STATUS


class Cancelled(StopTraining):
    """The trial was cancelled, or its lease belongs to someone else by now; nothing it does counts any more."""

    kind = "cancelled"


_BY_KIND: Final[dict[str, type[StopTraining]]] = {
    stop.kind: stop for stop in (Evicted, Pruned, Paused, Cancelled)
}  # fmt: skip


def stop_for(kind: str, reason: str) -> StopTraining:
    """Give the exception for a `Stop` message's kind.

    Raises:
        KeyError: the kind is none of evicted, pruned, paused, cancelled.
    """
    return _BY_KIND[kind](reason)
