"""How far ahead of the workers a search proposes: never where that would change what is proposed (SAME)."""

from __future__ import annotations

from sweeper.coordinator.records import Records
from sweeper.model.search import SearchSpec
from sweeper.model.states import TrialState

MOST_AHEAD = 2
"""Trials per live worker that may wait beyond those that idle workers take at once."""


def free_places(spec: SearchSpec, records: Records, *, live: int, lately: int) -> int:
    """How many trials should be made pending now.

    Args:
        spec: the search.
        records: its numbers.
        live: workers that could take a trial, here and elsewhere.
        lately: trials that stopped running since the last turn; about as many will before the next.
    """
    if spec.deterministic:
        # Whether others have finished earlier, or how many workers there are, must not matter.
        return int(records.first_unsettled() > records.next_number - spec.lag)
    running, pending = records.counts[TrialState.RUNNING], records.counts[TrialState.PENDING]
    idle = max(live - running, 0)
    ahead = min(lately, MOST_AHEAD * live) if live > 1 else 0
    return max(idle + ahead - pending, 0)
