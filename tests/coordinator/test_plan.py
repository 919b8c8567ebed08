"""One turn's plan, as a pure function of what is seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweeper.ids import AskerId
from sweeper.model.plan import (
    AskerSeen,
    CollectRetired,
    DropAsker,
    End,
    KeepWorkers,
    RepairOutcomes,
    Rules,
    SearchEnd,
    SearchSeen,
    Snapshot,
    WriteHighWater,
    plan,
)
from sweeper.model.states import TrialState

RULES = Rules(workers=4, fail_fast=False, asker_silent_s=600.0, highwater_every_s=60.0, collect_every_s=300.0)
SEEN = Snapshot(
    now_s=1000.0, counts={TrialState.PENDING: 2, TrialState.COMPLETED: 5}, leads=True,
    last={"highwater": 990.0, "collect": 900.0},
)  # fmt: skip


def test_no_more_workers_than_trials_are_left() -> None:
    assert plan(SEEN, RULES) == (KeepWorkers(count=2),)
    assert plan(SEEN, replace(RULES, workers=1)) == (KeepWorkers(count=1),)


def test_a_paused_or_running_trial_is_outstanding() -> None:
    seen = replace(SEEN, counts={TrialState.RUNNING: 1, TrialState.PAUSED: 1})
    assert plan(seen, RULES) == (KeepWorkers(count=2),)


def test_it_ends_when_all_is_final_even_if_told_to_leave() -> None:
    seen = replace(SEEN, counts={TrialState.COMPLETED: 5, TrialState.FAILED: 1}, notice="signal: SIGINT")
    (command,) = plan(seen, RULES)
    assert isinstance(command, End)
    assert command.kind == "done"


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"notice": "signal: SIGTERM"}, "evicted"),
        ({"workers_failed": "they keep dying"}, "workers_failed"),
        ({"notice": "signal: SIGTERM", "workers_failed": "they keep dying"}, "evicted"),
    ],
)
def test_reasons_to_end_with_trials_left(change: dict[str, str], kind: str) -> None:
    command = plan(replace(SEEN, **change), RULES)[-1]  # type: ignore[arg-type]
    assert isinstance(command, End)
    assert command.kind == kind


def test_a_failed_trial_ends_the_run_only_under_fail_fast() -> None:
    seen = replace(SEEN, counts={TrialState.FAILED: 1, TrialState.PENDING: 3})
    assert plan(seen, RULES) == (KeepWorkers(count=3),)
    command = plan(seen, replace(RULES, fail_fast=True))[-1]
    assert command == End(kind="failed_fast", reason="1 trial failed; 3 left pending")


def test_only_dead_or_silent_askers_are_dropped() -> None:
    askers = tuple(
        AskerSeen(asker_id=AskerId(name), silent_s=silent_s, dead=dead)
        for name, silent_s, dead in [("well", 10.0, False), ("killed", 1.0, True), ("silent", 601.0, False)]
    )
    commands = plan(replace(SEEN, askers=askers), RULES)
    assert [c.asker_id for c in commands if isinstance(c, DropAsker)] == ["killed", "silent"]


def test_chores_come_when_due_and_only_to_the_leader() -> None:
    late = replace(SEEN, last={})
    assert plan(late, RULES)[:-1] == (WriteHighWater(), CollectRetired())
    assert plan(replace(late, leads=False), RULES)[:-1] == ()
    assert plan(replace(SEEN, now_s=1050.0), RULES)[:-1] == (WriteHighWater(),)


def test_missing_outcome_objects_are_repaired_by_whoever_sees_them() -> None:
    assert plan(replace(SEEN, gaps=1, leads=False), RULES)[0] == RepairOutcomes()


def test_a_search_without_any_open_trial_goes_on_until_it_has_ended() -> None:
    """Between two proposals of a sequential search every trial is final."""
    seen = replace(SEEN, counts={TrialState.COMPLETED: 5}, search=SearchSeen(end=None, wanted=1))
    assert plan(seen, RULES) == (KeepWorkers(count=1),)
    over = SearchSeen(end=SearchEnd(kind="done", reason="used up"), wanted=0)
    assert plan(replace(seen, search=over), RULES) == (End(kind="done", reason="used up"),)


def test_a_search_that_has_ended_waits_for_its_open_trials_unless_the_run_itself_is_over() -> None:
    seen = replace(SEEN, counts={TrialState.RUNNING: 1, TrialState.PAUSED: 1})
    done = SearchSeen(end=SearchEnd(kind="done", reason="used up"), wanted=2)
    assert plan(replace(seen, search=done), RULES) == (KeepWorkers(count=2),)
    stopped = SearchSeen(end=SearchEnd(kind="stopped", reason="the time is up"), wanted=2)
    assert plan(replace(seen, search=stopped), RULES) == (End(kind="stopped", reason="the time is up"),)


def test_a_search_keeps_workers_for_what_it_will_propose() -> None:
    seen = replace(SEEN, counts={TrialState.PENDING: 1}, search=SearchSeen(end=None, wanted=3))
    assert plan(seen, RULES) == (KeepWorkers(count=3),)
    command = plan(replace(seen, notice="signal: SIGTERM"), RULES)[-1]
    assert isinstance(command, End)
    assert command.kind == "evicted"
