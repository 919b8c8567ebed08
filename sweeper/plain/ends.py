"""How a call of `sweeper.sweep` ends without a result."""

from __future__ import annotations

from typing import Final

from sweeper.errors import SweeperError

INTERRUPTED_STATUS: Final = 75
"""EX_TEMPFAIL of sysexits.h: nothing is wrong; the same command goes on."""


class Interrupted(SystemExit):
    """The process was told to leave before the search was over. The same call goes on from there; exit status 75.

    A `SystemExit`, like everything that means "leave now": a machine is being taken away, so what would follow in the
    script must not run on half a result, `except Exception` must not swallow it, and a scheduler reads the status.
    Catch it by name to clean up; `sweeper.load(name)` has what there is so far.
    """

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(INTERRUPTED_STATUS)

    def __str__(self) -> str:
        return f"sweep {self.name!r} was interrupted: {self.reason}"


class SweepFailed(SweeperError):
    """The search cannot go on: too many trials failed, or no worker stays alive. `sweeper.load(name)` has the rest."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"sweep {name!r} stopped: {reason}")
