"""Many sessions at once, each doing what it may at random: no deadlock, and the ledger never contradicts itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from sweeper.errors import LeaseLost
from sweeper.ids import LeaseId
from sweeper.ledger.checkpoints import commit_checkpoint, retire_checkpoints
from sweeper.ledger.commands import cancel_trials, retry_trials
from sweeper.ledger.database import Database
from sweeper.ledger.leases import expire_dead_holder, expire_leases, lease_trial, release_trial, renew_lease
from sweeper.ledger.requests import register_asker, request_trials, retire_asker
from sweeper.ledger.results import commit_result, record_reports
from sweeper.ledger.sweeps import settle_sweep
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.trial import Grant, Report
from tests.ledger.world import HEARTBEAT_S, LEASE_S, World, asker, checkpoint, new_trials

SESSIONS, TURNS, TRIALS = 8, 60, 6


class Player:
    """One session; it remembers every grant that it was ever given, and uses old ones too."""

    def __init__(self, world: World, db: Database, seed: int) -> None:
        self.world, self.db, self.random = world, db, random.Random(seed)
        self.worker_id = world.worker(f"host{seed}")
        self.grants: list[Grant] = []
        self.seq = 0

    def play(self) -> None:
        moves: list[Callable[[], object]] = [
            self.lease, self.lease, self.lease, self.renew, self.report, self.save, self.release, self.finish,
            self.expire, self.kill, self.cancel, self.retry, self.ask, self.settle,
        ]  # fmt: skip
        for _ in range(TURNS):
            with suppress(LeaseLost):
                self.random.choice(moves)()

    def hex_id(self) -> str:
        return f"{self.random.getrandbits(128):032x}"

    def any(self) -> Grant | None:
        return self.random.choice(self.grants[-3:]) if self.grants else None

    def number(self) -> int:
        return self.random.randrange(TRIALS)

    def lease(self) -> None:
        grant = lease_trial(
            self.db, sweep_id=self.world.sweep_id, worker_id=self.worker_id, lease_id=LeaseId(self.hex_id()),
            lease_s=LEASE_S, heartbeat_s=HEARTBEAT_S, pool="p", host="h", threads=1,
            number_floor=self.number(),
        )  # fmt: skip
        if grant is not None:
            self.grants.append(grant)

    def renew(self) -> None:
        if grant := self.any():
            renew_lease(self.db, grant.lease, lease_s=LEASE_S, child_started=True, step=3)

    def report(self) -> None:
        if grant := self.any():
            step = self.random.randrange(5)
            record_reports(self.db, grant.lease, [Report(step=step, at_step=step, value=1.0)], lease_s=LEASE_S)

    def save(self) -> None:
        if grant := self.any():
            self.seq += 1
            ref = checkpoint(grant, self.seq, self.seq)
            commit_checkpoint(self.db, grant.lease, ref, save_s=0.1, lease_s=LEASE_S)
            retire_checkpoints(self.db, grant.lease, keep=2)

    def release(self) -> None:
        if grant := self.any():
            outcome = self.random.choice([AttemptOutcome.EVICTED, AttemptOutcome.ENVIRONMENT])
            release_trial(self.db, grant.lease, outcome=outcome, reason="r", child_started=False)

    def finish(self) -> None:
        if grant := self.any():
            commit_result(
                self.db, grant.lease, state=TrialState.COMPLETED, outcome=AttemptOutcome.COMPLETED, result=1.0,
                reason="", outcome_key="k", outcome_hash="h", outcome_stored=True,
            )  # fmt: skip

    def expire(self) -> None:
        expire_leases(self.db, self.world.sweep_id, lease_s=LEASE_S, heartbeat_s=HEARTBEAT_S)

    def kill(self) -> None:
        if grant := self.any():
            expire_dead_holder(self.db, grant.lease, reason="dead")

    def cancel(self) -> None:
        cancel_trials(self.db, self.world.sweep_id, [self.number(), self.number(), self.number()])

    def retry(self) -> None:
        numbers = [self.number(), self.number(), self.number()]
        retry_trials(self.db, self.world.sweep_id, numbers, from_zero=self.random.random() < 0.5)

    def ask(self) -> None:
        record = asker(self.hex_id())
        register_asker(self.db, self.world.sweep_id, record)
        request_trials(self.db, self.world.sweep_id, record.asker_id, new_trials(TRIALS))
        retire_asker(self.db, record.asker_id)

    def settle(self) -> None:
        settle_sweep(self.db, self.world.sweep_id)


@pytest.mark.slow
def test_a_storm_of_sessions_leaves_a_ledger_that_agrees_with_itself(world: World, empty_url: str) -> None:
    """ONCE, FENCE. A deadlock or any other failure of a session fails the test."""
    world.add(TRIALS)

    def play(seed: int) -> int:
        with Database(empty_url, f"player {seed}", world.clock) as db:
            player = Player(world, db, seed)
            player.play()
            return len(player.grants)

    with ThreadPoolExecutor(SESSIONS) as pool:
        grants = sum(pool.map(play, range(SESSIONS)))
    assert grants > SESSIONS
    for nothing in (
        # an attempt is open exactly while its lease runs
        "SELECT 1 FROM sweeper.trials t FULL JOIN (SELECT lease_id FROM sweeper.attempts WHERE ended_at IS NULL) a"
        " ON a.lease_id = t.lease_id WHERE (t.state = 'running') IS DISTINCT FROM (a.lease_id IS NOT NULL)",
        # every grant raised the fence by one and opened one attempt
        "SELECT 1 FROM sweeper.trials t WHERE t.fence <> t.attempts OR t.attempts <>"
        " (SELECT count(DISTINCT a.fence) FROM sweeper.attempts a WHERE a.trial_id = t.trial_id)",
        # a config completes at most once in a lineage
        "SELECT 1 FROM sweeper.attempts WHERE outcome = 'completed' GROUP BY trial_id, lineage HAVING count(*) > 1",
        # a head is a live checkpoint of the trial's own lineage
        "SELECT 1 FROM sweeper.trials t JOIN sweeper.checkpoints c ON c.checkpoint_id = t.head_id"
        " WHERE c.state <> 'live' OR c.lineage <> t.lineage OR c.trial_id <> t.trial_id OR c.step <> t.head_step",
        # what a holder cannot resume from is not shown: reports lie within the head, or are the holder's own
        "SELECT 1 FROM sweeper.reports r JOIN sweeper.trials t USING (trial_id)"
        " WHERE t.state = 'running' AND r.fence < t.fence AND r.at_step > coalesce(t.head_step, -1)",
        # a checkpoint was committed under the lease it names, of that fence
        "SELECT 1 FROM sweeper.checkpoints c JOIN sweeper.attempts a USING (lease_id) WHERE a.fence <> c.fence",
        # nobody takes a number for a known config
        f"SELECT 1 FROM sweeper.trials HAVING count(*) <> {TRIALS}",
        # every lineage has its config
        "SELECT 1 FROM sweeper.trials t WHERE NOT EXISTS"
        " (SELECT FROM sweeper.configs c WHERE c.trial_id = t.trial_id AND c.lineage = t.lineage)",
    ):
        assert world.sql(nothing) == [], nothing
