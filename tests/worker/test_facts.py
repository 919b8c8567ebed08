"""What a worker reads from its sweep's row about the search."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sweeper.ids import SweepId
from sweeper.model.retry import RetryPolicy
from sweeper.model.search import DecisionKind, Direction, SearchSpec
from sweeper.model.states import SweepState
from sweeper.model.trial import Json, Sweep
from sweeper.worker.parts import facts_of

TWO = (Direction.MINIMIZE, Direction.MAXIMIZE)
PRUNER: dict[str, Json] = {"_target_": "optuna.pruners.MedianPruner"}
SCHEDULER: dict[str, Json] = {"kind": "asha"}


def sweep(search: SearchSpec | None) -> Sweep:
    return Sweep(
        sweep_id=SweepId("a" * 32), name="s", state=SweepState.ACTIVE, task="t:f", source_digest="0", sweep_dir="/d",
        store_url="memory://", seed=3, search=None if search is None else search.as_json(), identity={},
        retry=RetryPolicy(), checkpoint_keep=2, created_at=datetime(2030, 1, 1, tzinfo=UTC),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("search", "objectives", "decides", "waits"),
    [
        (None, 0, None, False),
        (SearchSpec(), 1, None, False),
        (SearchSpec(directions=TWO), 2, None, False),
        (SearchSpec(pruner=PRUNER), 1, DecisionKind.REPORT, True),
        (SearchSpec(pruner=PRUNER, deterministic=False), 1, DecisionKind.REPORT, False),
        (SearchSpec(scheduler=SCHEDULER), 1, DecisionKind.RUNG, True),
        (SearchSpec(scheduler=SCHEDULER, deterministic=False), 1, DecisionKind.RUNG, False),
    ],
)
def test_reports_wait_only_where_something_is_decided_on_them_and_nothing_may_depend_on_timing(
    search: SearchSpec | None, objectives: int, decides: DecisionKind | None, *, waits: bool
) -> None:
    """SAME."""
    facts = facts_of(sweep(search))
    assert (facts.objectives, facts.decides, facts.reports_wait) == (objectives, decides, waits)
    assert (facts.seed, facts.checkpoint_keep) == (3, 2)


def test_a_search_of_another_version_is_told() -> None:
    with pytest.raises(ValueError, match="not a search"):
        facts_of(replace(sweep(None), search={"directions": ["minimize"]}))
