"""Decisions are rows, each made once; what they stop is stopped in the same statement."""

from __future__ import annotations

import math

import pytest

from sweeper.errors import CoordinatorLost, LeaseLost
from sweeper.ledger.commands import cancel_trials, retry_trials
from sweeper.ledger.database import Database
from sweeper.ledger.decisions import decided, decisions, record_decisions, reports_by_trial, undecided_reports
from sweeper.ledger.leases import renew_lease
from sweeper.ledger.searches import study_attrs
from sweeper.model.search import DecisionKind, SearchSpec
from sweeper.model.states import AttemptOutcome, SearchStopKind, TrialState
from sweeper.model.trial import SearchStop
from tests.ledger.search_world import SearchWorld
from tests.ledger.world import LEASE_S, Clock, hex_id

REPORT, RUNG = DecisionKind.REPORT, DecisionKind.RUNG
PRUNER = {"_target_": "optuna.pruners.MedianPruner"}


def undecided(search: SearchWorld, kind: DecisionKind = REPORT, limit: int = 100) -> list[tuple[int, int]]:
    """Number and step of each."""
    found = undecided_reports(search.db, search.sweep_id, kind=kind, limit=limit)
    return [(number, report.step) for _, number, _, report in found]


def test_reports_wait_for_a_decision_in_the_order_in_which_they_came(search: SearchWorld) -> None:
    first, second = search.run(0), search.run(1)
    search.report(second.lease, 1)
    search.clock.advance(1)
    search.report(first.lease, 2, 1)
    search.report(second.lease, 2)
    assert undecided(search) == [(1, 1), (0, 1), (0, 2), (1, 2)]
    assert undecided(search, limit=2) == [(1, 1), (0, 1)]
    search.decide(search.decision(second, 1), search.decision(first, 1))
    assert undecided(search) == [(0, 2), (1, 2)]
    assert undecided(search, RUNG) == [(1, 1), (0, 1), (0, 2), (1, 2)], "each kind decides for itself"


def test_a_report_that_comes_again_after_a_rollback_is_not_decided_again(search: SearchWorld) -> None:
    """Each trial counts once per step and rung, however often it was evicted (OP-03)."""
    grant = search.run()
    search.report(grant.lease, 1, 2)
    search.decide(search.decision(grant, 1), search.decision(grant, 2))
    search.release(grant.lease)
    again = search.lease()
    search.report(again.lease, 1, 2, 3)
    assert undecided(search) == [(0, 3)]


def test_nothing_more_is_decided_on_a_trial_that_stops(search: SearchWorld) -> None:
    grant = search.run()
    search.report(grant.lease, 1, 2, 3)
    search.decide(search.decision(grant, 1, "prune"))
    assert undecided(search) == []


def test_a_paused_trials_reports_wait_until_it_goes_on(search: SearchWorld) -> None:
    grant = search.run()
    search.report(grant.lease, 1, 2)
    search.save(grant, 1, 20)
    search.decide(search.decision(grant, 1, "pause", kind=RUNG))
    search.release(grant.lease, AttemptOutcome.PAUSED)
    assert undecided(search, RUNG) == []
    assert search.promote(grant)
    assert undecided(search, RUNG) == [(0, 2)]


def test_reports_of_a_trial_that_ended_are_found_when_it_is_named(search: SearchWorld) -> None:
    """A short trial is over before anybody looked; at its rungs it counts like the others."""
    grant = search.run()
    search.report(grant.lease, 1)
    search.complete(grant.lease)
    assert undecided(search, RUNG) == []
    found = undecided_reports(search.db, search.sweep_id, kind=RUNG, limit=9, of=[grant.lease.trial_id])
    assert [(number, report.step) for _, number, _, report in found] == [(0, 1)]
    search.decide(search.decision(grant, 1, "pause", kind=RUNG))
    assert search.trial().state is TrialState.COMPLETED


def test_decisions_come_back_in_the_order_in_which_they_were_made(search: SearchWorld) -> None:
    grants = [search.run(0), search.run(1)]
    facts = {"rung_0": {"$float": "nan"}, "deep": [1, 1.0]}
    made = search.decide(
        search.decision(grants[1], 3, value=math.inf),
        search.decision(grants[0], 1, value=None, facts=facts),
        search.decision(grants[0], 2, value=math.nan, kind=RUNG),
    )
    made += search.decide(search.decision(grants[0], 3))
    read = decisions(search.db, search.sweep_id, kinds=[REPORT, RUNG])
    assert [(one.number, one.step) for one in read] == [(1, 3), (0, 1), (0, 2), (0, 3)]
    assert [read[at] for at in (0, 1, 3)] == [made[at] for at in (0, 1, 3)]
    assert read[2].value is not None
    assert math.isnan(read[2].value)
    assert (read[1].facts, read[1].value) == (facts, None)
    assert [one.order for one in read] == sorted({one.order for one in read})
    later = decisions(search.db, search.sweep_id, kinds=[REPORT], after_order=read[1].order)
    assert later == [read[3]]


def test_a_decision_is_made_once_and_the_first_stays(search: SearchWorld) -> None:
    grant = search.run()
    (first,) = search.decide(search.decision(grant, 1, "go_on"))
    second, new = search.decide(search.decision(grant, 1, "prune"), search.decision(grant, 2, "go_on"))
    assert second == first
    assert new.order > first.order
    assert renew_lease(search.db, grant.lease, lease_s=LEASE_S) is None


def test_a_decision_to_stop_reaches_the_holder_with_its_next_heartbeat_or_report(search: SearchWorld) -> None:
    grant = search.run()
    assert search.report(grant.lease, 1) is None
    assert renew_lease(search.db, grant.lease, lease_s=LEASE_S) is None
    version = search.row().version
    search.decide(search.decision(grant, 1, "prune"))
    stop = SearchStop(kind=SearchStopKind.PRUNE, step=1, reason="by the pruner")
    assert renew_lease(search.db, grant.lease, lease_s=LEASE_S) == stop
    assert search.report(grant.lease, 2) == stop
    assert search.row().version == version + 1


def test_the_first_of_several_stops_counts(search: SearchWorld) -> None:
    grant = search.run()
    search.decide(search.decision(grant, 2, "pause", kind=RUNG), search.decision(grant, 1, "prune"))
    search.decide(search.decision(grant, 3, "prune"))
    stop = renew_lease(search.db, grant.lease, lease_s=LEASE_S)
    assert stop == SearchStop(kind=SearchStopKind.PAUSE, step=2, reason="at a rung")


def test_a_stop_waits_for_the_next_holder_and_keeps_what_it_rests_on(search: SearchWorld) -> None:
    """The next holder ends the trial without training; the report that decided it lies beyond the head."""
    grant = search.run()
    search.save(grant, 1, 5)
    search.report(grant.lease, 1, 2, 3)
    search.decide(search.decision(grant, 2, "prune"))
    search.release(grant.lease, AttemptOutcome.CRASHED)
    search.clock.advance(1000)
    again = search.lease()
    assert again.stop == SearchStop(kind=SearchStopKind.PRUNE, step=2, reason="by the pruner")
    assert search.steps(grant.lease.trial_id) == [1, 2]
    search.commit_pruned(again.lease)
    assert search.trial().state is TrialState.PRUNED


def test_a_decision_on_a_pending_trial_waits_too(search: SearchWorld) -> None:
    grant = search.run()
    search.report(grant.lease, 1)
    search.release(grant.lease)
    search.decide(search.decision(grant, 1, "pause", kind=RUNG))
    again = search.lease()
    assert again.stop == SearchStop(kind=SearchStopKind.PAUSE, step=1, reason="at a rung")
    search.release(again.lease, AttemptOutcome.PAUSED, child_started=False)
    assert search.trial().state is TrialState.PAUSED


def test_a_pruned_trials_reports_end_at_the_one_that_decided_it(search: SearchWorld) -> None:
    """What it trained while the decision travelled does not count."""
    grant = search.run()
    search.report(grant.lease, 1, 2, 3, 4)
    search.decide(search.decision(grant, 2, "prune"))
    search.commit_pruned(grant.lease)
    assert search.steps(grant.lease.trial_id) == [1, 2]
    search.commit_pruned(grant.lease)
    assert [report.step for report in search.numbered(0).reports] == [1, 2]


def test_order_of_reports_is_training_step_first(search: SearchWorld) -> None:
    """A program that counts no steps makes all of them at step 0."""
    grant = search.run()
    search.report(grant.lease, 1, 2, 3, scale=0)
    search.decide(search.decision(grant, 2, "prune"))
    search.commit_pruned(grant.lease)
    assert search.steps(grant.lease.trial_id) == [1, 2]


def test_a_trial_that_prunes_itself_keeps_its_reports(search: SearchWorld) -> None:
    grant = search.run()
    search.report(grant.lease, 1, 2)
    search.decide(search.decision(grant, 1, "pause", kind=RUNG))
    search.commit_pruned(grant.lease)
    assert search.steps(grant.lease.trial_id) == [1, 2]


@pytest.mark.parametrize("ending", ["completed", "cancelled", "failed", "paused"])
def test_a_stop_is_done_with_when_the_trial_ends_otherwise(search: SearchWorld, ending: str) -> None:
    """What the function returned while the decision travelled is its result."""
    grant = search.run()
    search.decide(search.decision(grant, 1, "prune"))
    match ending:
        case "completed":
            search.complete(grant.lease)
        case "cancelled":
            cancel_trials(search.db, search.sweep_id, [0])
        case "failed":
            search.sql("UPDATE sweeper.trials SET crashes = 50")
            search.release(grant.lease, AttemptOutcome.CRASHED)
        case _:
            search.release(grant.lease, AttemptOutcome.PAUSED)
    (row,) = search.sql("SELECT state, stop_kind, stop_step, stop_reason FROM sweeper.trials")
    assert tuple(row) == (ending, None, None, None)


def test_decisions_about_a_lineage_that_is_over_are_left_out(search: SearchWorld) -> None:
    grant = search.run()
    search.report(grant.lease, 1)
    search.decide(search.decision(grant, 1))
    cancel_trials(search.db, search.sweep_id, [0])
    retry_trials(search.db, search.sweep_id, [0], from_zero=True)
    assert decisions(search.db, search.sweep_id, kinds=[REPORT]) == [], "void, like the reports they rest on"
    assert search.decide(search.decision(grant, 2, "prune")) == []
    again = search.lease()
    assert again.stop is None
    search.report(again.lease, 1)
    assert undecided(search) == [(0, 1)]


def test_a_retry_goes_on_without_the_stop(search: SearchWorld) -> None:
    grant = search.run()
    search.report(grant.lease, 1)
    search.decide(search.decision(grant, 1, "prune"))
    search.commit_pruned(grant.lease)
    retry_trials(search.db, search.sweep_id, [0], from_zero=True)
    assert search.lease().stop is None


def test_a_coordinator_that_was_replaced_decides_nothing(search: SearchWorld) -> None:
    """FENCE."""
    grant = search.run()
    search.lose_the_lead()
    with pytest.raises(CoordinatorLost):
        search.decide(search.decision(grant, 1, "prune"), study_attrs={"a": 1})
    with pytest.raises(CoordinatorLost):
        search.decide()
    assert renew_lease(search.db, grant.lease, lease_s=LEASE_S) is None
    assert study_attrs(search.db, search.sweep_id) == {}


def test_what_deciding_changed_in_the_study_is_kept_with_it(search: SearchWorld) -> None:
    grant = search.run()
    search.propose(1, study_attrs={"a": 1, "b": 1})
    search.decide(search.decision(grant, 1), study_attrs={"b": 2})
    search.decide(study_attrs={"c": 3})
    assert study_attrs(search.db, search.sweep_id) == {"a": 1, "b": 2, "c": 3}


def test_many_decisions_are_written_in_order(search: SearchWorld) -> None:
    grant = search.run()
    made = search.decide(*[search.decision(grant, step) for step in range(1500)])
    assert [one.step for one in made] == list(range(1500))
    assert decisions(search.db, search.sweep_id, kinds=[REPORT]) == made


def test_a_trial_of_another_sweep_is_not_decided_on(search: SearchWorld) -> None:
    other = SearchWorld.begin(search.db, search.clock, name=hex_id())
    grant = other.run()
    assert record_decisions(search.db, *search.leader, [search.decision(grant, 1, "prune")]) == []
    assert renew_lease(search.db, grant.lease, lease_s=LEASE_S) is None


@pytest.mark.parametrize(
    ("pruner", "scheduler", "kinds"),
    [(PRUNER, None, [REPORT]), (None, {"kind": "asha"}, [RUNG]), (PRUNER, {"kind": "asha"}, [REPORT, RUNG])],
)
def test_a_report_waits_until_all_whom_the_search_asks_have_decided(
    db: Database, clock: Clock, pruner: dict[str, object] | None, scheduler: dict[str, object] | None,
    kinds: list[DecisionKind],
) -> None:  # fmt: skip
    """SAME."""
    spec = SearchSpec(pruner=pruner, scheduler=scheduler)  # type: ignore[arg-type]  # plain JSON
    search = SearchWorld.begin(db, clock, search=spec)
    grant = search.run()
    for kind in kinds:
        assert decided(db, grant.lease.trial_id, 0, 1) is None
        search.decide(search.decision(grant, 1, kind=kind))
    decision = decided(db, grant.lease.trial_id, 0, 1)
    assert decision is not None
    assert decision.action == "go_on"
    assert decided(db, grant.lease.trial_id, 1, 1) is None, "of another lineage"


def test_one_who_stops_the_trial_is_answer_enough(db: Database, clock: Clock) -> None:
    search = SearchWorld.begin(db, clock, search=SearchSpec(pruner=PRUNER, scheduler={"kind": "asha"}))
    grant = search.run()
    search.decide(search.decision(grant, 1, "pause", kind=RUNG))
    decision = decided(db, grant.lease.trial_id, 0, 1)
    assert decision is not None
    assert decision.action == "pause"


def test_reports_are_read_for_many_trials_at_once(search: SearchWorld) -> None:
    grants = [search.run(0), search.run(1), search.run(2)]
    search.report(grants[0].lease, 3, 1)
    search.report(grants[2].lease, 2, value=math.nan)
    found = reports_by_trial(search.db, [grant.lease.trial_id for grant in grants])
    assert {id_: [report.step for report in reports] for id_, reports in found.items()} == {
        grants[0].lease.trial_id: [1, 3],
        grants[2].lease.trial_id: [2],
    }
    assert reports_by_trial(search.db, []) == {}


def test_a_stop_does_not_outlive_the_lease_check(search: SearchWorld) -> None:
    """FENCE. A stale holder learns that its lease is lost, not what became of the trial."""
    grant = search.run()
    search.release(grant.lease)
    search.decide(search.decision(grant, 1, "prune"))
    with pytest.raises(LeaseLost):
        renew_lease(search.db, grant.lease, lease_s=LEASE_S)
