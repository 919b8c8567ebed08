"""The processes of a life cycle: our coordinator and workers, Optuna's workers, and the optimizer alone."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import optuna
from optuna.storages import RDBStorage
from parts.history import DISTRIBUTIONS, REPORTS, SAMPLERS, SPEC, objective
from parts.ours import CONFIGS, LEASE, STUDY, Worker, search_of, sweep_spec, the_sweep
from parts.servers import optuna_url

from sweeper.coordinator.parts import SearchPlan
from sweeper.engines.local import WorkerHandle
from sweeper.ids import TrialId
from sweeper.ledger.database import Database, open_database
from sweeper.ledger.results import commit_result, record_reports
from sweeper.model.progress import SweepProgress, Transition
from sweeper.model.search import Numbered
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.trial import Grant, Json, Report
from sweeper.search.optimizer import Optimizer
from sweeper.settings import CoordinatorSettings, Places, WorkerSettings
from sweeper.wiring import Backends, begin_asking, begin_sweep, connect, coordinate
from sweeper.worker.idling import Idling


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a process is told."""

    url: str
    sampler: str
    home: str = ""
    batched: bool = False

    def as_json(self) -> dict[str, Json]:
        """Give it as arguments."""
        return asdict(self)


class Silent:
    """Shows nothing; implements `ProgressSink`."""

    def transition(self, event: Transition) -> None:
        """Say nothing."""

    def turn(self, snapshot: SweepProgress) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say it where it disturbs nobody."""
        print(text, file=sys.stderr)

    def close(self) -> None:
        """Have nothing to close."""


def prepare_ours(part: Part) -> None:
    """Make the tables and the sweep."""
    backends = _backends(part)
    begin_sweep(backends, sweep_spec(part.sampler))
    backends.close()


def prepare_optuna(part: Part) -> None:
    """Make the tables and the study."""
    optuna.create_study(storage=RDBStorage(optuna_url(part.url)), study_name=STUDY)


def coordinator(part: Part) -> None:
    """Coordinate until it is ended; all workers are elsewhere."""
    backends = _backends(part)
    sweep = begin_sweep(backends, sweep_spec(part.sampler))
    asking = begin_asking(backends, sweep)
    print("ready", flush=True)
    coordinate(
        backends,
        sweep,
        asking,
        CoordinatorSettings(workers=0),
        start_workers=_nobody,
        progress=Silent(),
        search=SearchPlan(spec=search_of(sweep), compose=lambda _, params: CONFIGS.identify(params)),
    )


def worker(part: Part) -> None:
    """Lease, report, complete; wait as a real worker does when there is nothing to lease."""
    settings = WorkerSettings()
    with open_database(part.url) as database:
        me = Worker(database, the_sweep(database).sweep_id)
        idling = Idling(random.random, first_s=settings.first_poll_s, most_s=settings.poll_s)

        def one() -> bool:
            grant = me.lease(scarce=idling.scarce)
            if grant is None:
                idling.found_none(time.monotonic())
                time.sleep(idling.next_s(time.monotonic()))
                return False
            idling.found()
            _live(database, grant, batched=part.batched)
            return True

        _count(one)


def optuna_worker(part: Part) -> None:
    """Ask, report, tell."""
    study = optuna.load_study(storage=RDBStorage(optuna_url(part.url)), study_name=STUDY, sampler=_sampler(part))

    def one() -> bool:
        trial = study.ask(DISTRIBUTIONS)
        value = objective(trial.params)
        for step in range(1, REPORTS + 1):
            trial.report(value + 1 / step, step)
        study.tell(trial, value)
        return True

    _count(one)


def bare(part: Part) -> None:
    """The optimizer in a loop, with nothing around it."""
    optimizer = Optimizer(replace(SPEC, sampler=SAMPLERS[part.sampler]), seed=0)
    optimizer.load((), {})

    def one() -> bool:
        number = optimizer.numbers
        proposal = optimizer.suggest(number).proposal
        row = Numbered(
            number=number, proposal=proposal, trial_id=TrialId(number), first_number=number, state=TrialState.PENDING
        )
        optimizer.add(row)
        optimizer.tell(replace(row, state=TrialState.COMPLETED, result=objective(proposal.params)))
        return True

    _count(one)


ROLES: dict[str, Callable[[Part], None]] = {
    "coordinator": coordinator,
    "worker": worker,
    "optuna": optuna_worker,
    "bare": bare,
}


def _live(database: Database, grant: Grant, *, batched: bool) -> None:
    value = objective(grant.params)
    reports = [Report(step=step, at_step=step, value=value + 1 / step) for step in range(1, REPORTS + 1)]
    for report in [] if batched else reports:
        record_reports(
            database, grant.lease, [report], lease_s=LEASE.lease_s, heartbeat_s=LEASE.heartbeat_s, durable=False
        )
    # As a worker does: the result's statement waits for the disk, and has with it all that was not waited for.
    commit_result(
        database, grant.lease, state=TrialState.COMPLETED, outcome=AttemptOutcome.COMPLETED, result=value,
        reason="returned", outcome_key=f"trials/{grant.config_hash}/outcome.json", outcome_hash="0" * 64,
        outcome_stored=True, exit_code=0, last_step=REPORTS, reports=reports,
    )  # fmt: skip


def _count(one: Callable[[], bool]) -> None:
    """Say that we are ready, be told from when to when, and tell how many were done in that time."""
    print("ready", flush=True)
    from_s, to_s = map(float, sys.stdin.readline().split())
    count = 0
    while (now_s := time.monotonic()) < to_s:
        if one() and now_s >= from_s:
            count += 1
    print(f"count {count}", flush=True)


def _sampler(part: Part) -> optuna.samplers.BaseSampler:
    return optuna.samplers.TPESampler() if part.sampler == "tpe" else optuna.samplers.RandomSampler()


def _backends(part: Part) -> Backends:
    home = Path(part.home)
    return connect(Places(home=home, database_url=part.url, store_url=(home / "store").as_uri()))


def _nobody(index: int) -> WorkerHandle:
    raise AssertionError(f"worker {index} was asked for, but none is kept here")
