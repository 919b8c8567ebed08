"""Searches with real processes, signals, ledger and store: whatever happens, a trial ends bit for bit the same."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeper.checkpoint.store import open_store
from sweeper.ids import AskerId, ConfigHash, CoordinatorId, SweepId
from sweeper.ledger.database import Database
from sweeper.ledger.decisions import record_decisions, undecided_reports
from sweeper.ledger.promotions import exploit_trial, newest_checkpoint, promote_trial
from sweeper.ledger.reads import attempts_of, reports_of, trials
from sweeper.ledger.requests import register_asker, request_trials
from sweeper.ledger.sweeps import acquire_coordinator, open_sweep
from sweeper.model.search import Decision, DecisionKind, Proposal, SearchSpec
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.trial import AskerRecord, NewTrial, SweepSpec, Trial

from .real_worker import NAME
from .searching import WAITING, WAITING_RUNGS, Choose, at, go_on

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 90.0
EPOCHS = 4
Exact = tuple[Any, list[tuple[int, int, str]]]


def job(*, lr: float = 0.01) -> NewTrial:
    overrides = ("exact", f"epochs={EPOCHS}", f"lr={lr}")
    text = " ".join(overrides)
    return NewTrial(
        config_hash=ConfigHash(hashlib.sha256(text.encode()).hexdigest()), config_text=text, overrides=overrides
    )


class Desk:
    """The coordinator's place, taken by the test, and the workers that it starts."""

    def __init__(self, folder: Path, database_url: str, search: SearchSpec, jobs: list[NewTrial]) -> None:
        self._folder, self._database_url = folder, database_url
        self._store = (folder / "store").as_uri()
        self.database = Database(database_url, "desk")
        open_store(self._store)
        spec = SweepSpec(
            name=NAME, task="real:train", source_digest="0" * 64, sweep_dir=str(folder / "out"), store_url=self._store,
            search=search.as_json(),
        )  # fmt: skip
        self.sweep = open_sweep(self.database, spec, new_id=SweepId("a" * 32))
        asker = AskerRecord(asker_id=AskerId("b" * 32), host="h", boot_id="h", lock_path="x", lock_inode="0:0", pid=1)
        register_asker(self.database, self.sweep.sweep_id, asker)
        request_trials(self.database, self.sweep.sweep_id, asker.asker_id, jobs)
        self.leader = CoordinatorId("c" * 32)
        self.fence = acquire_coordinator(self.database, self.sweep.sweep_id, self.leader, lease_s=1e6) or 0
        self.kind = DecisionKind.REPORT if search.pruner else DecisionKind.RUNG
        self.workers: list[subprocess.Popen[bytes]] = []

    def start_worker(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.worker.real_worker"]
        arguments = [str(self._folder / "home"), self._database_url, self._store]
        log = (self._folder / f"worker-{len(self.workers)}.log").open("wb")
        self.workers.append(subprocess.Popen([*command, *arguments], cwd=REPOSITORY, stdout=log, stderr=log))
        log.close()
        return self.workers[-1]

    def decide(self, choose: Choose = go_on) -> None:
        """A coordinator's turn."""
        decisions = [
            Decision(
                trial_id=trial_id, number=number, lineage=lineage, kind=self.kind, step=report.step, action=action,
                value=report.value,
            )
            for trial_id, number, lineage, report in undecided_reports(
                self.database, self.sweep.sweep_id, kind=self.kind, limit=100
            )
            if (action := choose(report.step)) is not None
        ]  # fmt: skip
        if decisions:
            record_decisions(self.database, self.sweep.sweep_id, self.leader, self.fence, decisions)

    def lead(self, choose: Choose, until: Callable[[], bool]) -> None:
        """Take turns until something has come true."""
        begun = time.monotonic()  # noqa: TID251
        while not until():
            assert time.monotonic() - begun < PATIENCE_S, self._logs()  # noqa: TID251
            self.decide(choose)
            time.sleep(0.02)  # noqa: TID251

    def to(self, state: TrialState, choose: Choose = go_on, *, number: int = 0) -> None:
        self.lead(choose, lambda: self.trial(number).state is state)

    def waits_on(self, step: int, number: int = 0) -> Callable[[], bool]:
        """Whether that report is in the ledger, undecided: its trial stands still."""

        def look() -> bool:
            found = undecided_reports(self.database, self.sweep.sweep_id, kind=self.kind, limit=100)
            return any((at_number, report.step) == (number, step) for _, at_number, _, report in found)

        return look

    def trial(self, number: int = 0) -> Trial:
        return trials(self.database, self.sweep.sweep_id, [number])[0]

    def end(self, number: int = 0) -> Exact:
        """Result and reports, exact to the bit."""
        trial = self.trial(number)
        reports = reports_of(self.database, trial.trial_id)
        return trial.result, [(report.step, report.at_step, report.value.hex()) for report in reports]

    def outcomes(self, number: int = 0) -> list[AttemptOutcome | None]:
        return [attempt.outcome for attempt in attempts_of(self.database, self.trial(number).trial_id)]

    def promote(self, number: int, step: int) -> bool:
        return promote_trial(
            self.database, self.sweep.sweep_id, self.leader, self.fence, self._move(number, step, DecisionKind.PROMOTE),
            priority=1,
        )  # fmt: skip

    def exploit(self, number: int, step: int, *, source: int, new: NewTrial) -> bool:
        checkpoint = newest_checkpoint(self.database, self.sweep.sweep_id, source)
        assert checkpoint is not None
        return exploit_trial(
            self.database, self.sweep.sweep_id, self.leader, self.fence, heir=self.trial(number).trial_id,
            source_checkpoint_id=checkpoint, new=new, proposal=Proposal(),
            decision=self._move(number, step, DecisionKind.EXPLOIT),
        )  # fmt: skip

    def close(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
            worker.wait()
        self.database.close()

    def _move(self, number: int, step: int, kind: DecisionKind) -> Decision:
        trial = self.trial(number)
        return Decision(
            trial_id=trial.trial_id, number=number, lineage=trial.lineage, kind=kind, step=step, action="go_on"
        )

    def _logs(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self._folder.rglob("*.log")))


MakeDesk = Callable[..., Desk]


@pytest.fixture
def make_desk(tmp_path: Path, ledger_url: str) -> Iterator[MakeDesk]:
    desks: list[Desk] = []

    def make(search: SearchSpec, *jobs: NewTrial) -> Desk:
        desks.append(Desk(tmp_path, ledger_url, search, list(jobs) or [job()]))
        return desks[-1]

    yield make
    for desk in desks:
        desk.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, postgres_server: str, ledger_template: str) -> Exact:
    """The end of a trial that nobody disturbed, trained once for all tests here."""
    from tests.conftest import _database

    for url in _database(postgres_server, template=ledger_template):
        desk = Desk(tmp_path_factory.mktemp("undisturbed"), url, WAITING, [job()])
        try:
            desk.start_worker()
            desk.to(TrialState.COMPLETED)
            return desk.end()
        finally:
            desk.close()
    raise AssertionError("no database")


def test_a_trial_paused_at_a_rung_and_promoted_ends_as_if_nothing_had_happened(
    make_desk: MakeDesk, undisturbed: Exact
) -> None:
    """RESUME, SAME."""
    desk = make_desk(WAITING_RUNGS)
    desk.start_worker()
    desk.to(TrialState.PAUSED, at(2, "pause"))
    head = desk.trial().head
    assert head is not None
    assert head.step == 10, "the end of the second epoch, where the report was made"
    assert desk.promote(0, step=2)
    desk.to(TrialState.COMPLETED)
    assert desk.end() == undisturbed
    assert desk.outcomes() == [AttemptOutcome.PAUSED, AttemptOutcome.COMPLETED]


def test_a_pruned_trial_ends_at_the_very_report(make_desk: MakeDesk, undisturbed: Exact) -> None:
    desk = make_desk(WAITING)
    desk.start_worker()
    desk.to(TrialState.PRUNED, at(2, "prune"))
    value, reports = desk.end()
    assert reports == undisturbed[1][:2]
    assert value.hex() == reports[-1][2]


def test_reports_that_do_not_wait_still_end_with_the_one_that_decided(make_desk: MakeDesk, undisturbed: Exact) -> None:
    slow = replace(job(), overrides=(*job().overrides, "pause_from=3", "pause_s=3.0"))
    desk = make_desk(replace(WAITING, deterministic=False), slow)
    desk.start_worker()
    desk.lead(lambda step: None, desk.waits_on(3))
    desk.to(TrialState.PRUNED, at(2, "prune"))
    value, reports = desk.end()
    assert reports == undisturbed[1][:2]
    assert value.hex() == reports[-1][2]


@pytest.mark.parametrize(
    ("how", "step"),
    [
        (signal.SIGTERM, EPOCHS),
        (signal.SIGKILL, 2),
        pytest.param(signal.SIGTERM, 2, marks=pytest.mark.soak),
        pytest.param(signal.SIGKILL, EPOCHS, marks=pytest.mark.soak),
    ],
)
def test_a_worker_that_goes_while_a_report_waits_changes_nothing(
    make_desk: MakeDesk, undisturbed: Exact, how: signal.Signals, step: int
) -> None:
    """SAME: at the last report, too, after which the function would return."""
    desk = make_desk(WAITING)
    worker = desk.start_worker()
    desk.lead(lambda seen: "go_on" if seen < step else None, desk.waits_on(step))
    os.kill(worker.pid, how)
    assert worker.wait(PATIENCE_S) == (75 if how is signal.SIGTERM else -9)
    assert desk.trial().state is not TrialState.COMPLETED
    desk.start_worker()
    desk.to(TrialState.COMPLETED)
    assert desk.end() == undisturbed
    assert desk.trial().crashes == 0


def test_an_heir_with_its_sources_config_goes_on_bit_for_bit_as_the_source(make_desk: MakeDesk) -> None:
    """RESUME: weights, moments, schedule, random state and the place in the data are the source's."""
    desk = make_desk(WAITING_RUNGS, job(lr=0.01), job(lr=0.02))
    desk.start_worker()
    for number in (0, 1):
        desk.to(TrialState.PAUSED, at(2, "pause"), number=number)
    assert desk.exploit(1, 2, source=0, new=job(lr=0.01))
    assert desk.promote(0, step=2)
    for number in (0, 1):
        desk.to(TrialState.COMPLETED, number=number)
    (value, reports), (heirs_value, heirs_reports) = desk.end(0), desk.end(1)
    assert heirs_value == value
    assert heirs_reports[2:] == reports[2:]


def test_an_heir_with_a_config_of_its_own_may_be_killed_and_ends_as_if_it_had_not(
    make_desk: MakeDesk,
) -> None:
    """RESUME: the second time it continues from its own checkpoint, or inherits once more."""
    desk = make_desk(WAITING_RUNGS, job(lr=0.01), job(lr=0.02), job(lr=0.04))
    worker = desk.start_worker()
    for number in range(3):
        desk.to(TrialState.PAUSED, at(2, "pause"), number=number)
    assert desk.exploit(1, 2, source=0, new=job(lr=0.05))
    desk.to(TrialState.COMPLETED, number=1)
    assert desk.exploit(2, 2, source=0, new=job(lr=0.05))
    desk.lead(lambda step: "go_on" if step < 4 else None, desk.waits_on(4, number=2))
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait(PATIENCE_S)
    desk.start_worker()
    desk.to(TrialState.COMPLETED, number=2)
    (value, reports), (again, reports_again) = desk.end(1), desk.end(2)
    assert (again, reports_again[2:]) == (value, reports[2:])
    assert reports[2:] != [], "and it trained on"
    assert desk.trial(1).config_hash == job(lr=0.02).config_hash, "a trial's name stays"
