"""From a new process to the first proposal and the first lease, beside Optuna's storage: seconds, and ratios.

    python benchmarks/restart.py [--sizes 1000 10000] [--runs 3] [--json]

Both sides have the same finished trials of five parameters and five reports in a database of their own on the same
durable server. Each figure is the median over new interpreters, in rotation; time starts when everything is imported.

Ours, proposal: connect, read the history, build the study, let TPE suggest, commit the number. Ours, lease: connect,
find the sweep, register, be given a trial. Optuna: open the storage, load the study, `ask` with TPE.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import optuna
import psycopg
from optuna.storages import RDBStorage
from parts.filling import fill_optuna, fill_ours
from parts.history import DISTRIBUTIONS
from parts.ours import STUDY, Worker, asker, hex_id, searching, the_sweep
from parts.servers import new_database, new_server, optuna_url

from sweeper.ids import AskerId, CoordinatorId
from sweeper.ledger.database import open_database
from sweeper.ledger.requests import register_asker
from sweeper.ledger.sweeps import acquire_coordinator, release_coordinator


def first_proposal(url: str) -> float:
    """Give the seconds until a number more is in the ledger."""
    known, open_ = _numbers_and_open(url)
    begun = time.perf_counter()
    with open_database(url) as database:
        sweep = the_sweep(database)
        asker_id, coordinator_id = AskerId(hex_id()), CoordinatorId(hex_id())
        register_asker(database, sweep.sweep_id, asker(asker_id))
        fence = acquire_coordinator(database, sweep.sweep_id, coordinator_id, lease_s=30.0)
        assert fence is not None, "nobody else leads"
        search = searching(database, sweep, coordinator_id, asker_id, workers=open_ + 1)
        while search.turn(fence).progress.proposed == known:
            pass
        seconds = time.perf_counter() - begun
        release_coordinator(database, sweep.sweep_id, coordinator_id, fence)
    assert _numbers_and_open(url) == (known + 1, open_ + 1), "one number was proposed"
    return seconds


def first_lease(url: str) -> float:
    """Give the seconds until a worker holds a trial."""
    begun = time.perf_counter()
    with open_database(url) as database:
        grant = Worker(database, the_sweep(database).sweep_id).lease()
        seconds = time.perf_counter() - begun
    assert grant is not None, "a trial is pending"
    return seconds


def first_ask(url: str) -> float:
    """Give the seconds until Optuna has its first trial."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    begun = time.perf_counter()
    study = optuna.load_study(
        storage=RDBStorage(optuna_url(url)), study_name=STUDY, sampler=optuna.samplers.TPESampler(seed=0)
    )
    study.ask(DISTRIBUTIONS)
    return time.perf_counter() - begun


def _numbers_and_open(url: str) -> tuple[int, int]:
    with psycopg.connect(url) as session:
        row = session.execute(
            "SELECT c.next_number, (SELECT count(*) FROM sweeper.trials WHERE finished_at IS NULL)"
            " FROM sweeper.coordinators c"
        ).fetchone()
    assert row is not None, "the ledger was filled"
    return int(row[0]), int(row[1])


MEASURES = {"proposal": first_proposal, "lease": first_lease, "optuna": first_ask}


def in_new_process(measure: str, url: str) -> float:
    """Give what one measure says in an interpreter of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", measure, "--url", url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{measure} failed:\n{done.stdout}\n{done.stderr}")
    return float(done.stdout.split()[-1])


def compare(server: str, size: int, runs: int) -> dict[str, float]:
    """Give the median seconds of each measure at one size."""
    ours, theirs = new_database(server, f"ours_{size}"), new_database(server, f"optuna_{size}")
    fill_ours(ours, size, sampler="tpe")
    fill_optuna(theirs, size)
    urls = {"proposal": ours, "lease": ours, "optuna": theirs}
    for url in (ours, theirs):
        in_new_process("lease" if url == ours else "optuna", url)  # file caches
    figures = [{measure: in_new_process(measure, url) for measure, url in urls.items()} for _ in range(runs)]
    return {measure: statistics.median(figure[measure] for figure in figures) for measure in MEASURES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000], help="finished trials; in full 50000")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", choices=MEASURES, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(MEASURES[options.measure](options.url))
        return
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with new_server() as server:
        figures = {size: compare(server, size, options.runs) for size in options.sizes}
    if options.json:
        print(json.dumps({"runs": options.runs, "seconds": figures}))
        return
    print(f"seconds after the imports, medians of {options.runs} processes")
    for size, seconds in figures.items():
        print(
            f"{size:>8,} finished: first proposal {seconds['proposal']:6.2f} s, first lease {seconds['lease']:6.3f} s; "
            f"Optuna's first ask {seconds['optuna']:6.2f} s, {seconds['optuna'] / seconds['proposal']:.1f} x ours"
        )


if __name__ == "__main__":
    main()
