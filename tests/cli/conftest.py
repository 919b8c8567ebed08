"""A real ledger with one sweep whose trials stand in every state that people meet."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sweeper.checkpoint.keys import trial_prefix
from sweeper.cli.app import main
from sweeper.ids import AskerId, ConfigHash, LeaseId, SweepId, TrialNumber, WorkerId
from sweeper.ledger.checkpoints import commit_checkpoint
from sweeper.ledger.database import Database
from sweeper.ledger.leases import lease_trial, register_worker, release_trial, renew_lease
from sweeper.ledger.requests import register_asker, request_trials, retire_asker
from sweeper.ledger.results import commit_result, record_reports
from sweeper.ledger.sweeps import open_sweep
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.trial import (
    AskerRecord,
    CheckpointRef,
    Grant,
    Json,
    NewTrial,
    Report,
    Sweep,
    SweepSpec,
    WorkerRecord,
)

WORKER = WorkerId("c0ffee" + "0" * 26)


@dataclass(kw_only=True)
class Sweeping:
    """Builds a sweep by the ledger's own statements."""

    database: Database
    folder: Path
    name: str = "digits"
    asker: AskerId = field(default_factory=lambda: AskerId(secrets.token_hex(16)))

    def open(self) -> Sweep:
        spec = SweepSpec(
            name=self.name,
            task="train:train",
            source_digest="d" * 64,
            sweep_dir=str(self.folder),
            store_url="file:///store",
        )
        self.sweep = open_sweep(self.database, spec, new_id=SweepId(secrets.token_hex(16)))
        record = AskerRecord(
            asker_id=self.asker, host="here", boot_id="boot", lock_path="/lock", lock_inode="1:1", pid=1
        )
        register_asker(self.database, self.sweep.sweep_id, record)
        worker = WorkerRecord(
            worker_id=WORKER, host="here", boot_id="boot", lock_path="/lock", lock_inode="1:1", pid=1, pool="local"
        )
        register_worker(self.database, worker, sweep_id=self.sweep.sweep_id)
        return self.sweep

    def request(self, *params: dict[str, Json]) -> None:
        trials = [
            NewTrial(
                config_hash=ConfigHash(f"{0xAB00 + i:04x}" + "e" * 60),
                config_text="{}",
                overrides=tuple(f"{key}={value}" for key, value in each.items()),
                params=each,
            )
            for i, each in enumerate(params)
        ]
        request_trials(self.database, self.sweep.sweep_id, self.asker, trials)

    def lease(self) -> Grant:
        grant = lease_trial(
            self.database,
            sweep_id=self.sweep.sweep_id,
            worker_id=WORKER,
            lease_id=LeaseId(secrets.token_hex(16)),
            lease_s=60,
            heartbeat_s=15,
            pool="local",
            host="here",
            threads=1,
        )
        assert grant is not None
        renew_lease(self.database, grant.lease, lease_s=60, child_started=True, step=0)
        return grant

    def checkpoint(self, grant: Grant, *, seq: int, step: int) -> CheckpointRef:
        folder = trial_prefix(grant.sweep_id, grant.config_hash)
        ref = CheckpointRef(
            fence=grant.lease.fence,
            seq=seq,
            step=step,
            manifest_key=f"{folder}{grant.lease.fence}-abc/{seq}/manifest.json",
            manifest_hash="0" * 64,
            size_bytes=2048,
        )
        commit_checkpoint(self.database, grant.lease, ref, save_s=0.1, lease_s=60)
        return ref

    def complete(self, grant: Grant, result: Json, *, step: int) -> None:
        commit_result(
            self.database,
            grant.lease,
            state=TrialState.COMPLETED,
            outcome=AttemptOutcome.COMPLETED,
            result=result,
            reason="completed",
            outcome_key="outcome",
            outcome_hash="1" * 64,
            outcome_stored=True,
            exit_code=0,
            last_step=step,
        )

    def fail(self, grant: Grant, error: str) -> None:
        commit_result(
            self.database,
            grant.lease,
            state=TrialState.FAILED,
            outcome=AttemptOutcome.INVALID,
            result=None,
            reason="invalid",
            error=error,
            outcome_key="outcome",
            outcome_hash="1" * 64,
            outcome_stored=True,
        )


@pytest.fixture
def sweeping(ledger_database: Database, tmp_path: Path) -> Sweeping:
    """Trials: 0 completed after an eviction, 1 failed, 2 running with a checkpoint, 3 pending."""
    sweeping = Sweeping(database=ledger_database, folder=tmp_path / "multirun")
    sweeping.open()
    sweeping.request(
        {"lr": 0.1, "amp": "on"}, {"lr": 0.1, "amp": True}, {"lr": 1, "amp": False}, {"lr": 1.0, "amp": None}
    )
    grant = sweeping.lease()
    sweeping.checkpoint(grant, seq=1, step=50)
    release_trial(
        ledger_database, grant.lease, outcome=AttemptOutcome.EVICTED, reason="SIGTERM", last_step=60, exit_code=75
    )
    grant = sweeping.lease()
    assert grant.number == TrialNumber(0)
    record_reports(
        ledger_database, grant.lease, [Report(step=1, at_step=70, value=0.25, metrics={"accuracy": 0.5})], lease_s=60
    )
    sweeping.complete(grant, 0.125, step=100)
    sweeping.fail(sweeping.lease(), "ValueError: loss is nan\nreturn the objective")
    running = sweeping.lease()
    sweeping.checkpoint(running, seq=1, step=20)
    renew_lease(ledger_database, running.lease, lease_s=60, step=33)
    return sweeping


@pytest.fixture
def without_asker(sweeping: Sweeping) -> Sweeping:
    """The same, after the command that asked has gone."""
    retire_asker(sweeping.database, sweeping.asker)
    return sweeping


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(
    ledger_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Command:
    """Run the command line in this process; gives status, output and error stream."""
    monkeypatch.setenv("SWEEPER_DATABASE_URL", ledger_url)
    monkeypatch.setenv("SWEEPER_STORE_URL", (tmp_path / "store").as_uri())
    monkeypatch.setenv("SWEEPER_HOME", str(tmp_path / "home"))

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["sweeper", *arguments])
        capfd.readouterr()
        try:
            main()
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        out, err = capfd.readouterr()
        return status, out, err

    return run
