"""Many sessions at once, each doing what it may at random: no deadlock, and the ledger never contradicts itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from sweeper.errors import LeaseLost, NumberTaken
from sweeper.ids import LeaseId
from sweeper.ledger.checkpoints import commit_checkpoint, retire_checkpoints
from sweeper.ledger.commands import cancel_trials, retry_trials
from sweeper.ledger.database import Database
from sweeper.ledger.decisions import record_decisions
from sweeper.ledger.leases import expire_dead_holder, expire_leases, lease_trial, release_trial, renew_lease
from sweeper.ledger.promotions import exploit_trial, newest_checkpoint, promote_trial, prune_paused
from sweeper.ledger.reads import trials
from sweeper.ledger.requests import register_asker, request_trials, retire_asker
from sweeper.ledger.results import commit_result, record_reports
from sweeper.ledger.searches import search_standing
from sweeper.ledger.sweeps import settle_sweep
from sweeper.model.search import Decision, DecisionKind, Proposal
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.trial import Grant, Report, Trial
from tests.ledger.search_world import SearchWorld
from tests.ledger.world import HEARTBEAT_S, LEASE_S, asker, checkpoint, new_trial, new_trials

SESSIONS, TURNS, TRIALS = 8, 60, 6


class Player:
    """One session; it remembers every grant that it was ever given, and uses old ones too."""

    def __init__(self, world: SearchWorld, db: Database, seed: int) -> None:
        self.world, self.db, self.random = world, db, random.Random(seed)
        self.worker_id = world.worker(f"host{seed}")
        self.grants: list[Grant] = []
        self.seq = 0

    def play(self) -> None:
        moves: list[Callable[[], object]] = [
            self.lease, self.lease, self.lease, self.renew, self.report, self.save, self.release, self.finish,
            self.expire, self.kill, self.cancel, self.retry, self.ask, self.settle, self.decide, self.pause,
            self.promote, self.prune, self.exploit, self.propose,
        ]  # fmt: skip
        for _ in range(TURNS):
            with suppress(LeaseLost, NumberTaken):
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

    # All sessions choose in the name of one coordinator, as one whose replies are lost and who tries again would.

    def paused(self) -> Trial | None:
        found = [trial for trial in trials(self.db, self.world.sweep_id) if trial.state is TrialState.PAUSED]
        return self.random.choice(found) if found else None

    def about(self, trial: Trial, kind: DecisionKind, action: str = "go_on") -> Decision:
        return Decision(
            trial_id=trial.trial_id, number=trial.number, lineage=trial.lineage, kind=kind,
            step=self.random.randrange(5), action=action,
        )  # fmt: skip

    def decide(self) -> None:
        action = self.random.choice(["go_on", "prune", "pause"])
        about = [self.about(trial, DecisionKind.RUNG, action) for trial in trials(self.db, self.world.sweep_id)]
        self.random.shuffle(about)
        record_decisions(self.db, *self.world.leader, about[:3])

    def pause(self) -> None:
        if grant := self.any():
            release_trial(self.db, grant.lease, outcome=AttemptOutcome.PAUSED, reason="at a rung", child_started=False)

    def promote(self) -> None:
        if trial := self.paused():
            promote_trial(self.db, *self.world.leader, self.about(trial, DecisionKind.PROMOTE), priority=1)

    def prune(self) -> None:
        if trial := self.paused():
            prune_paused(self.db, *self.world.leader, trial.trial_id, result=1.0, reason="left over", step=2)

    def exploit(self) -> None:
        source = newest_checkpoint(self.db, self.world.sweep_id, self.number())
        if (trial := self.paused()) and source is not None:
            exploit_trial(
                self.db, *self.world.leader, heir=trial.trial_id, source_checkpoint_id=source,
                new=new_trial("exploited"), proposal=Proposal(), decision=self.about(trial, DecisionKind.EXPLOIT),
            )  # fmt: skip

    def propose(self) -> None:
        self.world.propose(search_standing(self.db, self.world.sweep_id).next_number, "c0", db=self.db)

    def settle(self) -> None:
        settle_sweep(self.db, self.world.sweep_id)


@pytest.mark.slow
def test_a_storm_of_sessions_leaves_a_ledger_that_agrees_with_itself(search: SearchWorld, empty_url: str) -> None:
    """ONCE, FENCE. A deadlock or any other failure of a session fails the test."""
    world = search
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
        # a head is a live checkpoint of the trial's own lineage, or what it inherited, pinned
        "SELECT 1 FROM sweeper.trials t JOIN sweeper.checkpoints c ON c.checkpoint_id = t.head_id"
        " WHERE c.step <> t.head_step"
        " OR ((c.state <> 'live' OR c.lineage <> t.lineage OR c.trial_id <> t.trial_id) AND NOT EXISTS ("
        " SELECT FROM sweeper.pins p WHERE p.checkpoint_id = c.checkpoint_id AND p.trial_id = t.trial_id"
        " AND p.reason = 'heir'))",
        # what a holder cannot resume from is not shown: reports lie within the head, or are the holder's own
        "SELECT 1 FROM sweeper.reports r JOIN sweeper.trials t USING (trial_id)"
        " WHERE t.state = 'running' AND r.fence < t.fence AND r.at_step > coalesce(t.head_step, -1)"
        " AND t.stop_kind IS NULL",
        # numbers have no gap, and the next one is the next one
        "SELECT 1 FROM sweeper.numbers n JOIN sweeper.coordinators c USING (sweep_id)"
        " GROUP BY c.next_number HAVING count(*) <> c.next_number OR max(n.number) <> c.next_number - 1",
        # a lineage of an heir was decided on
        "SELECT 1 FROM sweeper.configs f WHERE f.proposal IS NOT NULL AND NOT EXISTS (SELECT FROM sweeper.decisions d"
        " WHERE d.trial_id = f.trial_id AND d.lineage = f.lineage - 1 AND d.kind = 'exploit')"
        " AND f.lineage = (SELECT t.lineage FROM sweeper.trials t WHERE t.trial_id = f.trial_id)",
        # a checkpoint was committed under the lease it names, of that fence
        "SELECT 1 FROM sweeper.checkpoints c JOIN sweeper.attempts a USING (lease_id) WHERE a.fence <> c.fence",
        # nobody takes a number for a known config
        f"SELECT 1 FROM sweeper.trials HAVING count(*) <> {TRIALS}",
        # every lineage has its config
        "SELECT 1 FROM sweeper.trials t WHERE NOT EXISTS"
        " (SELECT FROM sweeper.configs c WHERE c.trial_id = t.trial_id AND c.lineage = t.lineage)",
    ):
        assert world.sql(nothing) == [], nothing
