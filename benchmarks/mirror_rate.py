"""How fast the mirror follows a search, beside plain Optuna on the same database in the same run.

    python benchmarks/mirror_rate.py [--trials 100] [--seconds 20] [--rate 20] [--json]

Trials a second, each with five parameters and two reports:

- `optuna`: `study.ask`, five suggestions, two reports, `study.tell` on a plain `RDBStorage`;
- `add_trial`: `study.add_trial` of a whole trial on the same;
- `few`: the mirror, of a few trials that began and ended between two looks (the ledger's statements included);
- `many`: the same of more than calls can show in time, which are written at once;
- `long`: the mirror, of trials that are first shown running and later ended;
- `rebuild`: the study written anew by COPY.

Ratios are to `optuna` and `add_trial`, measured in turns with them. Then completions arrive at a steady rate for a
while, of trials that last for a moment or for seconds, and `delay_s` is how long each took until the study showed it.
The database is the embedded one with its normal, durable settings, in a folder of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import statistics
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy as sa

from sweeper.clock import SystemClock
from sweeper.coordinator.mirror_opening import study_mirroring
from sweeper.coordinator.mirror_rebuild import rebuild_mirror
from sweeper.coordinator.mirroring import EVERY_S, StudyMirroring
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
from sweeper.ledger.database import Database, open_database
from sweeper.ledger.embedded import ensure_server, stop_server
from sweeper.ledger.leases import lease_trial, register_worker
from sweeper.ledger.mirror_access import storage_url
from sweeper.ledger.mirroring import mirror_lag
from sweeper.ledger.proposals import add_numbers
from sweeper.ledger.requests import register_asker
from sweeper.ledger.results import commit_result, record_reports
from sweeper.ledger.sweeps import acquire_coordinator, open_sweep
from sweeper.model.search import NewNumber, Proposal, SearchSpec, Suggestion
from sweeper.model.space import FloatRange
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.trial import AskerRecord, Grant, NewTrial, Report, SweepSpec, WorkerRecord
from sweeper.search.mirror import FEW
from sweeper.worker.background import ThreadBackground

NAMES = "abcde"
PLACE = {"host": "h", "boot_id": "b", "lock_path": "/l", "lock_inode": "1:1", "pid": 1}
ROUNDS = 3
LASTING_S = (0.0, 0.5, 3.0)
SHOWN = sa.text(
    "SELECT t.trial_id FROM sweeper.trials t WHERE t.trial_id = ANY (:trial_ids) AND t.version = t.mirrored_version"
)


class Search:
    """A search whose trials come and go by the ledger's own statements, at once."""

    def __init__(self, database: Database, name: str) -> None:
        self.database = database
        search = SearchSpec(n_trials=10**6, space={name: FloatRange(low=0.0, high=1.0) for name in NAMES})
        spec = SweepSpec(
            name=name, task="t:t", source_digest="0", sweep_dir="/s", store_url="file:///s", search=search.as_json()
        )
        self.sweep = open_sweep(database, spec, new_id=SweepId(system_random_hex()))
        self.asker = AskerId(system_random_hex())
        self.worker = WorkerId(system_random_hex())
        self.coordinator = CoordinatorId(system_random_hex())
        register_asker(database, self.sweep.sweep_id, AskerRecord(asker_id=self.asker, **PLACE))
        register_worker(
            database, WorkerRecord(worker_id=self.worker, pool="local", **PLACE), sweep_id=self.sweep.sweep_id
        )
        fence = acquire_coordinator(database, self.sweep.sweep_id, self.coordinator, lease_s=86400)
        assert fence is not None
        self.fence = fence
        self.numbers = itertools.count()

    def start(self) -> Grant:
        number = next(self.numbers)
        params = dict.fromkeys(NAMES, number % 997 / 997)
        trial = NewTrial(
            config_hash=ConfigHash(hashlib.sha256(str(number).encode()).hexdigest()), config_text="{}", overrides=()
        )
        new = NewNumber(
            number=TrialNumber(number), suggestion=Suggestion(proposal=Proposal(params=params)), trial=trial
        )
        add_numbers(
            self.database,
            self.sweep.sweep_id,
            coordinator_id=self.coordinator,
            fence=self.fence,
            asker_id=self.asker,
            new=[new],
        )
        grant = lease_trial(
            self.database,
            sweep_id=self.sweep.sweep_id,
            worker_id=self.worker,
            lease_id=LeaseId(system_random_hex()),
            lease_s=86400,
            heartbeat_s=15,
            pool="local",
            host="h",
            threads=1,
        )
        assert grant is not None
        return grant

    def end(self, grant: Grant) -> None:
        reports = [Report(step=step, at_step=step, value=0.5) for step in range(2)]
        record_reports(self.database, grant.lease, reports, lease_s=86400)
        commit_result(
            self.database,
            grant.lease,
            state=TrialState.COMPLETED,
            outcome=AttemptOutcome.COMPLETED,
            result=0.5,
            reason="returned",
            outcome_key="k",
            outcome_hash="h",
            outcome_stored=True,
        )

    def mirroring(self, wake: threading.Event) -> StudyMirroring:
        return study_mirroring(
            self.database.url,
            self.sweep,
            database=self.database,
            background=ThreadBackground(wake.set),
            clock=SystemClock(),
            random_hex=system_random_hex,
            note=print,
        )


class Following:
    """A coordinator's loop reduced to the mirror."""

    def __init__(self, search: Search) -> None:
        self.search, self.wake = search, threading.Event()
        self.mirroring = search.mirroring(self.wake)

    def turn(self) -> None:
        self.wake.clear()
        self.mirroring.turn(self.search.fence)
        self.wake.wait(0.05)

    def until_current(self) -> float:
        """Work until the study shows everything; give the seconds that took, the pause before it left out."""
        time.sleep(EVERY_S)
        began = time.perf_counter()
        while mirror_lag(self.search.database, self.search.sweep.sweep_id):
            self.turn()
        return time.perf_counter() - began


def plain(study: optuna.Study, trials: int) -> float:
    began = time.perf_counter()
    for _ in range(trials):
        trial = study.ask()
        for name in NAMES:
            trial.suggest_float(name, 0.0, 1.0)
        for step in range(2):
            trial.report(0.5, step)
        study.tell(trial, 0.5)
    return trials / (time.perf_counter() - began)


def added(study: optuna.Study, trials: int) -> float:
    whole = optuna.trial.create_trial(
        params=dict.fromkeys(NAMES, 0.5),
        distributions=dict.fromkeys(NAMES, optuna.distributions.FloatDistribution(0.0, 1.0)),
        intermediate_values={0: 0.5, 1: 0.5},
        value=0.5,
    )
    began = time.perf_counter()
    for _ in range(trials):
        study.add_trial(whole)
    return trials / (time.perf_counter() - began)


def short(following: Following, trials: int) -> float:
    for _ in range(trials):
        following.search.end(following.search.start())
    return trials / following.until_current()


def long(following: Following, trials: int) -> float:
    grants = [following.search.start() for _ in range(trials)]
    took_s = following.until_current()
    for grant in grants:
        following.search.end(grant)
    return trials / (took_s + following.until_current())


def steadily(following: Following, rate: float, seconds: float, lasting_s: float) -> list[float]:
    """Complete trials that last so long at this rate; give how long each took until the study showed it."""
    search, running, ended, delays = following.search, deque[tuple[float, Grant]](), {}, []
    due = began = time.perf_counter()
    watcher = open_database(search.database.url)
    while time.perf_counter() - began < seconds or running or ended:
        now = time.perf_counter()
        if running and now >= running[0][0]:
            _, grant = running.popleft()
            search.end(grant)
            ended[grant.lease.trial_id] = time.perf_counter()
            continue
        if now >= due and now - began < seconds:
            running.append((now + lasting_s, search.start()))
            due += 1 / rate
            continue
        following.mirroring.turn(search.fence)
        following.wake.wait(min(0.02, max(due - time.perf_counter(), 0.001)))
        following.wake.clear()
        shown = {row.trial_id for row in watcher.run(SHOWN, {"trial_ids": list(ended)})}
        delays += [time.perf_counter() - ended.pop(trial_id) for trial_id in shown & ended.keys()]
    watcher.close()
    return delays


def measure(trials: int, seconds: float, rate: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="sweeper-bench-") as folder:
        home = Path(folder)
        url = ensure_server(home)
        try:
            with open_database(url) as database:
                return _measure(database, trials, seconds, rate)
        finally:
            stop_server(home)


def _measure(database: Database, trials: int, seconds: float, rate: float) -> dict[str, Any]:
    following = Following(Search(database, "mirrored"))
    following.search.end(following.search.start())
    following.until_current()
    storage = optuna.storages.RDBStorage(storage_url(database.url))
    samplers = {"sampler": optuna.samplers.RandomSampler()}
    asked = optuna.create_study(storage=storage, study_name="asked", **samplers)
    whole = optuna.create_study(storage=storage, study_name="whole", **samplers)
    found: dict[str, list[float]] = {name: [] for name in ("optuna", "add_trial", "few", "many", "long")}
    for _ in range(ROUNDS):
        found["optuna"].append(plain(asked, trials))
        found["add_trial"].append(added(whole, trials))
        found["few"].append(short(following, FEW))
        found["many"].append(short(following, trials))
        found["long"].append(long(following, trials))
    began = time.perf_counter()
    written = rebuild_mirror(database.url, following.search.sweep, system_random_hex)
    rebuilt = written.trials / (time.perf_counter() - began)
    delays = {lasting_s: steadily(following, rate, seconds, lasting_s) for lasting_s in LASTING_S}
    medians = {name: statistics.median(rates) for name, rates in found.items()} | {"rebuild": rebuilt}
    return {
        "trials_per_s": medians,
        "to_optuna": {name: value / medians["optuna"] for name, value in medians.items()},
        "to_add_trial": {name: value / medians["add_trial"] for name, value in medians.items()},
        "rate_per_s": rate,
        "delay_s": {
            f"{lasting_s:g}": {"median": statistics.median(found), "most": max(found)}
            for lasting_s, found in delays.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    found = measure(given.trials, given.seconds, given.rate)
    if given.json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found["trials_per_s"].items():
        to_optuna, to_add = found["to_optuna"][name], found["to_add_trial"][name]
        print(f"{name:>10}: {value:8.1f} trials/s   {to_optuna:6.2f} x optuna   {to_add:6.2f} x add_trial")
    for lasting, delay in found["delay_s"].items():
        print(
            f"at {given.rate:g} completions/s of trials that last {lasting} s: "
            f"shown after {delay['median']:.2f} s, at most {delay['most']:.2f} s"
        )


if __name__ == "__main__":
    main()
