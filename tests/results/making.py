"""Results as tests need them, without a ledger."""

from collections.abc import Mapping
from typing import Any

from sweeper.model.search import Direction
from sweeper.model.states import SweepState, TrialState
from sweeper.results.records import SweepResult, TrialResult


def trial(
    number: int,
    *values: float,
    state: TrialState = TrialState.COMPLETED,
    params: Mapping[str, Any] | None = None,
    **changes: Any,
) -> TrialResult:
    facts: dict[str, Any] = {
        "number": number,
        "config_hash": f"{number:064x}",
        "state": state,
        "values": values or None,
        "returned": values[0] if len(values) == 1 else list(values),
        "params": params or {},
        "overrides": tuple(f"{name}={value}" for name, value in (params or {}).items()),
        "reports": (),
        "attempts": 1,
        "error": None,
        "step": 10,
        "started_at": None,
        "finished_at": None,
    }
    return TrialResult(**(facts | changes))


def sweep(*trials: TrialResult, directions: tuple[Direction, ...] = (Direction.MINIMIZE,)) -> SweepResult:
    return SweepResult(name="digits", state=SweepState.FINISHED, directions=directions, trials=trials)
