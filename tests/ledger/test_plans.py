"""Hot statements stay on their indexes, and heartbeats stay HOT, on a table with many trials."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest
import sqlalchemy as sa

from sweeper.errors import CoordinatorLost, LeaseLost
from sweeper.ids import LeaseId, SweepId, TrialId
from sweeper.ledger.checkpoints import commit_checkpoint, retire_checkpoints
from sweeper.ledger.connections import BoundedConnection
from sweeper.ledger.database import Database
from sweeper.ledger.decisions import decided, record_decisions, reports_by_trial, undecided_reports
from sweeper.ledger.driver_text import driver_text
from sweeper.ledger.enqueued import next_enqueued
from sweeper.ledger.leases import expire_leases, lease_trial, release_trial, renew_lease
from sweeper.ledger.promotions import exploit_trial, promote_trial, prune_paused
from sweeper.ledger.proposals import add_numbers, numbered
from sweeper.ledger.results import commit_result, record_reports
from sweeper.ledger.searches import search_standing
from sweeper.model.search import Decision, DecisionKind, NewNumber, Proposal, Suggestion
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.trial import CheckpointRef, Lease, Report
from tests.conftest import _database
from tests.ledger.search_world import SearchWorld
from tests.ledger.world import HEARTBEAT_S, LEASE_S, Clock, World, new_trial

pytestmark = pytest.mark.slow

FINISHED, PENDING, RUNNING = 30_000, 5_000, 200

POPULATE = f"""
WITH added AS (
    INSERT INTO sweeper.trials
        (sweep_id, number, config_hash, state, fence, attempts, finished_at, lease_id, worker_id, lease_expires_at)
    SELECT :s, n, md5(n::text), state, CASE WHEN state = 'pending' THEN 0 ELSE 1 END,
           CASE WHEN state = 'pending' THEN 0 ELSE 1 END, CASE WHEN state = 'completed' THEN :now END,
           CASE WHEN state = 'running' THEN 'lease' || n END, CASE WHEN state = 'running' THEN 'w' END,
           CASE WHEN state = 'running' THEN :now END
    FROM (
        SELECT n, CASE WHEN n < {FINISHED} THEN 'completed' WHEN n < {FINISHED + RUNNING} THEN 'running'
                       ELSE 'pending' END AS state
        FROM generate_series(0, {FINISHED + RUNNING + PENDING - 1}) n
    ) g
    RETURNING trial_id, number, state
), configured AS (
    INSERT INTO sweeper.configs SELECT trial_id, 0, '{{}}', '[]', '{{}}' FROM added
), attempted AS (
    INSERT INTO sweeper.attempts
        (lease_id, trial_id, fence, lineage, worker_id, host, pool, started_at, first_step, ended_at, outcome, led_to)
    SELECT 'lease' || number, trial_id, 1, 0, 'w', 'h', 'p', :now, 0, CASE WHEN state = 'completed' THEN :now END,
           CASE WHEN state = 'completed' THEN 'completed' END, CASE WHEN state = 'completed' THEN 'completed' END
    FROM added WHERE state <> 'pending'
), reported AS (
    INSERT INTO sweeper.reports SELECT trial_id, 1, 1, 0.5, '{{}}', 1, :now FROM added WHERE state <> 'pending'
), decided AS (
    INSERT INTO sweeper.decisions (trial_id, lineage, kind, step, sweep_id, action, facts, decided_at)
    SELECT trial_id, 0, 'report', 1, :s, 'go_on', '{{}}', :now FROM added WHERE state = 'completed'
), saved AS (
    INSERT INTO sweeper.checkpoints
        (trial_id, lineage, lease_id, fence, seq, step, manifest_key, manifest_hash, size_bytes, committed_at)
    SELECT trial_id, 0, 'lease' || number, 1, 1, 1, 'k', 'h', 1, :now FROM added WHERE state <> 'pending'
), numbered AS (
    INSERT INTO sweeper.numbers SELECT :s, number, trial_id, NULL, '{{}}' FROM added
)
INSERT INTO sweeper.requests SELECT trial_id, :a, :s FROM added
"""


class Explaining:
    """`Statements` that explains what it is given, by the statement's own parameters, and runs it not at all."""

    def __init__(self, connection: sa.Connection, now: datetime) -> None:
        self.connection = connection
        self.now = now
        self.plans: list[dict[str, Any]] = []

    def run(self, statement: sa.Executable, parameters: Mapping[str, Any] = {}) -> Sequence[sa.Row[Any]]:
        text = str(getattr(statement, "text", statement))
        binds = getattr(statement, "_bindparams", {})
        explained = sa.text(f"EXPLAIN (FORMAT JSON) {text}").bindparams(*binds.values())
        plan = self.connection.execute(explained, dict(parameters)).scalar_one()
        self.plans.append((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"])
        return ()


class ExplainingKept(Explaining):
    """Explains the plan that a connection would keep, which knows no parameters."""

    def run(self, statement: sa.Executable, parameters: Mapping[str, Any] = {}) -> Sequence[sa.Row[Any]]:
        assert isinstance(statement, sa.TextClause)
        text = driver_text(statement)
        assert text is not None
        raw = self.connection.connection.driver_connection
        assert isinstance(raw, BoundedConnection)
        raw.execute("SET LOCAL enable_seqscan = off")
        raw.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        name = f"explained_{len(self.plans)}".encode()
        raw.pgconn.prepare(name, text.sql, text.types)
        unknown = b", ".join([b"NULL"] * len(text.types))
        given = b"(%b)" % unknown if unknown else b""
        (row,) = raw.execute(b"EXPLAIN (FORMAT JSON) EXECUTE %b%b" % (name, given)).fetchall()
        raw.execute(b"DEALLOCATE " + name)
        self.plans.append(row[0][0]["Plan"])
        return ()


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def world_of_its_own(server: str, template: str) -> Iterator[World]:
    """In a database of its own, which nobody analyzes or has to empty of so many rows."""
    for url in _database(server, template=template):
        with Database(url, "plans", Clock(), statement_s=60) as db:
            world = World.build(db, Clock())
            for table in BIG:
                world.sql(f"ALTER TABLE sweeper.{table} SET (autovacuum_enabled = false)")
            yield world


def populate(world: World) -> None:
    assert isinstance(world.db, Database)
    text = sa.text(POPULATE).bindparams(sa.bindparam("now", type_=sa.DateTime(timezone=True)))
    world.db.run(text, {"s": world.sweep_id, "a": world.asker_id, "now": world.clock.now})


@pytest.fixture(scope="module", params=[True, False], ids=["analyzed", "never analyzed"])
def populated(request: pytest.FixtureRequest, postgres_server: str, ledger_template: str) -> Iterator[World]:
    for world in world_of_its_own(postgres_server, ledger_template):
        world.worker()
        populate(world)
        if request.param:
            world.sql("ANALYZE")
        yield world


@pytest.fixture
def growing(postgres_server: str, ledger_template: str) -> Iterator[World]:
    yield from world_of_its_own(postgres_server, ledger_template)


def plans_of(world: World, call: Any, how: type[Explaining] = Explaining) -> list[dict[str, Any]]:
    assert isinstance(world.db, Database)
    with world.db.transaction() as connection:
        explaining = how(connection, world.clock.now)
        with suppress(LeaseLost, CoordinatorLost, IndexError):  # no rows came back
            call(explaining)
        return explaining.plans


BIG = {"trials", "configs", "attempts", "reports", "requests", "decisions", "checkpoints", "numbers"}
LEASE = Lease(trial_id=TrialId(FINISHED + 5), fence=1, lease_id=LeaseId(f"lease{FINISHED + 4}"))
DECISION = Decision(
    trial_id=TrialId(FINISHED + 5), number=FINISHED + 4, lineage=0, kind=DecisionKind.REPORT, step=1, action="prune"
)
REF = CheckpointRef(fence=1, seq=1, step=1, manifest_key="k", manifest_hash="h", size_bytes=1)
PARTIAL = {"trials_lease", "trials_pending", "trials_unfinished", "trials_unmirrored"}
"""Indexes of few rows."""
MAY_SCAN = {"undecided_reports": {"trials"}}
"""A seventh of this table is open, of which a search never has more than a few; to walk an index is dearer here."""
HOT: dict[str, Any] = {
    "lease_trial": lambda db, sweep_id: lease_trial(
        db, sweep_id=sweep_id, worker_id="w", lease_id=LeaseId("new"), lease_s=LEASE_S, heartbeat_s=HEARTBEAT_S,
        pool="p", host="h", threads=1, number_floor=FINISHED,
    ),
    "lease_trial from any number": lambda db, sweep_id: lease_trial(
        db, sweep_id=sweep_id, worker_id="w", lease_id=LeaseId("new"), lease_s=LEASE_S, heartbeat_s=HEARTBEAT_S,
        pool="p", host="h", threads=1,
    ),
    "lease_trial where trials are scarce": lambda db, sweep_id: lease_trial(
        db, sweep_id=sweep_id, worker_id="w", lease_id=LeaseId("new"), lease_s=LEASE_S, heartbeat_s=HEARTBEAT_S,
        pool="p", host="h", threads=1, number_floor=FINISHED, scarce=True,
    ),
    "renew_lease": lambda db, sweep_id: renew_lease(db, LEASE, lease_s=LEASE_S),
    "record_reports": lambda db, sweep_id: record_reports(
        db, LEASE, [Report(step=1, at_step=1, value=1.0)], lease_s=LEASE_S
    ),
    "commit_checkpoint": lambda db, sweep_id: commit_checkpoint(db, LEASE, REF, save_s=1.0, lease_s=LEASE_S),
    "release_trial": lambda db, sweep_id: release_trial(db, LEASE, outcome=AttemptOutcome.EVICTED, reason=""),
    "commit_result": lambda db, sweep_id: commit_result(
        db, LEASE, state=TrialState.COMPLETED, outcome=AttemptOutcome.COMPLETED, result=1.0, reason="", outcome_key="k",
        outcome_hash="h", outcome_stored=True,
    ),
    "commit_result with reports": lambda db, sweep_id: commit_result(
        db, LEASE, state=TrialState.COMPLETED, outcome=AttemptOutcome.COMPLETED, result=1.0, reason="", outcome_key="k",
        outcome_hash="h", outcome_stored=True, reports=[Report(step=1, at_step=1, value=1.0)],
    ),
    "commit_result pruned": lambda db, sweep_id: commit_result(
        db, LEASE, state=TrialState.PRUNED, outcome=AttemptOutcome.PRUNED, result=1.0, reason="", outcome_key="k",
        outcome_hash="h", outcome_stored=True,
    ),
    "expire_leases": lambda db, sweep_id: expire_leases(db, sweep_id, lease_s=LEASE_S, heartbeat_s=HEARTBEAT_S),
    "retire_checkpoints": lambda db, sweep_id: retire_checkpoints(db, LEASE, keep=1),
    "add_numbers": lambda db, sweep_id: add_numbers(
        db, sweep_id, coordinator_id="c", fence=1, asker_id="a",
        new=[NewNumber(number=9, suggestion=Suggestion(proposal=Proposal()), trial=new_trial("n"))],
    ),
    "numbered": lambda db, sweep_id: numbered(db, sweep_id, [FINISHED, FINISHED + 1]),
    "undecided_reports": lambda db, sweep_id: undecided_reports(db, sweep_id, kind=DecisionKind.REPORT, limit=100),
    "undecided_reports of some": lambda db, sweep_id: undecided_reports(
        db, sweep_id, kind=DecisionKind.REPORT, limit=100, of=[LEASE.trial_id]
    ),
    "reports_by_trial": lambda db, sweep_id: reports_by_trial(db, [LEASE.trial_id]),
    "record_decisions": lambda db, sweep_id: record_decisions(db, sweep_id, "c", 1, [DECISION]),
    "decided": lambda db, sweep_id: decided(db, LEASE.trial_id, 0, 1),
    "promote_trial": lambda db, sweep_id: promote_trial(db, sweep_id, "c", 1, DECISION, priority=1),
    "prune_paused": lambda db, sweep_id: prune_paused(
        db, sweep_id, "c", 1, LEASE.trial_id, result=None, reason="", step=1
    ),
    "exploit_trial": lambda db, sweep_id: exploit_trial(
        db, sweep_id, "c", 1, heir=LEASE.trial_id, source_checkpoint_id=5, new=new_trial("n"), proposal=Proposal(),
        decision=DECISION,
    ),
    "search_standing": lambda db, sweep_id: search_standing(db, sweep_id),
    "next_enqueued": lambda db, sweep_id: next_enqueued(db, sweep_id),
}  # fmt: skip


@pytest.mark.parametrize("how", [Explaining, ExplainingKept])
@pytest.mark.parametrize("name", HOT)
def test_a_hot_statement_reads_no_large_table_from_end_to_end(
    populated: World, name: str, how: type[Explaining]
) -> None:
    plans = plans_of(populated, lambda db: HOT[name](db, SweepId(populated.sweep_id)), how)
    assert plans
    scanned = [
        node["Relation Name"]
        for plan in plans
        for node in nodes(plan)
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] in BIG - MAY_SCAN.get(name, set())
    ]
    assert scanned == []
    if how is ExplainingKept:
        walked = [
            node["Index Name"]
            for plan in plans
            for node in nodes(plan)
            if node.get("Index Name", "").startswith(tuple(BIG)) and "Index Cond" not in node
        ]
        assert set(walked) <= PARTIAL


def test_a_claim_walks_the_pending_index_and_sorts_nothing_before_it_stops(populated: World) -> None:
    names = ("lease_trial", "lease_trial from any number")
    plans = [plan for name in names for plan in plans_of(populated, lambda db: HOT[name](db, populated.sweep_id))]  # noqa: B023
    claims = [
        node
        for plan in plans
        for node in nodes(plan)
        if node["Node Type"] == "LockRows" and "trials" in {part.get("Relation Name") for part in nodes(node)}
    ]
    assert len(claims) == 3, "two branches beyond the floor, one for any"
    for claim in claims:
        kinds = [(node["Node Type"], node.get("Index Name")) for node in nodes(claim)]
        assert ("Index Scan", "trials_pending") in kinds
        assert "Sort" not in [kind for kind, _ in kinds]


def test_expiry_scans_the_index_of_leases(populated: World) -> None:
    plan = plans_of(populated, lambda db: HOT["expire_leases"](db, populated.sweep_id))[0]
    assert "trials_lease" in {node.get("Index Name") for node in nodes(plan)}


def test_heartbeats_are_hot(search: SearchWorld) -> None:
    """Also of trials that the search has decided to stop."""
    world = search
    grants = [world.run(number) for number in range(50)]
    leases = [grant.lease for grant in grants]
    world.decide(*[world.decision(grant, 1, "prune") for grant in grants[::2]])
    world.sql("SELECT pg_stat_force_next_flush()")
    before = stats(world)
    for step in range(20):
        world.clock.advance(HEARTBEAT_S)
        for lease in leases:
            renew_lease(world.db, lease, lease_s=LEASE_S, step=step)
    after = stats(world)
    updates, hot = after[0] - before[0], after[1] - before[1]
    assert updates == 1000
    assert hot >= 0.9 * updates


def test_a_heartbeat_writes_little(world: World) -> None:
    """At most 250 bytes of WAL, full page images (after a checkpoint) aside."""
    world.add(1)
    lease = world.lease().lease
    renew_lease(world.db, lease, lease_s=LEASE_S, step=0)
    start = world.sql("SELECT pg_current_wal_insert_lsn()::text AS at")[0].at
    for step in range(200):
        renew_lease(world.db, lease, lease_s=LEASE_S, step=step)
    written = world.sql("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), :at) AS bytes", at=start)[0].bytes
    assert written / 200 <= 250


def test_plans_kept_from_when_tables_were_small_read_no_table_from_end_to_end(world: World) -> None:
    world.add(60)
    grants = [world.lease() for _ in range(50)]
    for _ in range(2):  # the first makes the connection one that keeps plans
        world.sql("ANALYZE")
        for grant in grants:
            renew_lease(world.db, grant.lease, lease_s=LEASE_S)
            record_reports(world.db, grant.lease, [Report(step=1, at_step=1, value=1.0)], lease_s=LEASE_S)
    before = scans(world)
    for grant in grants[:20]:
        renew_lease(world.db, grant.lease, lease_s=LEASE_S)
        record_reports(world.db, grant.lease, [Report(step=2, at_step=2, value=1.0)], lease_s=LEASE_S)
        world.complete(grant.lease)
    assert world.lease() is not None
    assert scans(world) == before


def test_plans_kept_from_when_tables_were_small_do_not_walk_over_them_for_long(growing: World) -> None:
    """To walk over all of an index, for each of few rows, is no sequential scan, and as slow."""
    world = growing
    world.add(400)

    def lives() -> int:
        before = entries_read(world)
        for _ in range(20):
            grant = world.lease()
            reports = [Report(step=step, at_step=step, value=1.0) for step in (1, 2)]
            record_reports(world.db, grant.lease, reports[:1], lease_s=LEASE_S, durable=False)
            renew_lease(world.db, grant.lease, lease_s=LEASE_S)
            world.complete(grant.lease, 1.0, reports=reports)
        return entries_read(world) - before

    lives()
    world.sql("ANALYZE")
    of_few = lives()
    populate(World.build(world.db, world.clock, name="large"))
    for _ in range(9):
        lives()
    assert lives() < 2 * of_few


def entries_read(world: World) -> int:
    """Entries of all indexes that were read so far."""
    world.sql("SELECT pg_stat_force_next_flush()")
    return int(world.sql("SELECT sum(idx_tup_read) AS read FROM pg_stat_user_indexes")[0].read)


def scans(world: World) -> dict[str, int]:
    """Sequential scans so far."""
    world.sql("SELECT pg_stat_force_next_flush()")
    rows = world.sql("SELECT relname, seq_scan FROM pg_stat_user_tables")
    return {row.relname: row.seq_scan for row in rows if row.relname in BIG}


def stats(world: World) -> tuple[int, int]:
    world.sql("SELECT pg_stat_force_next_flush()")
    row = world.sql("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'trials'")[0]
    return row.n_tup_upd, row.n_tup_hot_upd
