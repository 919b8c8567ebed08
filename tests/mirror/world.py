"""A search on a real ledger, built by the ledger's own statements, and the coordinator's mirroring run by hand."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import optuna
import sqlalchemy as sa

from sweeper.coordinator.mirror_rebuild import rebuild_mirror
from sweeper.coordinator.mirroring import StudyMirroring
from sweeper.ids import (
    AskerId,
    ConfigHash,
    CoordinatorId,
    LeaseId,
    SweepId,
    TrialNumber,
    WorkerId,
    system_random_hex,
)
from sweeper.ledger.database import Database
from sweeper.ledger.leases import lease_trial, register_worker, release_trial
from sweeper.ledger.mirror_access import MirrorAccess, storage_url
from sweeper.ledger.mirroring import mirror_lag
from sweeper.ledger.proposals import add_numbers
from sweeper.ledger.reads import trials
from sweeper.ledger.requests import register_asker
from sweeper.ledger.results import commit_result, record_reports
from sweeper.ledger.sweeps import acquire_coordinator, open_sweep
from sweeper.model.search import Constraint, Direction, NewNumber, Proposal, SearchSpec, Suggestion
from sweeper.model.space import Choices, FloatRange, IntRange, Space
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.tagged import to_tagged
from sweeper.model.trial import AskerRecord, Grant, Json, NewTrial, Report, Sweep, SweepSpec, Trial, WorkerRecord
from sweeper.search.mirror import Mirror

T = TypeVar("T")

SPACE: Space = {
    "lr": FloatRange(low=1e-5, high=1.0, log=True),
    "layers": IntRange(low=1, high=8),
    "act": Choices(values=("relu", "tanh", None)),
}
HOST = {"host": "h1", "boot_id": "b1", "lock_path": "/l", "lock_inode": "1:1", "pid": 1}


class Done(Generic[T]):
    """A future whose work was done at once."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._error: Exception | None = None
        try:
            self._value = work()
        except Exception as error:
            self._error = error

    def done(self) -> bool:
        return True

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._value


class AtOnce:
    """A background that does the work before it returns."""

    def submit(self, work: Callable[[], T]) -> Done[T]:
        return Done(work)


@dataclass
class ManualClock:
    """Stands still unless told."""

    now_s: float = 0.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC)


@dataclass
class SearchWorld:
    """One sweep with a search, its coordinator's lease, and one worker."""

    db: Database
    url: str
    sweep: Sweep
    fence: int
    asker_id: AskerId
    coordinator_id: CoordinatorId
    worker_id: WorkerId
    clock: ManualClock = field(default_factory=ManualClock)
    notes: list[str] = field(default_factory=list)
    numbers: Any = field(default_factory=itertools.count)
    storages: list[optuna.storages.RDBStorage] = field(default_factory=list)

    @classmethod
    def build(
        cls,
        db: Database,
        url: str,
        *,
        name: str = "digits",
        space: Space = SPACE,
        directions: Sequence[Direction] = (Direction.MINIMIZE,),
        constraints: Sequence[Constraint] = (),
    ) -> SearchWorld:
        search = SearchSpec(directions=tuple(directions), n_trials=100_000, space=space, constraints=tuple(constraints))
        spec = SweepSpec(
            name=name,
            task="train:main",
            source_digest="0" * 64,
            sweep_dir="/sweeps/digits",
            store_url="file:///store",
            search=search.as_json(),
        )
        sweep = open_sweep(db, spec, new_id=SweepId(secrets.token_hex(16)))
        asker_id, coordinator_id = AskerId(secrets.token_hex(16)), CoordinatorId(secrets.token_hex(16))
        worker_id = WorkerId(secrets.token_hex(16))
        register_asker(db, sweep.sweep_id, AskerRecord(asker_id=asker_id, **HOST))
        register_worker(db, WorkerRecord(worker_id=worker_id, pool="local", **HOST), sweep_id=sweep.sweep_id)
        fence = acquire_coordinator(db, sweep.sweep_id, coordinator_id, lease_s=3600)
        assert fence is not None
        return cls(db, url, sweep, fence, asker_id, coordinator_id, worker_id)

    # The ledger

    def propose(self, *, extra: Space | None = None, key: str | None = None, **params: Any) -> int:
        """Commit the next number with these parameters."""
        number = next(self.numbers)
        tagged = {name: to_tagged(value) for name, value in params.items()}
        text = json.dumps(tagged, sort_keys=True)
        trial = NewTrial(
            config_hash=ConfigHash(hashlib.sha256(text.encode()).hexdigest()),
            config_text=text,
            overrides=tuple(f"{name}={value}" for name, value in params.items()),
            params=tagged,
        )
        proposal = Proposal(params=tagged, extra=extra or {}, enqueued=key)
        add_numbers(
            self.db,
            self.sweep.sweep_id,
            coordinator_id=self.coordinator_id,
            fence=self.fence,
            asker_id=self.asker_id,
            new=[NewNumber(number=TrialNumber(number), suggestion=Suggestion(proposal=proposal), trial=trial)],
        )
        return number

    def lease(self) -> Grant:
        grant = lease_trial(
            self.db,
            sweep_id=self.sweep.sweep_id,
            worker_id=self.worker_id,
            lease_id=LeaseId(secrets.token_hex(16)),
            lease_s=3600,
            heartbeat_s=15,
            pool="local",
            host="h1",
            threads=1,
        )
        assert grant is not None, "there is a trial to lease"
        return grant

    def start(self, **params: Any) -> Grant:
        """Propose a trial and have it run."""
        self.propose(**params)
        return self.lease()

    def report(self, grant: Grant, *values: float, first: int = 0, stride: int = 1, **metrics: float) -> None:
        reports = [
            Report(step=(first + at) * stride, at_step=first + at, value=value, metrics=metrics)
            for at, value in enumerate(values)
        ]
        record_reports(self.db, grant.lease, reports, lease_s=3600)

    def complete(self, grant: Grant, result: Any) -> None:
        self._commit(grant, TrialState.COMPLETED, AttemptOutcome.COMPLETED, result)

    def prune(self, grant: Grant, result: Any = None) -> None:
        self._commit(grant, TrialState.PRUNED, AttemptOutcome.PRUNED, result)

    def fail(self, grant: Grant, error: str = "ValueError: no") -> None:
        self._commit(grant, TrialState.FAILED, AttemptOutcome.INVALID, None, error=error)

    def release(self, grant: Grant, outcome: AttemptOutcome, **settings: Any) -> TrialState:
        return release_trial(self.db, grant.lease, outcome=outcome, **{"reason": "told to", **settings})

    def sql(self, text: str, **parameters: Any) -> Sequence[sa.Row[Any]]:
        return self.db.run(sa.text(text), parameters)

    def trial(self, number: int) -> Trial:
        return trials(self.db, self.sweep.sweep_id, [number])[0]

    @property
    def lag(self) -> int:
        return mirror_lag(self.db, self.sweep.sweep_id)

    def _commit(
        self, grant: Grant, state: TrialState, outcome: AttemptOutcome, result: Json, *, error: str | None = None
    ) -> None:
        commit_result(
            self.db,
            grant.lease,
            state=state,
            outcome=outcome,
            result=to_tagged(result),
            reason=outcome.value,
            error=error,
            outcome_key="k",
            outcome_hash="h",
            outcome_stored=True,
            last_step=10,
        )

    # The mirror

    def mirror(self, url: str | None = None) -> Mirror:
        assert self.sweep.search is not None
        return Mirror(
            MirrorAccess(url or self.url),
            sweep_id=self.sweep.sweep_id,
            name=self.sweep.name,
            spec=SearchSpec.from_json(self.sweep.search),
            clock=self.clock,
            random_hex=system_random_hex,
        )

    def mirroring(self, url: str | None = None, mirror: Mirror | None = None) -> StudyMirroring:
        """What a coordinator has, with its work done at once."""
        mirror = mirror or self.mirror(url)
        return StudyMirroring(
            mirror,
            self.rebuild,
            database=self.db,
            background=AtOnce(),
            clock=self.clock,
            sweep=self.sweep,
            explain=MirrorAccess(self.url).explain,
            note=self.notes.append,
        )

    def rebuild(self) -> object:
        return rebuild_mirror(self.url, self.sweep, system_random_hex)

    def turn(self, mirroring: StudyMirroring, turns: int = 12) -> None:
        """Let the coordinator have some turns, a second apart."""
        for _ in range(turns):
            mirroring.turn(self.fence)
            self.clock.now_s += 1.0

    def show(self) -> optuna.Study:
        """Bring the mirror up to date as a new coordinator would, and load it as people do."""
        mirroring = self.mirroring()
        self.turn(mirroring)
        for _ in range(30):  # it rests between batches
            if self.lag:
                self.turn(mirroring, 1)
        mirroring.close()
        return self.study()

    def study(self, name: str | None = None) -> optuna.Study:
        """The study by plain Optuna, as it is now."""
        self.storages.append(mirror_storage(self.url))
        return optuna.load_study(study_name=name or self.sweep.name, storage=self.storages[-1])

    def close(self) -> None:
        for storage in self.storages:
            storage.remove_session()
            storage.engine.dispose()


def mirror_storage(url: str) -> optuna.storages.RDBStorage:
    """Optuna's storage as people open it, direct; the tables have to be there."""
    return optuna.storages.RDBStorage(storage_url(url), skip_table_creation=True)


def entry(study: optuna.Study, number: int) -> optuna.trial.FrozenTrial:
    """The one entry of our trial of this number."""
    (found,) = [one for one in study.get_trials() if one.user_attrs.get("sweeper:number") == number]
    return found


def facts(study: optuna.Study) -> list[Any]:
    """What is the same however it came to be: all but ids, and the times that Optuna takes itself."""
    return sorted(
        (
            one.user_attrs["sweeper:number"],
            one.state,
            one.values,
            list(one.params.items()),
            one.distributions,
            one.user_attrs,
            one.system_attrs,
            repr(sorted(one.intermediate_values.items())),
            one.datetime_start,
        )
        for one in study.get_trials()
    )


def steps(one: optuna.trial.FrozenTrial) -> dict[int, float | None]:
    """Reports by step, None for NaN."""
    return {step: None if math.isnan(value) else value for step, value in sorted(one.intermediate_values.items())}
