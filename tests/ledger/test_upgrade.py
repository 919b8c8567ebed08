"""A ledger of an earlier version is brought up with everything that is in it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

import sweeper.ledger.migrations
from sweeper.errors import LeaseLost
from sweeper.ids import CoordinatorId, LeaseId, SweepId, TrialId, WorkerId
from sweeper.ledger.database import Database, open_database
from sweeper.ledger.leases import lease_trial, renew_lease
from sweeper.ledger.reads import reports_of, trials
from sweeper.ledger.results import commit_result
from sweeper.ledger.schema import SCHEMA_VERSION, schema_version, upgrade
from sweeper.ledger.sweeps import acquire_coordinator, open_sweep
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.trial import Lease
from tests.ledger.world import HEARTBEAT_S, LEASE_S, spec

FIRST_ROWS = """
INSERT INTO sweeper.sweeps (sweep_id, name, task, source_digest, sweep_dir, store_url, seed, direction, identity,
    max_crashes, max_no_progress, backoff_s, backoff_max_s, checkpoint_keep, default_named, created_at)
VALUES ('s', 'digits', 'train:main', repeat('0', 64), '/sweeps/digits', 'file:///store', 0, NULL, '{}', 3, 10, 1, 60,
    3, true, 'epoch');
INSERT INTO sweeper.coordinators (sweep_id, next_number) VALUES ('s', 3);
INSERT INTO sweeper.trials (sweep_id, number, config_hash, state, fence, lease_id, worker_id, lease_expires_at,
    attempts, result, finished_at, version)
VALUES ('s', 0, 'h0', 'completed', 1, NULL, NULL, NULL, 1, '1e300', 'epoch', 2),
       ('s', 1, 'h1', 'running', 4, 'lease1', 'w', statement_timestamp() + interval '1 hour', 4, NULL, NULL, 1),
       ('s', 2, 'h2', 'pending', 0, NULL, NULL, NULL, 0, NULL, NULL, 1);
INSERT INTO sweeper.configs SELECT trial_id, 0, '{}', '[]', '{}' FROM sweeper.trials;
INSERT INTO sweeper.numbers SELECT sweep_id, number, trial_id, NULL FROM sweeper.trials;
INSERT INTO sweeper.numbers VALUES ('s', 9, NULL, 'cannot be composed');
INSERT INTO sweeper.attempts (lease_id, trial_id, fence, lineage, worker_id, host, pool, started_at, first_step)
SELECT 'lease1', trial_id, 4, 0, 'w', 'h', 'local', 'epoch', 0 FROM sweeper.trials WHERE number = 1;
INSERT INTO sweeper.reports SELECT trial_id, 1, 1, 'NaN', '{}', 1, 'epoch' FROM sweeper.trials WHERE number = 0;
INSERT INTO sweeper.askers VALUES ('a', 's', false, 'h', 'b', '/l', '1:2', 1, 'epoch');
INSERT INTO sweeper.requests SELECT trial_id, 'a', 's' FROM sweeper.trials;
"""


@pytest.fixture
def first_version(fresh_database: str) -> str:
    """URL of a ledger of the first version, in which a sweep is under way."""
    config = Config()
    config.set_main_option("script_location", str(Path(sweeper.ledger.migrations.__file__).parent))
    config.set_main_option("path_separator", "os")
    with Database(fresh_database, "test") as db, db.transaction() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.exec_driver_sql(FIRST_ROWS)
    return fresh_database


def test_an_upgrade_keeps_every_row_and_what_is_held_goes_on(first_version: str) -> None:
    """ONCE, TRUTH. Whoever holds a trial finishes it; who runs older code leases nothing more."""
    upgrade(first_version)
    with open_database(first_version) as db:
        assert schema_version(db) == SCHEMA_VERSION
        again = open_sweep(db, spec(), new_id=SweepId("other"))
        assert (again.sweep_id, again.search) == ("s", None)
        done, running, pending = trials(db, again.sweep_id)
        assert (done.result, running.fence, pending.state) == (1e300, 4, TrialState.PENDING)
        assert [report.step for report in reports_of(db, done.trial_id)] == [1]
        lease = Lease(trial_id=running.trial_id, fence=4, lease_id=LeaseId("lease1"))
        renew_lease(db, lease, lease_s=LEASE_S)
        commit_result(
            db, lease, state=TrialState.COMPLETED, outcome=AttemptOutcome.COMPLETED, result=2.0, reason="returned",
            outcome_key=None, outcome_hash=None, outcome_stored=False,
        )  # fmt: skip
        grant = lease_trial(
            db, sweep_id=again.sweep_id, worker_id=WorkerId("w2"), lease_id=LeaseId("lease2"), lease_s=LEASE_S,
            heartbeat_s=HEARTBEAT_S, pool="local", host="h", threads=1,
        )  # fmt: skip
        assert grant is not None
        assert (grant.number, grant.stop) == (2, None)
        assert acquire_coordinator(db, again.sweep_id, CoordinatorId("c"), lease_s=30) == 1
        assert db.run(sa.text("SELECT min_code FROM sweeper.ledger"))[0].min_code == 2
        with pytest.raises(LeaseLost):
            renew_lease(db, Lease(trial_id=TrialId(0), fence=1, lease_id=LeaseId("x")), lease_s=LEASE_S)


def test_upgrades_by_many_at_once_happen_once(first_version: str) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(upgrade, [first_version] * 4))
    with open_database(first_version) as db:
        assert [row.number for row in db.run(sa.text("SELECT number FROM sweeper.trials ORDER BY 1"))] == [0, 1, 2]
