"""What must hold after any sequence of kills, checked on the ledger's listing and the training counter."""

from __future__ import annotations

from typing import Any

from tests.acceptance.multirun import Bench


def check_promises(bench: Bench, sweep: str, *, trials: int) -> list[dict[str, Any]]:
    """Check ONCE, RESUME and FAIR for a sweep that has ended; give its trials."""
    listing = bench.trials(sweep)
    assert len(listing) == trials
    for trial in listing:
        outcomes = [attempt["outcome"] for attempt in trial["attempts"]]
        assert trial["state"] == "completed", trial
        assert outcomes.count("completed") == 1, f"ONCE: {outcomes}"
        assert outcomes[-1] == "completed", f"nothing runs after completion: {outcomes}"
    check_steps(bench, listing)
    return listing


def check_steps(bench: Bench, listing: list[dict[str, Any]]) -> None:
    """RESUME: each attempt begins right after the step it says it resumed from, and never leaves one out.

    `first_step` of an attempt is the step of the checkpoint it started from, so what is repeated is exactly the work
    since the last commit.
    """
    counted = bench.counted()
    for trial in listing:
        steps = counted[trial["number"]]
        reached: set[int] = set()
        for attempt in trial["attempts"]:
            mine = steps.get(attempt["fence"], [])
            if not mine:
                continue
            assert mine == list(range(mine[0], mine[0] + len(mine))), f"steps in order: {mine}"
            assert mine[0] == attempt["first_step"] + 1, (attempt, mine[0])
            assert mine[0] == 1 or mine[0] - 1 in reached, f"step {mine[0]} follows a step that was trained"
            reached |= set(mine)


def repeated_steps(bench: Bench) -> int:
    """Count bodies that were trained more than once."""
    return sum(
        sum(map(len, attempts.values())) - len({step for steps in attempts.values() for step in steps})
        for attempts in bench.counted().values()
    )
