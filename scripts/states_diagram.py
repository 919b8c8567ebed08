"""Write docs/design/states.md from the transition table; `--check` only compares.

python scripts/states_diagram.py [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path

from sweeper.model.states import FINAL_STATES, TRANSITIONS, AttemptOutcome, TrialState

PAGE = Path(__file__).resolve().parent.parent / "docs/design/states.md"
MEANINGS = {
    TrialState.PENDING: "waits for a worker (leased only while some command requests it)",
    TrialState.RUNNING: "held by a worker under a lease",
    TrialState.PAUSED: "waits for a decision about its promotion",
    TrialState.COMPLETED: "has its result, for ever",
    TrialState.PRUNED: "was stopped by a decision; its last report stands",
    TrialState.FAILED: "used up its crashes, or made no progress too often, or returned what cannot be a result",
    TrialState.CANCELLED: "was cancelled by command",
}
OUTCOMES = {
    AttemptOutcome.COMPLETED: "the function returned a result",
    AttemptOutcome.PRUNED: "stopped by a decision to prune",
    AttemptOutcome.PAUSED: "stopped by a decision to pause",
    AttemptOutcome.EVICTED: "the worker was warned and left",
    AttemptOutcome.CRASHED: "user code raised, was killed, or hung",
    AttemptOutcome.LOST: "the worker was not heard of until its lease expired, or was proven dead",
    AttemptOutcome.CANCELLED: "cancelled by command while it ran",
    AttemptOutcome.INVALID: "the function returned what cannot be a result",
    AttemptOutcome.ENVIRONMENT: "could not even start: store, restore, or another environment than expected",
}


def diagram() -> str:
    """Draw the table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> pending: request_trials"]
    for state, row in TRANSITIONS.items():
        lines += [f"    {state} --> {target}: {statements}" for target, statements in row.items()]
    lines += [f"    {state} --> [*]" for state in TrialState if state in FINAL_STATES]
    return "\n".join(lines)


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Draw a Markdown table."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page() -> str:
    """Give the whole page."""
    states = [(f"`{s}`", "yes" if s.final else "", MEANINGS[s]) for s in TrialState]
    moves = [
        (f"`{state}`", f"`{target}`", ", ".join(f"`{name}`" for name in statements.split(", ")))
        for state, row in TRANSITIONS.items()
        for target, statements in row.items()
    ]
    outcomes = [(f"`{outcome}`", OUTCOMES[outcome]) for outcome in AttemptOutcome]
    return f"""# States of a trial

Generated from `sweeper/model/states.py` by `python scripts/states_diagram.py`; a test fails when it is not current.

```mermaid
{diagram()}
```

{table(("state", "final", "the trial …"), states)}

## Transitions, and the statement that makes each

Each is one guarded statement; see [protocol](protocol.md).

{table(("from", "to", "by"), moves)}

## Outcomes of an attempt

An attempt is one worker's go at a trial under one lease. It ends with exactly one outcome.

{table(("outcome", "meaning"), outcomes)}
"""


def main() -> int:
    """Write the page, or say whether it is current."""
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.read_text() == page() else 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
