"""Reports that did not wait for the server's disk, and a server that forgets them: no history has a hole (TRUTH)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from sweeper.ledger.database import Database
from sweeper.ledger.reads import reports_of
from sweeper.model.messages import Start
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.settings import CheckpointSettings, LeaseSettings
from tests.simulation.world import Process

from .bench import STEPS, Bench
from .searching import ReportingChild


class Forgetful(Database):
    """Loses every report that did not wait for its disk, at once, as a crash right after it would."""

    forgotten = 0

    def run(self, statement: sa.Executable, parameters: Mapping[str, Any] = {}) -> Sequence[sa.Row[Any]]:
        rows = super().run(statement, parameters)
        if "steps" in parameters and "synchronous_commit" in str(statement) and rows:
            gone = sa.text("DELETE FROM sweeper.reports WHERE trial_id = :id AND step = ANY(:steps) RETURNING step")
            gone = gone.bindparams(sa.bindparam("steps", type_=sa.ARRAY(sa.BigInteger)))
            given = {"id": parameters["trial_id"], "steps": parameters["steps"]}
            self.forgotten += len(super().run(gone, given))
        return rows


@pytest.fixture
def forgetful(bench: Bench, ledger_url: str) -> Forgetful:
    bench.database.close()
    bench.database = database = Forgetful(ledger_url, "bench", now=bench.world.database_now)
    return database


def reporting(crash: str | None = None, *, at_step: int = STEPS) -> Any:
    def make(process: Process, start: Start, restore_fd: int | None) -> ReportingChild:
        child = ReportingChild(process, start, restore_fd, steps=STEPS, padding=0, crash=crash)
        child._crash_at = at_step
        return child

    return make


def steps_of(bench: Bench) -> list[int]:
    return [report.step for report in reports_of(bench.database, bench.trial().trial_id)]


def test_a_trial_that_completes_has_all_its_reports(bench: Bench, forgetful: Forgetful) -> None:
    bench.make_child = reporting()
    bench.worker()
    bench.run(200, until=lambda: bench.trial().state is TrialState.COMPLETED)
    assert forgetful.forgotten > 2
    assert steps_of(bench) == list(range(1, STEPS + 1))


@pytest.mark.parametrize("how", ["error", "signal"])
def test_so_does_one_that_crashes(bench: Bench, forgetful: Forgetful, how: str) -> None:
    bench.make_child = reporting(how, at_step=STEPS - 1)
    bench.worker()
    bench.run(200, until=lambda: bool(bench.attempts()) and bench.attempts()[0].outcome is not None)
    assert bench.attempts()[0].outcome is AttemptOutcome.CRASHED
    assert forgetful.forgotten > 2
    assert steps_of(bench) == list(range(1, STEPS - 1))


def test_so_does_one_that_is_evicted(bench: Bench, forgetful: Forgetful) -> None:
    bench.make_child = reporting()
    process = bench.worker()
    bench.run(200, until=lambda: bool(bench.children) and bench.children[0].step == STEPS - 2)
    bench.evict(process)
    bench.run(200, until=lambda: not process.alive)
    assert bench.attempts()[0].outcome is AttemptOutcome.EVICTED
    assert forgetful.forgotten > 2
    assert steps_of(bench) == list(range(1, bench.children[0].step + 1))


def test_most_reports_of_a_trial_that_goes_on_are_safe(bench: Bench, forgetful: Forgetful) -> None:
    """Nobody has to wait for its end: what is older than a few seconds was waited for."""
    bench.make_child = reporting()
    bench.worker()
    bench.run(200, until=lambda: bool(bench.children) and bench.children[0].step == STEPS - 1)
    began_s = bench.world.now_s
    step = bench.children[0].step
    bench.run(6.0)
    assert bench.world.now_s >= began_s
    assert steps_of(bench)[: step - 4] == list(range(1, step - 3))


def test_reports_alone_keep_the_pulse(bench: Bench) -> None:
    """BLIND: a gap of two heartbeats between touches would put off the expiry of all who died, again and again."""
    lease = LeaseSettings(lease_s=12.0, heartbeat_s=3.0, blind_s=60.0)
    bench.set(lease=lease, checkpoint=CheckpointSettings(every_s=1000.0))
    bench.make_child = reporting()
    bench.worker()
    bench.run(20, until=lambda: bool(bench.children) and bench.children[0].step == 2)
    (before,) = bench.database.run(sa.text("SELECT awake_since FROM sweeper.pulse"))
    bench.run(200, until=lambda: bench.children[0].step == STEPS)
    (after,) = bench.database.run(sa.text("SELECT awake_since, last_seen_at FROM sweeper.pulse"))
    assert (bench.world.database_now() - after.last_seen_at).total_seconds() < 6.0
    assert after.awake_since == before.awake_since
