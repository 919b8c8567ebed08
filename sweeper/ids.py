"""Identifiers. Whatever ends up in a store key is random or a hash, never from a sequence."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NewType

SweepId = NewType("SweepId", str)
"""32 random hex digits, drawn when the sweep's row is written."""
TrialId = NewType("TrialId", int)
"""Primary key of a trial in one ledger; never leaves it."""
TrialNumber = NewType("TrialNumber", int)
"""A trial's number in its sweep, from 0, for life."""
LeaseId = NewType("LeaseId", str)
"""32 random hex digits, drawn by the worker for one grant."""
WorkerId = NewType("WorkerId", str)
"""32 random hex digits, drawn at the worker's start."""
CoordinatorId = NewType("CoordinatorId", str)
"""32 random hex digits: the id of the command (an `AskerId`) that coordinates, whose death can be proved."""
AskerId = NewType("AskerId", str)
"""32 random hex digits: one command that asked for trials."""
LedgerId = NewType("LedgerId", str)
"""32 random hex digits, drawn when a database's tables are made."""
ConfigHash = NewType("ConfigHash", str)
"""SHA-256 of a canonical config text, 64 hex digits."""

RandomHex = Callable[[], str]
"""Draws 32 random hex digits; seeded in the simulator."""


def system_random_hex() -> str:
    """Draw 32 hex digits from the operating system's randomness."""
    return f"{random.SystemRandom().getrandbits(128):032x}"
