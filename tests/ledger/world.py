"""A sweep with an asker and workers, on a real ledger under a clock that the test moves."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from sweeper.ids import AskerId, ConfigHash, LeaseId, SweepId, WorkerId
from sweeper.ledger.checkpoints import commit_checkpoint
from sweeper.ledger.leases import Expired, expire_leases, lease_trial, register_worker, release_trial
from sweeper.ledger.reads import attempts_of, trials
from sweeper.ledger.requests import register_asker, request_trials
from sweeper.ledger.results import commit_result
from sweeper.ledger.statements import Statements
from sweeper.ledger.sweeps import open_sweep
from sweeper.model.retry import RetryPolicy
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.trial import (
    AskerRecord,
    Attempt,
    CheckpointRef,
    Grant,
    Json,
    Lease,
    NewTrial,
    Sweep,
    SweepSpec,
    Trial,
    WorkerRecord,
)

LEASE_S = 60.0
HEARTBEAT_S = 15.0
START = datetime(2030, 1, 1, tzinfo=UTC)

_count = itertools.count(1)


def hex_id() -> str:
    return f"{next(_count):032x}"


def new_trial(name: str, **params: Json) -> NewTrial:
    text = f'{{"x":"{name}"}}'
    digest = hashlib.sha256(text.encode()).hexdigest()
    return NewTrial(config_hash=ConfigHash(digest), config_text=text, overrides=(f"x={name}",), params=params)


def new_trials(count: int, prefix: str = "c") -> list[NewTrial]:
    return [new_trial(f"{prefix}{index}") for index in range(count)]


def spec(name: str = "digits", **changes: Any) -> SweepSpec:
    base = SweepSpec(
        name=name,
        task="train:main",
        source_digest="0" * 64,
        sweep_dir="/sweeps/digits",
        store_url="file:///store",
    )
    return replace(base, **changes)


def asker(asker_id: str | None = None) -> AskerRecord:
    return AskerRecord(
        asker_id=AskerId(asker_id or hex_id()),
        host="h1",
        boot_id="boot1",
        lock_path="/locks/a",
        lock_inode="1:2",
        pid=1,
    )


@dataclass
class Clock:
    """Virtual time of the database; None would be the server's own."""

    now: datetime = START

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@dataclass
class World:
    db: Statements
    clock: Clock
    sweep: Sweep
    asker_id: AskerId
    hosts: dict[str, str] = field(default_factory=dict)

    @classmethod
    def build(
        cls, db: Statements, clock: Clock, *, retry: RetryPolicy | None = None, name: str = "digits", **changes: Any
    ) -> World:
        sweep = open_sweep(db, spec(name, retry=retry or RetryPolicy(), **changes), new_id=SweepId(hex_id()))
        record = asker()
        register_asker(db, sweep.sweep_id, record)
        return cls(db, clock, sweep, record.asker_id)

    @property
    def sweep_id(self) -> SweepId:
        return self.sweep.sweep_id

    def add(self, count: int = 1, prefix: str = "c") -> list[Trial]:
        return request_trials(self.db, self.sweep_id, self.asker_id, new_trials(count, prefix))

    def worker(self, host: str = "h1", boot_id: str = "boot1") -> WorkerId:
        worker_id = WorkerId(hex_id())
        record = WorkerRecord(
            worker_id=worker_id, host=host, boot_id=boot_id, lock_path="/locks/w", lock_inode="1:2", pid=7, pool="local"
        )
        register_worker(self.db, record, sweep_id=self.sweep_id)
        self.hosts[worker_id] = host
        return worker_id

    def try_lease(
        self,
        worker_id: WorkerId | None = None,
        *,
        lease_id: str | None = None,
        floor: int = 0,
        threads: int = 1,
        scarce: bool = False,
    ) -> Grant | None:
        worker_id = worker_id or self.worker()
        return lease_trial(
            self.db,
            sweep_id=self.sweep_id,
            worker_id=worker_id,
            lease_id=LeaseId(lease_id or hex_id()),
            lease_s=LEASE_S,
            heartbeat_s=HEARTBEAT_S,
            pool="local",
            host=self.hosts[worker_id],
            threads=threads,
            number_floor=floor,
            scarce=scarce,
        )

    def lease(self, worker_id: WorkerId | None = None, **settings: Any) -> Grant:
        grant = self.try_lease(worker_id, **settings)
        assert grant is not None, "there is a trial to lease"
        return grant

    def expire(self, limit: int = 20) -> list[Expired]:
        return expire_leases(self.db, self.sweep_id, lease_s=LEASE_S, heartbeat_s=HEARTBEAT_S, limit=limit)

    def pass_time(self, seconds: float, *, beat: Callable[[], object] | None = None) -> None:
        """Let time pass while the ledger is awake: some worker's expiry statement runs with every heartbeat."""
        for _ in range(int(seconds // HEARTBEAT_S)):
            self.clock.advance(HEARTBEAT_S)
            (beat or self.touch)()

    def touch(self) -> None:
        """A heartbeat of another sweep's worker: the pulse beats, and nothing of this sweep expires."""
        expire_leases(self.db, SweepId("elsewhere"), lease_s=LEASE_S, heartbeat_s=HEARTBEAT_S)

    def awake(self, seconds: float) -> None:
        """Let time pass as `pass_time` does, in one statement."""
        self.clock.advance(seconds)
        self.sql("UPDATE sweeper.pulse SET last_seen_at = :now", now=self.clock.now)

    def expire_all(self) -> list[Expired]:
        """Let every running lease run out, with a pulse, and take it."""
        self.pass_time(3 * LEASE_S)
        return self.expire()

    def trial(self, number: int = 0) -> Trial:
        return trials(self.db, self.sweep_id, [number])[0]

    def attempts(self, number: int = 0) -> list[Attempt]:
        return attempts_of(self.db, self.trial(number).trial_id)

    def row(self, number: int = 0) -> sa.Row[Any]:
        """Columns that no reader shows."""
        return self.sql(
            "SELECT version, saved_seq, child_started, lease_expires_at, crash_host, crashed_at, finished_at, reason,"
            " outcome_hash, attempts FROM sweeper.trials WHERE sweep_id = :s AND number = :n",
            s=self.sweep_id,
            n=number,
        )[0]

    def sql(self, text: str, **parameters: Any) -> Sequence[sa.Row[Any]]:
        return self.db.run(sa.text(text), parameters)

    def save(self, grant: Grant, seq: int, step: int, **changes: Any) -> CheckpointRef:
        ref = replace(checkpoint(grant, seq, step), **changes)
        commit_checkpoint(self.db, grant.lease, ref, save_s=0.1, lease_s=LEASE_S)
        return ref

    def complete(self, lease: Lease, value: Json = 1.5, **settings: Any) -> None:
        settings = {"outcome_key": "k", "outcome_hash": "h", "outcome_stored": True, "reason": "returned", **settings}
        commit_result(
            self.db, lease, state=TrialState.COMPLETED, outcome=AttemptOutcome.COMPLETED, result=value, **settings
        )

    def release(self, lease: Lease, outcome: AttemptOutcome = AttemptOutcome.EVICTED, **settings: Any) -> TrialState:
        return release_trial(self.db, lease, outcome=outcome, **{"reason": "told to", **settings})


def checkpoint(grant: Grant, seq: int, step: int) -> CheckpointRef:
    prefix = f"trials/{grant.config_hash}/{grant.lease.fence}-{grant.lease.lease_id[-8:]}/{seq}"
    return CheckpointRef(
        fence=grant.lease.fence,
        seq=seq,
        step=step,
        manifest_key=f"{prefix}/manifest.json",
        manifest_hash=f"hash-{seq}-{step}",
        size_bytes=100,
    )
