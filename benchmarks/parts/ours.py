"""Our side: the sweep, who asks for it, its coordinator's search, and a worker without a child."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Final

from parts.history import SAMPLERS, SPEC

from sweeper.clock import SystemClock
from sweeper.coordinator.parts import SearchPlan
from sweeper.coordinator.proposing import Chooser
from sweeper.coordinator.searching import Searching
from sweeper.ids import AskerId, CoordinatorId, LeaseId, SweepId, WorkerId
from sweeper.ledger.database import Database
from sweeper.ledger.leases import lease_trial, register_worker
from sweeper.ledger.requests import register_asker
from sweeper.ledger.sweeps import open_sweep, require_sweep
from sweeper.model.search import SearchSpec
from sweeper.model.trial import AskerRecord, Grant, Sweep, SweepSpec, WorkerRecord
from sweeper.plain.config import Configs
from sweeper.search.optimizer import Optimizer
from sweeper.settings import IdentitySettings, LeaseSettings

STUDY: Final = "bench"
CONFIGS: Final = Configs({"epochs": 10, "data": {"name": "digits", "batch": 32}}, IdentitySettings())
"""Makes jobs of proposals as `sweeper.sweep` does."""
LEASE: Final = LeaseSettings()


def hex_id() -> str:
    """Draw an id as processes do."""
    return secrets.token_hex(16)


def begin(database: Database, sampler: str) -> tuple[SweepId, AskerId]:
    """Write the sweep's row, and the command that asks for its trials."""
    sweep = open_sweep(database, sweep_spec(sampler), new_id=SweepId(hex_id()))
    record = asker(AskerId(hex_id()))
    register_asker(database, sweep.sweep_id, record)
    return sweep.sweep_id, record.asker_id


def the_sweep(database: Database) -> Sweep:
    """Find it again."""
    return require_sweep(database, STUDY)


def search_of(sweep: Sweep) -> SearchSpec:
    """Give what is searched."""
    assert sweep.search is not None
    return SearchSpec.from_json(sweep.search)


def asker(asker_id: AskerId) -> AskerRecord:
    """A command; nobody looks for its lock here."""
    return AskerRecord(
        asker_id=asker_id, host="bench", boot_id="none", lock_path="/none", lock_inode="0:0", pid=1
    )  # fmt: skip


def searching(
    database: Database, sweep: Sweep, coordinator_id: CoordinatorId, asker_id: AskerId, *, workers: int
) -> Searching:
    """Build the search as the wiring does."""
    spec = search_of(sweep)
    return Searching(
        Chooser(database=database, sweep_id=sweep.sweep_id, coordinator_id=coordinator_id, asker_id=asker_id),
        SearchPlan(spec=spec, compose=lambda _, params: CONFIGS.identify(params)),
        Optimizer(spec, seed=sweep.seed),
        clock=SystemClock(),
        workers=workers,
        seed=sweep.seed,
        note=print,
    )


class Worker:
    """A worker as the ledger knows it."""

    def __init__(self, database: Database, sweep_id: SweepId) -> None:
        self._database = database
        self._sweep_id = sweep_id
        self._worker_id = WorkerId(hex_id())
        record = WorkerRecord(
            worker_id=self._worker_id, host="bench", boot_id="none", lock_path="/none", lock_inode="0:0", pid=1,
            pool="local",
        )  # fmt: skip
        self._floor = 0
        register_worker(database, record, sweep_id=sweep_id)

    def lease(self, *, scarce: bool = False) -> Grant | None:
        """Ask for a trial; `scarce`: there is probably none."""
        grant = lease_trial(
            self._database,
            sweep_id=self._sweep_id,
            worker_id=self._worker_id,
            lease_id=LeaseId(hex_id()),
            lease_s=LEASE.lease_s,
            heartbeat_s=LEASE.heartbeat_s,
            pool="local",
            host="bench",
            threads=1,
            number_floor=self._floor,
            scarce=scarce,
        )
        if grant is not None:
            self._floor = grant.number
        return grant


def sweep_spec(sampler: str) -> SweepSpec:
    """Say what the sweep is."""
    search = replace(SPEC, sampler=SAMPLERS[sampler])
    return SweepSpec(
        name=STUDY, task="bench:objective", source_digest="0" * 64, sweep_dir="/none", store_url="file:///none",
        search=search.as_json(),
    )  # fmt: skip
