"""A worker under virtual time in fair weather: real ledger, a store in memory, and faults only where a test asks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from sweeper.ids import AskerId, ConfigHash, LeaseId, SweepId, WorkerId
from sweeper.ledger.database import Database
from sweeper.ledger.leases import lease_trial
from sweeper.ledger.reads import attempts_of, checkpoints_of, trials
from sweeper.ledger.requests import register_asker, request_trials
from sweeper.ledger.sweeps import open_sweep
from sweeper.model.messages import Start
from sweeper.model.search import SearchSpec
from sweeper.model.trial import AskerRecord, Attempt, CheckpointRef, Grant, NewTrial, SweepSpec, Trial, WorkerRecord
from sweeper.model.waits import Notice
from sweeper.settings import CheckpointSettings, LeaseSettings, WorkerSettings
from sweeper.worker.parts import WorkerParts, facts_of
from sweeper.worker.program import worker_program
from tests.simulation.child import SimChild
from tests.simulation.faults import MemoryStore, Rates, SimStatements, SimStore, Weather
from tests.simulation.world import Process, SimBackground, World

STEPS = 12
MakeChild = Callable[[Process, Start, int | None], SimChild]


def plain_child(process: Process, start: Start, restore_fd: int | None) -> SimChild:
    """Trains `STEPS` steps and returns."""
    return SimChild(process, start, restore_fd, steps=STEPS, padding=0, crash=None)


def crashing_child(how: str, at_step: int) -> MakeChild:
    """A child that ends as `how` (error, signal, hang) at that step; 0 is before user code."""

    def make(process: Process, start: Start, restore_fd: int | None) -> SimChild:
        child = SimChild(process, start, restore_fd, steps=STEPS, padding=0, crash=how)
        child._crash_at = at_step
        return child

    return make


class Bench:
    """One sweep with some pending trials, and what a test needs to look at."""

    def __init__(self, database_url: str, *, trials_: int = 1, search: SearchSpec | None = None) -> None:
        self.world = World(1)
        self.database = Database(database_url, "bench", now=self.world.database_now)
        self.store = MemoryStore()
        self.weather = Weather(self.world, Rates())
        self.weather.on = False
        self.children: list[SimChild] = []
        self.starts: list[Start] = []
        self.make_child: MakeChild = plain_child
        self.settings = WorkerSettings(
            lease=LeaseSettings(lease_s=60.0, heartbeat_s=15.0, blind_s=120.0),
            checkpoint=CheckpointSettings(every_s=4.0),
        )
        spec = SweepSpec(
            name="bench", task="bench:train", source_digest="0" * 64, sweep_dir="/nowhere", store_url=self.store.url,
            search=None if search is None else search.as_json(),
        )  # fmt: skip
        self.sweep = open_sweep(self.database, spec, new_id=SweepId("a" * 32))
        asker = AskerRecord(asker_id=AskerId("b" * 32), host="h", boot_id="h", lock_path="x", lock_inode="0:0", pid=1)
        register_asker(self.database, self.sweep.sweep_id, asker)
        self.asker = asker
        request_trials(self.database, self.sweep.sweep_id, asker.asker_id, [new_trial(n) for n in range(trials_)])

    def worker(self, name: str = "w") -> Process:
        """Start a worker now."""
        process = Process(self.world, name)
        worker_id = WorkerId(hashlib.md5(name.encode()).hexdigest())
        draw = self.world.random(f"id/{name}")

        def start_child(start: Start, restore_fd: int | None) -> SimChild:
            self.starts.append(start)
            self.children.append(self.make_child(process, start, restore_fd))
            return self.children[-1]

        record = WorkerRecord(
            worker_id=worker_id, host=name, boot_id=name, lock_path=name, lock_inode="0:0", pid=1, pool="bench"
        )
        parts = WorkerParts(
            database=SimStatements(process, self.database, self.weather),
            store=SimStore(process, self.store, self.weather),
            clock=process.clock,
            background=SimBackground(process),
            start_child=start_child,
            random_hex=lambda: f"{draw.getrandbits(128):032x}",
            jitter=draw.random,
            holder_is_dead=lambda holder: False,
            output_subdir=lambda grant: str(grant.number),
            sweep=facts_of(self.sweep),
            record=record,
            settings=self.settings,
        )
        process.start(worker_program(parts))
        return process

    def set(self, **changes: Any) -> None:
        """Change settings of workers to come."""
        self.settings = replace(self.settings, **changes)

    def run(self, seconds: float, *, until: Callable[[], bool] = lambda: False) -> None:
        """Let time pass, at most so long."""
        self.world.run(self.world.now_s + seconds, until)

    def evict(self, process: Process) -> None:
        """Give a notice, as SIGTERM does."""
        process.notify(Notice(source="signal", reason="SIGTERM"))

    def lease(self, name: str = "other") -> Grant:
        """Take a trial as another worker would."""
        grant = lease_trial(
            self.database, sweep_id=self.sweep.sweep_id, worker_id=WorkerId(hashlib.md5(name.encode()).hexdigest()),
            lease_id=LeaseId(hashlib.md5(name.encode()).hexdigest()), lease_s=60.0, heartbeat_s=15.0, pool="bench",
            host=name, threads=1,
        )  # fmt: skip
        assert grant is not None
        return grant

    def forget(self) -> None:
        """Put the sweep's rows back to when nothing had run yet, as a restored copy of the database does."""
        mine = "sweep_id = :sweep_id"
        trials_ = f"SELECT trial_id FROM sweeper.trials WHERE {mine}"
        for text in (
            f"UPDATE sweeper.trials SET state = 'pending', fence = 0, lease_id = NULL, worker_id = NULL,"
            f" lease_expires_at = NULL, attempts = 0, step = 0, head_id = NULL, head_step = NULL, result = NULL,"
            f" outcome_key = NULL, outcome_hash = NULL, outcome_stored = false, finished_at = NULL, reason = NULL"
            f" WHERE {mine}",
            *(f"DELETE FROM sweeper.{table} WHERE trial_id IN ({trials_})"
              for table in ("attempts", "checkpoints", "reports")),
        ):  # fmt: skip
            self.database.run(sa.text(text), {"sweep_id": self.sweep.sweep_id})

    def trial(self, number: int = 0) -> Trial:
        return trials(self.database, self.sweep.sweep_id, [number])[0]

    def attempts(self, number: int = 0) -> list[Attempt]:
        return attempts_of(self.database, self.trial(number).trial_id)

    def checkpoints(self, number: int = 0) -> list[CheckpointRef]:
        return checkpoints_of(self.database, self.trial(number).trial_id)


def new_trial(number: int) -> NewTrial:
    """A config of its own per number."""
    text = f'{{"x": {number}}}'
    return NewTrial(
        config_hash=ConfigHash(hashlib.sha256(text.encode()).hexdigest()), config_text=text,
        overrides=(f"x={number}",), params={"x": number},
    )  # fmt: skip
