"""Choices of a search under real concurrency: whatever two sessions do at once, the ledger is as if one came after
the other (FENCE).

For each pair of transitions that touch one trial, or the sweep's coordinator row: the first stands still after its
statement, the second follows and waits; then the first commits, or comes to nothing. A twin of the world in which the
same two came one after the other says what has to be there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest

from sweeper.errors import SweeperError
from sweeper.ids import CoordinatorId
from sweeper.ledger.checkpoints import collectable_checkpoints, commit_checkpoint, retire_checkpoints
from sweeper.ledger.commands import cancel_open, cancel_sweep, cancel_trials, retry_trials
from sweeper.ledger.database import Database
from sweeper.ledger.decisions import record_decisions
from sweeper.ledger.highwater import note_rollback
from sweeper.ledger.leases import expire_dead_holder, release_trial, renew_lease
from sweeper.ledger.promotions import newest_checkpoint
from sweeper.ledger.results import commit_result, record_reports
from sweeper.ledger.searches import end_search, finish_search
from sweeper.ledger.statements import Statements
from sweeper.ledger.sweeps import acquire_coordinator
from sweeper.model.search import DecisionKind
from sweeper.model.states import AttemptOutcome, SweepState, TrialState
from sweeper.model.trial import Grant, Report
from tests.ledger.search_world import SearchWorld
from tests.ledger.two_sessions import Databases, Second, standing
from tests.ledger.world import LEASE_S, Clock, checkpoint, hex_id


@dataclass
class Case:
    """Trials 0 and 1 are paused, 2 runs; the coordinator's lease is overdue, so that another may take over."""

    search: SearchWorld
    paused: Grant
    running: Grant

    @classmethod
    def build(cls, db: Database, clock: Clock) -> Case:
        search = SearchWorld.begin(db, clock, name=hex_id())
        search.pause(0, step=2)
        paused = search.pause(1)
        running = search.run(2)
        search.report(running.lease, 1)
        search.save(running, 1, 5)
        clock.advance(31)
        return cls(search, paused, running)

    def call(self, db: Statements, name: str) -> object:
        """What the call answers, as far as two worlds can agree on it."""
        try:
            answer = CALLS[name](self, db)
        except SweeperError as error:
            return type(error).__name__
        return [item.action for item in answer] if isinstance(answer, list) else answer

    def picture(self) -> list[tuple[object, ...]]:
        """Everything that the calls can change, without the ids that differ between worlds."""
        rows: list[tuple[object, ...]] = []
        for query in PICTURE:
            rows += map(tuple, self.search.sql(query, s=self.search.sweep_id))
        return rows


PICTURE = (
    "SELECT number, state, lineage, lineage_fence, priority, head_step, step, version, reason, stop_kind, stop_step,"
    " result::text, crashes, outcome_key, finished_at FROM sweeper.trials WHERE sweep_id = :s ORDER BY number",
    "SELECT t.number, a.outcome, a.led_to, a.reason FROM sweeper.attempts a JOIN sweeper.trials t USING (trial_id)"
    " WHERE t.sweep_id = :s ORDER BY t.number, a.fence",
    "SELECT t.number, r.step, r.at_step FROM sweeper.reports r JOIN sweeper.trials t USING (trial_id)"
    " WHERE t.sweep_id = :s ORDER BY 1, 2",
    "SELECT t.number, d.lineage, d.kind, d.step, d.action FROM sweeper.decisions d JOIN sweeper.trials t"
    " USING (trial_id) WHERE t.sweep_id = :s ORDER BY d.position",
    "SELECT n.number, n.reason, n.proposal::text, t.number FROM sweeper.numbers n"
    " LEFT JOIN sweeper.trials t USING (trial_id) WHERE n.sweep_id = :s ORDER BY 1",
    "SELECT t.number, o.number, c.step, p.reason FROM sweeper.pins p JOIN sweeper.checkpoints c USING (checkpoint_id)"
    " JOIN sweeper.trials t ON t.trial_id = p.trial_id JOIN sweeper.trials o ON o.trial_id = c.trial_id"
    " WHERE t.sweep_id = :s ORDER BY 1, 2, 3",
    "SELECT t.number, c.step, c.state FROM sweeper.checkpoints c JOIN sweeper.trials t USING (trial_id)"
    " WHERE t.sweep_id = :s ORDER BY 1, 2",
    "SELECT a.key, a.value::text FROM sweeper.study_attrs a WHERE a.sweep_id = :s ORDER BY 1",
    "SELECT s.state, s.ended_reason, c.next_number, c.fence FROM sweeper.sweeps s"
    " JOIN sweeper.coordinators c USING (sweep_id) WHERE s.sweep_id = :s",
)


def record(case: Case, db: Statements, grant: Grant, action: str) -> object:
    made = case.search.decision(grant, 1, action)
    return record_decisions(db, *case.search.leader, [made], study_attrs={"seen": action})


def commit(case: Case, db: Statements, state: TrialState, outcome: AttemptOutcome) -> None:
    commit_result(
        db, case.running.lease, state=state, outcome=outcome, result=1.5, reason="done", outcome_key="k",
        outcome_hash="h", outcome_stored=True,
    )  # fmt: skip


def take_over(case: Case, db: Statements) -> bool:
    return acquire_coordinator(db, case.search.sweep_id, CoordinatorId("f" * 32), lease_s=30) is not None


CHOICES: dict[str, Callable[[Case, Statements], object]] = {
    "add_numbers": lambda case, db: case.search.propose(3, "new", db=db).first_number,
    "add_numbers of a known config": lambda case, db: case.search.propose(3, "p1", db=db).first_number,
    "record_decisions": lambda case, db: record(case, db, case.paused, "go_on"),
    "record_decisions to prune": lambda case, db: record(case, db, case.running, "prune"),
    "promote_trial": lambda case, db: case.search.promote(case.paused, db=db),
    "prune_paused": lambda case, db: case.search.prune(case.paused, db=db),
    "exploit_trial": lambda case, db: case.search.exploit(case.paused, 0, db=db),
    "cancel_open": lambda case, db: cancel_open(db, *case.search.leader, reason="reached"),
    "end_search": lambda case, db: end_search(db, *case.search.leader, reason="reached"),
}
OTHERS: dict[str, Callable[[Case, Statements], object]] = {
    "take over": take_over,
    "note_rollback": lambda case, db: note_rollback(db, case.search.sweep_id, seen_fence=9, next_number=5),
    "cancel_trials": lambda case, db: len(cancel_trials(db, case.search.sweep_id, None)),
    "cancel_sweep": lambda case, db: len(cancel_sweep(db, case.search.sweep_id)),
    "renew_lease": lambda case, db: renew_lease(db, case.running.lease, lease_s=LEASE_S),
    "record_reports": lambda case, db: record_reports(
        db, case.running.lease, [Report(step=2, at_step=20, value=2.0)], lease_s=LEASE_S
    ),
    "commit_checkpoint": lambda case, db: commit_checkpoint(
        db, case.running.lease, checkpoint(case.running, 2, 20), save_s=0.1, lease_s=LEASE_S
    ),
    "release evicted": lambda case, db: release_trial(
        db, case.running.lease, outcome=AttemptOutcome.EVICTED, reason="told to"
    ),
    "release paused": lambda case, db: release_trial(
        db, case.running.lease, outcome=AttemptOutcome.PAUSED, reason="at a rung"
    ),
    "commit completed": lambda case, db: commit(case, db, TrialState.COMPLETED, AttemptOutcome.COMPLETED),
    "commit pruned": lambda case, db: commit(case, db, TrialState.PRUNED, AttemptOutcome.PRUNED),
    "expire_dead_holder": lambda case, db: expire_dead_holder(db, case.running.lease, reason="dead"),
}
CALLS: Mapping[str, Callable[[Case, Statements], object]] = {**CHOICES, **OTHERS}

PAIRS = [pair for pair in itertools.product(CALLS, CALLS) if pair[0] in CHOICES or pair[1] in CHOICES]

FEW = [
    ("take over", "add_numbers"),
    ("add_numbers", "add_numbers of a known config"),
    ("exploit_trial", "promote_trial"),
    ("promote_trial", "prune_paused"),
    ("cancel_trials", "exploit_trial"),
    ("record_decisions to prune", "commit pruned"),
    ("release paused", "record_decisions to prune"),
    ("commit completed", "cancel_open"),
    ("note_rollback", "add_numbers"),
    ("promote_trial", "promote_trial"),
    ("add_numbers", "cancel_sweep"),
    ("add_numbers", "cancel_open"),
]
"""Those that the short suite runs; the long one runs all."""


def check_pair(databases: Databases, first: str, second: str, *, commit: bool) -> None:
    clock, db, a, b = databases
    start = clock.now
    case = Case.build(db, clock)
    with standing(a) as session:
        answer = case.call(session, first)
        following = Second(b, lambda other: case.call(other, second))
        waited = following.blocked(db, "second")
        assert waited or not {first, second} <= CHOICES.keys(), "choices come one after the other"
        if commit:
            session.connection.commit()
        else:
            session.connection.rollback()
    found = {first: answer, second: following.result()}, case.picture()
    orders = [[first, second]] if waited else [[first, second], [second, first]]
    possible = []
    for order in orders if commit else [[second]]:
        clock.now = start
        twin = Case.build(db, clock)
        possible.append(({first: answer} | {name: twin.call(db, name) for name in order}, twin.picture()))
    assert found in possible


@pytest.mark.parametrize(("first", "second"), FEW)
def test_two_at_once_are_as_one_after_the_other(databases: Databases, first: str, second: str) -> None:
    check_pair(databases, first, second, commit=True)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [pair for pair in PAIRS if pair not in FEW])
def test_any_two_at_once_are_as_one_after_the_other(databases: Databases, first: str, second: str) -> None:
    check_pair(databases, first, second, commit=True)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_the_second_is_alone_when_the_first_comes_to_nothing(databases: Databases, first: str, second: str) -> None:
    check_pair(databases, first, second, commit=False)


@pytest.mark.parametrize("first", ["add_numbers", "cancel_sweep"])
def test_nothing_is_left_pending_in_a_sweep_that_was_cancelled(databases: Databases, first: str) -> None:
    clock, db, a, b = databases
    case = Case.build(db, clock)
    second = ({"add_numbers", "cancel_sweep"} - {first}).pop()
    with standing(a) as session:
        case.call(session, first)
        following = Second(b, lambda other: case.call(other, second))
        assert following.blocked(db, "second")
        session.connection.commit()
    assert following.result() == (4 if second == "cancel_sweep" else "CoordinatorLost")
    trials = case.search.sql("SELECT state FROM sweeper.trials WHERE sweep_id = :s", s=case.search.sweep_id)
    assert {row.state for row in trials} == {TrialState.CANCELLED}


def test_reports_thought_lost_do_not_outlive_the_pruning(databases: Databases) -> None:
    """The commit waits for a report of its own holder, which it cannot see when it goes on."""
    clock, db, a, b = databases
    case = Case.build(db, clock)
    case.search.lead()
    case.search.decide(case.search.decision(case.running, 1, "prune"))
    with standing(a) as session:
        case.call(session, "record_reports")
        following = Second(b, lambda other: case.call(other, "commit pruned"))
        assert following.blocked(db, "second")
        session.connection.commit()
    following.result()
    assert case.search.trial(2).state is TrialState.PRUNED
    assert case.search.steps(case.running.lease.trial_id) == [1]


def test_a_checkpoint_retired_in_the_moment_in_which_it_is_inherited_keeps_its_objects(databases: Databases) -> None:
    """Retiring cannot see the pin; collecting does."""
    clock, db, a, b = databases
    case = Case.build(db, clock)
    search, source = case.search, case.running
    inherited = newest_checkpoint(db, search.sweep_id, 2)
    for seq in (2, 3):
        search.save(source, seq, 10 * seq)
    with standing(a) as session:
        assert search.exploit(case.paused, 2, db=session, checkpoint_id=inherited)
        following = Second(b, lambda other: retire_checkpoints(other, source.lease, keep=1))
        assert following.blocked(db, "second")
        session.connection.commit()
    following.result()
    search.complete(source.lease)
    clock.advance(7200)
    steps = [ref.step for ref in collectable_checkpoints(db, search.sweep_id, older_than_s=3600, limit=9)]
    assert sorted(steps) == [10, 20], "the heir's own earlier one, and one that nobody needs"
    assert (head := search.trial(1).head) is not None
    assert head.step == 5


def test_a_checkpoint_that_is_being_retired_is_not_inherited(databases: Databases) -> None:
    clock, db, a, b = databases
    case = Case.build(db, clock)
    search, source = case.search, case.running
    inherited = newest_checkpoint(db, search.sweep_id, 2)
    search.save(source, 2, 20)
    with standing(a) as session:
        retire_checkpoints(session, source.lease, keep=1)
        following = Second(b, lambda other: search.exploit(case.paused, 2, db=other, checkpoint_id=inherited))
        assert following.blocked(db, "second")
        session.connection.commit()
    assert following.result() is False
    assert search.trial(1).state is TrialState.PAUSED


def test_a_search_is_not_finished_over_a_retry_that_it_cannot_see(databases: Databases) -> None:
    clock, db, a, b = databases
    search = SearchWorld.begin(db, clock, name=hex_id())
    search.propose(0)
    cancel_trials(db, search.sweep_id, None)
    end_search(db, *search.leader, reason="enough")
    with standing(a) as session:
        retry_trials(session, search.sweep_id, None, from_zero=False)
        following = Second(b, lambda other: finish_search(other, search.sweep_id))
        assert following.blocked(db, "second")
        session.connection.commit()
    following.result()
    assert search.sql("SELECT state FROM sweeper.sweeps WHERE sweep_id = :s", s=search.sweep_id)[0].state == (
        SweepState.ACTIVE
    )


def test_a_decision_waits_for_a_cut_of_the_history_and_is_left_out(databases: Databases) -> None:
    clock, db, a, b = databases
    case = Case.build(db, clock)
    case.search.lead()
    case.search.complete(case.running.lease)
    made = replace(case.search.decision(case.running, 1), kind=DecisionKind.RUNG)
    with standing(a) as session:
        retry_trials(session, case.search.sweep_id, [2], from_zero=True)
        following = Second(b, lambda other: record_decisions(other, *case.search.leader, [made]))
        assert following.blocked(db, "second")
        session.connection.commit()
    assert following.result() == []
    assert case.search.sql("SELECT 1 FROM sweeper.decisions WHERE trial_id = :t", t=made.trial_id) == []
