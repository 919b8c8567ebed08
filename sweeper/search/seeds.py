"""Seeds of a search: every random number of a proposal comes from the sweep's seed and the trial's number (SAME)."""

from __future__ import annotations

import hashlib
from typing import Final

SEED_BITS: Final = 32
"""What numpy's generators take."""


def derived_seed(seed: int, *path: int | str) -> int:
    """Give a seed for one use, unrelated to that of any other use; the same for ever.

    Args:
        seed: the sweep's.
        path: what the use is: the trial's number, then where in the sampler's node a nested sampler stands.
    """
    text = ":".join(str(part) for part in (seed, *path))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[: SEED_BITS // 8], "big")


def sweep_seed(seed: int) -> int:
    """Give the seed that stays the same for all numbers: the sweep's own where a generator takes it."""
    return seed if 0 <= seed < 2**SEED_BITS else derived_seed(seed)


def study_name(seed: int) -> str:
    """Name the study in memory. Never change it: Hyperband's brackets are a checksum of this name and the number."""
    return f"sweeper-{seed}"
