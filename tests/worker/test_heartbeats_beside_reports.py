"""Reports and checkpoints extend a lease, but do not stand in for heartbeats: those tell more, and see to more."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from sweeper.model.states import AttemptOutcome
from sweeper.settings import CheckpointSettings, LeaseSettings

from .bench import STEPS, Bench
from .searching import reporting, talkative

SILENT, REPORTING = 10**9, 1


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


def test_a_result_that_waits_for_the_store_keeps_the_pulse(bench: Bench) -> None:
    """BLIND: its last reports were not waited for."""
    bench.set(checkpoint=CheckpointSettings(every_s=1000.0))
    bench.make_child = talkative(steps=206, from_step=158)
    bench.worker()
    bench.run(3)
    bench.weather.store_away_until_s = bench.world.now_s + 1e6
    (before,) = bench.database.run(sa.text("SELECT awake_since FROM sweeper.pulse"))
    bench.run(70)
    (after,) = bench.database.run(sa.text("SELECT awake_since FROM sweeper.pulse"))
    assert after.awake_since == before.awake_since


@pytest.mark.parametrize("every_s", [1000.0, 2.0], ids=["no saves", "saves"])
@pytest.mark.parametrize("from_step", [SILENT, REPORTING], ids=["silent", "reporting"])
def test_a_busy_worker_sees_to_the_dead(busy_bench: Bench, from_step: int, every_s: float) -> None:
    busy_bench.set(checkpoint=CheckpointSettings(every_s=every_s))
    dead = busy_bench.lease("dead")
    busy_bench.make_child = talkative(steps=4000, from_step=from_step)
    busy_bench.worker()
    busy_bench.run(300.0)
    assert busy_bench.attempts(dead.number)[0].outcome is AttemptOutcome.LOST


@pytest.mark.parametrize("from_step", [SILENT, REPORTING], ids=["silent", "reporting"])
def test_an_attempt_that_takes_its_worker_along_counts(bench: Bench, from_step: int) -> None:
    """FAIR: ten of them without a checkpoint fail the trial, however they ended."""
    bench.set(checkpoint=CheckpointSettings(every_s=1000.0))
    bench.make_child = talkative(steps=4000, from_step=from_step)
    process = bench.worker()
    bench.run(60.0)
    process.die("kill")
    bench.worker("other")
    bench.run(200, until=lambda: len(bench.attempts()) == 2)
    assert bench.attempts()[0].outcome is AttemptOutcome.LOST
    assert bench.trial().no_progress == 1
