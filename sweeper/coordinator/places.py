"""How far ahead of the workers a search proposes: never where that would change what is proposed (SAME)."""

from __future__ import annotations

from collections import deque
from typing import Final

from sweeper.coordinator.records import Records
from sweeper.model.search import SearchSpec
from sweeper.model.states import TrialState

TURNS: Final = 20
"""Turns over which it is counted how many trials end in one. Many more of them pass while a long trial trains, so
that trials which happen to end at once are not taken for a stream of short ones."""
SPARE: Final = 3.0
"""Times as many as usually end in a turn may wait: they do not end evenly, and where machines are busy a turn is late.
With half of this four workers of trivial trials found none every fourth time."""


class Demand:
    """How many trials are likely to stop running before the next turn."""

    def __init__(self) -> None:
        self._ended: deque[int] = deque(maxlen=TURNS)

    def turn(self, ended: int) -> int:
        """Take in how many stopped running since the last turn; give how many may wait ahead of the idle workers."""
        self._ended.append(ended)
        return int(SPARE * sum(self._ended) / len(self._ended))


def free_places(spec: SearchSpec, records: Records, *, live: int, ahead: int) -> int:
    """How many trials should be made pending now.

    Args:
        spec: the search.
        records: its numbers.
        live: workers that could take a trial, here and elsewhere.
        ahead: how many may wait beyond those that idle workers take at once.
    """
    if spec.deterministic:
        # Whether others have finished earlier, or how many workers there are, must not matter.
        return int(records.first_unsettled() > records.next_number - spec.lag)
    running, pending = records.counts[TrialState.RUNNING], records.counts[TrialState.PENDING]
    idle = max(live - running, 0)
    return max(idle + (ahead if live > 1 else 0) - pending, 0)
