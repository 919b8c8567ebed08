"""FENCE under real concurrency: hold one transition after its guard, run another, and see that they are in order.

One test per pair of transitions that leave `running` or write under a lease, with the first committed and rolled back.
A simulator on one thread can never find a guard that only reads; this does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
import sqlalchemy as sa

from sweeper.errors import LeaseLost
from sweeper.ids import LeaseId
from sweeper.ledger import sql
from sweeper.ledger.checkpoints import adopt_checkpoint, commit_checkpoint, mark_suspect, retire_checkpoints
from sweeper.ledger.commands import cancel_sweep, cancel_trials, retry_trials
from sweeper.ledger.leases import expire_dead_holder, expire_leases, lease_trial, release_trial, renew_lease
from sweeper.ledger.reads import reports_of
from sweeper.ledger.results import commit_result, record_reports
from sweeper.ledger.statements import Statements
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.trial import CheckpointRef, Grant, Report
from tests.ledger.two_sessions import Databases, Second, standing
from tests.ledger.world import HEARTBEAT_S, LEASE_S, World, checkpoint, hex_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A trial whose lease is overdue with a healthy pulse, so that every transition is possible."""

    world: World
    grant: Grant
    head: CheckpointRef

    def call(self, db: Statements, name: str) -> object:
        return CALLS[name](self, db)


def _result(case: Case, db: Statements, *reports: Report) -> None:
    commit_result(
        db, case.grant.lease, state=TrialState.COMPLETED, outcome=AttemptOutcome.COMPLETED, result=1.5, reason="done",
        outcome_key="k", outcome_hash="h", outcome_stored=True, reports=reports,
    )  # fmt: skip


CALLS: dict[str, Callable[[Case, Statements], object]] = {
    "renew_lease": lambda case, db: renew_lease(db, case.grant.lease, lease_s=LEASE_S),
    "record_reports": lambda case, db: record_reports(
        db, case.grant.lease, [Report(step=1, at_step=1, value=0.5)], lease_s=LEASE_S
    ),
    "commit_checkpoint": lambda case, db: commit_checkpoint(
        db, case.grant.lease, checkpoint(case.grant, 2, 20), save_s=0.1, lease_s=LEASE_S
    ),
    "retire_checkpoints": lambda case, db: retire_checkpoints(db, case.grant.lease, keep=1),
    "mark_suspect": lambda case, db: mark_suspect(db, case.grant.lease, case.head, evidence="bad digest"),
    "adopt_checkpoint": lambda case, db: adopt_checkpoint(db, case.grant.lease, checkpoint(case.grant, 9, 15)),
    "release evicted": lambda case, db: release_trial(
        db, case.grant.lease, outcome=AttemptOutcome.EVICTED, reason="told to"
    ),
    "release crashed": lambda case, db: release_trial(
        db, case.grant.lease, outcome=AttemptOutcome.CRASHED, reason="boom"
    ),
    "commit_result": _result,
    "commit_result with reports": lambda case, db: _result(case, db, Report(step=1, at_step=1, value=0.5)),
    "expire_leases": lambda case, db: [
        gone.lease for gone in expire_leases(db, case.world.sweep_id, lease_s=LEASE_S, heartbeat_s=HEARTBEAT_S)
    ],
    "expire_dead_holder": lambda case, db: expire_dead_holder(db, case.grant.lease, reason="dead"),
    "cancel_trials": lambda case, db: [trial.number for trial in cancel_trials(db, case.world.sweep_id, [0])],
    "cancel_sweep": lambda case, db: [trial.number for trial in cancel_sweep(db, case.world.sweep_id)],
}
ENDINGS = {
    "release evicted": (AttemptOutcome.EVICTED, TrialState.PENDING),
    "release crashed": (AttemptOutcome.CRASHED, TrialState.PENDING),
    "commit_result": (AttemptOutcome.COMPLETED, TrialState.COMPLETED),
    "commit_result with reports": (AttemptOutcome.COMPLETED, TrialState.COMPLETED),
    "expire_leases": (AttemptOutcome.LOST, TrialState.PENDING),
    "expire_dead_holder": (AttemptOutcome.LOST, TrialState.PENDING),
    "cancel_trials": (AttemptOutcome.CANCELLED, TrialState.CANCELLED),
    "cancel_sweep": (AttemptOutcome.CANCELLED, TrialState.CANCELLED),
}
CANCELS = {"cancel_trials", "cancel_sweep"}
RENEWS = {"renew_lease", "record_reports", "commit_checkpoint"}
SKIPS = {"expire_leases"}
"""Passes over locked rows instead of waiting for them."""


@pytest.fixture
def case(databases: Databases) -> Case:
    clock, db, _, _ = databases
    world = World.build(db, clock, name=hex_id())
    world.add(1)
    grant = world.lease()
    world.touch()
    head = world.save(grant, 1, 10)
    world.awake(3 * LEASE_S)
    return Case(world=world, grant=grant, head=head)


def check_whole(world: World) -> None:
    """What must hold after anything: an attempt is open exactly while its lease runs, and one ending is one."""
    rows = world.sql(
        "SELECT t.lease_id AS running, a.lease_id AS open FROM sweeper.trials t"
        " FULL JOIN (SELECT * FROM sweeper.attempts WHERE ended_at IS NULL) a ON a.lease_id = t.lease_id"
        " WHERE (t.state = 'running' OR a.lease_id IS NOT NULL)"
    )
    assert all(row.running == row.open for row in rows)


PAIRS = list(itertools.product(CALLS, CALLS))


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_the_second_follows_the_first(databases: Databases, case: Case, first: str, second: str) -> None:
    _, db, a, b = databases
    with standing(a) as session:
        case.call(session, first)
        following = Second(b, lambda other: case.call(other, second))
        assert following.blocked(db, "second") == (second not in SKIPS)
        session.connection.commit()
    check_order(case, first, second, following)
    check_whole(case.world)


def check_order(case: Case, first: str, second: str, following: Second[object]) -> None:
    if first not in ENDINGS:
        answer = following.result()
        if second in SKIPS:
            assert answer == []
            taken = case.call(case.world.db, second)
            assert taken == ([] if first in RENEWS else [case.grant.lease])
        elif second in ENDINGS:
            assert case.world.attempts()[0].outcome is ENDINGS[second][0]
            assert case.world.trial().state is ENDINGS[second][1]
        return
    outcome, state = ENDINGS[first]
    if second in SKIPS:
        assert following.result() == []
    elif second in CANCELS:
        assert following.result() == ([0] if state is TrialState.PENDING else [])
        state = TrialState.CANCELLED if state is TrialState.PENDING else state
    elif second == "expire_dead_holder":
        assert following.result() == (TrialState.PENDING if outcome is AttemptOutcome.LOST else None)
    elif second in ENDINGS and ENDINGS[second][0] is outcome:
        following.result()  # a replay, answered as the first time
    else:
        with pytest.raises(LeaseLost) as lost:
            following.result()
        assert lost.value.cancelled == (first in CANCELS)
    (attempt,) = case.world.attempts()
    assert attempt.outcome is outcome, "the first ending stays"
    assert case.world.trial().state is state
    assert case.world.trial().head == case.head, "nothing written after the end counts"
    reports = [report.step for report in reports_of(case.world.db, case.grant.lease.trial_id)]
    assert reports == ([1] if first == "commit_result with reports" else [])


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_the_second_goes_on_when_the_first_comes_to_nothing(
    databases: Databases, case: Case, first: str, second: str
) -> None:
    _, db, a, b = databases
    with standing(a) as session:
        case.call(session, first)
        following = Second(b, lambda other: case.call(other, second))
        assert following.blocked(db, "second") == (second not in SKIPS)
        session.connection.rollback()
    answer = following.result()
    if second in SKIPS:
        assert answer == []
        assert case.call(case.world.db, second) == [case.grant.lease]
    if second in ENDINGS:
        assert case.world.attempts()[0].outcome is ENDINGS[second][0]
        assert case.world.trial().state is ENDINGS[second][1]
    else:
        assert case.world.trial().lease_id == case.grant.lease.lease_id
    check_whole(case.world)


def lease(world: World, db: Statements, lease_id: str) -> Grant | None:
    return lease_trial(
        db, sweep_id=world.sweep_id, worker_id=world.worker(), lease_id=LeaseId(lease_id), lease_s=LEASE_S,
        heartbeat_s=HEARTBEAT_S, pool="local", host="h1", threads=1,
    )  # fmt: skip


def test_two_claims_never_wait_and_never_get_one_trial(
    databases: Databases,
) -> None:
    clock, db, a, b = databases
    world = World.build(db, clock, name=hex_id())
    world.add(2)
    with standing(a) as session:
        first = lease(world, session, hex_id())
        following = Second(b, lambda other: lease(world, other, hex_id()))
        assert not following.blocked(db, "second")
        second = following.result()
        third = lease(world, b, hex_id())
    assert first is not None
    assert second is not None
    assert {first.number, second.number} == {0, 1}
    assert third is None


def test_a_claim_repeated_while_the_first_is_under_way_gets_the_same_grant(
    databases: Databases,
) -> None:
    """The reply was lost to a time-out, the statement was not; both picked a trial of their own."""
    clock, db, a, b = databases
    world = World.build(db, clock, name=hex_id())
    world.add(2)
    lease_id = hex_id()
    with standing(a) as session:
        first = lease(world, session, lease_id)
        following = Second(b, lambda other: lease(world, other, lease_id))
        assert following.blocked(db, "second")
        session.connection.commit()
    assert following.result() == first
    assert [trial.state for trial in map(world.trial, (0, 1))] == [TrialState.RUNNING, TrialState.PENDING]
    check_whole(world)


@pytest.mark.parametrize("cancel", sorted(CANCELS))
def test_a_cancellation_that_waits_for_a_grant_ends_that_attempt_too(databases: Databases, cancel: str) -> None:
    """Its snapshot is older than the attempt."""
    clock, db, a, b = databases
    world = World.build(db, clock, name=hex_id())
    world.add(1)
    with standing(a) as session:
        grant = lease(world, session, hex_id())
        assert grant is not None
        case = Case(world=world, grant=grant, head=checkpoint(grant, 1, 1))
        following = Second(b, lambda other: case.call(other, cancel))
        assert following.blocked(db, "second")
        session.connection.commit()
    assert following.result() == [0]
    assert world.attempts()[0].outcome is AttemptOutcome.CANCELLED
    check_whole(world)


@pytest.mark.parametrize("cancel", sorted(CANCELS))
def test_a_trial_that_is_being_cancelled_is_not_leased(databases: Databases, cancel: str) -> None:
    clock, db, a, b = databases
    world = World.build(db, clock, name=hex_id())
    world.add(1)
    with standing(a) as session:
        CALLS[cancel](Case(world=world, grant=None, head=None), session)  # type: ignore[arg-type]
        assert lease(world, b, hex_id()) is None
    assert lease(world, b, hex_id()) is None
    assert world.trial().state is TrialState.CANCELLED


def test_two_retries_from_zero_cut_the_history_once(databases: Databases) -> None:
    clock, db, a, b = databases
    world = World.build(db, clock, name=hex_id())
    world.add(1)
    world.complete(world.lease().lease)
    with standing(a) as session:
        assert len(retry_trials(session, world.sweep_id, [0], from_zero=True)) == 1
        following = Second(b, lambda other: retry_trials(other, world.sweep_id, [0], from_zero=True))
        assert following.blocked(db, "second")
        session.connection.commit()
    assert following.result() == []
    assert world.trial().lineage == 1


def test_a_report_that_commits_late_is_before_the_takeover(databases: Databases, case: Case) -> None:
    """A zombie's insert must not land after a successor's grant: the expiry passes over the row, so nobody takes it."""
    _, _, a, b = databases
    with standing(a) as session:
        case.call(session, "record_reports")
        assert case.call(b, "expire_leases") == []
        assert lease(case.world, b, hex_id()) is None
        session.connection.commit()
    assert case.world.trial().last_value == 0.5
    assert case.world.trial().lease_id == case.grant.lease.lease_id


def test_a_retry_that_waits_while_the_history_is_cut_copies_the_newest_config(
    databases: Databases,
) -> None:
    """Found by the storm: the newest row was cancelled again, in a lineage that it could not see."""
    clock, db, a, b = databases
    world = World.build(db, clock, name=hex_id())
    world.add(1)
    cancel_trials(db, world.sweep_id, [0])
    with standing(a) as session:
        retry_trials(session, world.sweep_id, [0], from_zero=True)
        cancel_trials(session, world.sweep_id, [0])
        following = Second(b, lambda other: retry_trials(other, world.sweep_id, [0], from_zero=True))
        assert following.blocked(db, "second")
        session.connection.commit()
    assert [trial.lineage for trial in following.result()] == [2]
    assert world.lease().config_text == '{"x":"c0"}'


class Waiting:
    """`Statements` whose claims wait for locked rows, to stand for one that is overtaken in the middle."""

    def __init__(self, db: Statements) -> None:
        self.db = db

    @property
    def now(self) -> datetime | None:
        return self.db.now

    def run(self, statement: sa.Executable, parameters: Mapping[str, Any] = {}) -> Sequence[sa.Row[Any]]:
        assert isinstance(statement, sa.TextClause)
        text = statement.text.replace("LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED", "LIMIT 1 FOR NO KEY UPDATE")
        return self.db.run(sql.statement(text), parameters)


@pytest.mark.parametrize("overtaken_by", ["an attempt", "a cut of its history"])
def test_a_claim_leaves_a_trial_that_changed_under_it_to_the_next(databases: Databases, overtaken_by: str) -> None:
    """Reports of an attempt that it cannot see would survive its grant; a config that it cannot see has no text."""
    clock, db, a, b = databases
    world = World.build(db, clock, name=hex_id())
    world.add(1)
    worker = world.worker()

    def claim(other: Statements) -> Grant | None:
        return lease_trial(
            other, sweep_id=world.sweep_id, worker_id=worker, lease_id=LeaseId(hex_id()), lease_s=LEASE_S,
            heartbeat_s=HEARTBEAT_S, pool="local", host="h1", threads=1,
        )  # fmt: skip

    with standing(a) as session:
        if overtaken_by == "an attempt":
            grant = claim(session)
            assert grant is not None
            record_reports(session, grant.lease, [Report(step=1, at_step=1, value=1.0)], lease_s=LEASE_S)
            release_trial(session, grant.lease, outcome=AttemptOutcome.EVICTED, reason="told to")
        else:
            cancel_trials(session, world.sweep_id, [0])
            retry_trials(session, world.sweep_id, [0], from_zero=True)
        following = Second(b, lambda other: claim(Waiting(other)))
        assert following.blocked(db, "second")
        session.connection.commit()
    assert following.result() is None
    assert world.trial().state is TrialState.PENDING
    assert claim(db) is not None
    assert world.trial().last_value is None
    check_whole(world)
