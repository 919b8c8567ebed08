"""Trials per second through their whole life, beside Optuna's own storage: propose, lease, five reports, complete.

    python benchmarks/life_cycle.py [--workers 1 4 16] [--seconds 3] [--runs 1] [--sampler random] [--batched-reports]

Five parameters, no training and no child process. Ours: one real coordinator, and workers that lease a trial, record
its reports (one statement a report, or all in the statement of the result) and commit its result. Optuna: workers that
`ask`, `report` and `tell`. Each side has a database of its own on the same durable server, which is empty at the start
of every run. The sides take turns of half a second in which the other one stands still (SIGSTOP), so that the machine's
other work falls on both alike. With TPE, ours is also compared with the same optimizer in a bare loop of suggest, add
and tell, which is as fast as one coordinator could ever be.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import optuna
from parts.history import SAMPLERS
from parts.life import ROLES, Part, prepare_optuna, prepare_ours
from parts.servers import new_database, new_server

WARM_UP_S = 3.0
"""Not counted: connections, the first turns, the tables of the study that our coordinator keeps for people."""
SLICE_S = 0.5
"""A side has the machine to itself for so long, while the others stand still; then it is the next one's turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is measured."""

    seconds: float
    sampler: str
    batched: bool


class Process:
    """A part of a run in an interpreter of its own: says when it is ready, begins when told, tells its count."""

    def __init__(self, role: str, part: Part) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), "--role", role, "--part", json.dumps(part.as_json())]
        self._role = role
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def await_ready(self) -> None:
        """Wait until everything is imported and connected."""
        self._line("ready")

    def begin(self, from_s: float, to_s: float) -> None:
        """Have it work, and count from one moment of the monotonic clock to the other."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{from_s} {to_s}\n")
        self._process.stdin.flush()

    def count(self) -> int:
        """Give what it counted."""
        count = int(self._line("count"))
        self._process.wait()
        return count

    def stand_still(self) -> None:
        """Do nothing until told to go on."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Work again."""
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """End it, if it lives; nobody needs what it would still do."""
        self._process.kill()
        self._process.wait()

    def _line(self, start: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(start):
                return line.removeprefix(start)
        raise SystemExit(f"the {self._role} ended with status {self._process.wait()}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The processes of one side: those that count, and those that they need."""

    counting: list[Process]
    beside: list[Process] = field(default_factory=list)

    @property
    def all(self) -> list[Process]:
        """All of them."""
        return [*self.beside, *self.counting]


def rates(sides: Mapping[str, Side], seconds: float) -> dict[str, float]:
    """Give what each side counts a second, while it has the machine to itself for that long in all."""
    everybody = [process for side in sides.values() for process in side.all]
    try:
        for process in everybody:
            process.await_ready()
            process.stand_still()
        slices = max(1, round(seconds / SLICE_S))
        from_s = time.monotonic() + len(sides) * WARM_UP_S
        for side in sides.values():
            for process in side.counting:
                process.begin(from_s, from_s + len(sides) * slices * SLICE_S)
        for side in sides.values():
            _alone(side, WARM_UP_S)
        for _ in range(slices):
            for side in sides.values():
                _alone(side, SLICE_S)
        for process in everybody:
            process.go_on()
        counts = {name: sum(process.count() for process in side.counting) for name, side in sides.items()}
        return {name: count / (slices * SLICE_S) for name, count in counts.items()}
    finally:
        for process in everybody:
            process.end()


def _alone(side: Side, seconds: float) -> None:
    for process in side.all:
        process.go_on()
    time.sleep(seconds)
    for process in side.all:
        process.stand_still()


def side_by_side(server: str, workers: int, options: Options) -> dict[str, float]:
    """Give the trials per second of both sides, and those of the optimizer alone where that is not free."""
    with tempfile.TemporaryDirectory(prefix="bench-home-") as home:
        mine = Part(url=new_database(server, "ours"), sampler=options.sampler, home=home, batched=options.batched)
        prepare_ours(mine)
        other = Part(url=new_database(server, "optuna"), sampler=options.sampler)
        prepare_optuna(other)
        sides = {
            "ours": Side(
                counting=[Process("worker", mine) for _ in range(workers)], beside=[Process("coordinator", mine)]
            ),
            "optuna": Side(counting=[Process("optuna", other) for _ in range(workers)]),
        }
        if options.sampler != "random":
            sides["bare"] = Side(counting=[Process("bare", Part(url="", sampler=options.sampler))])
        return rates(sides, options.seconds)


def measure(server: str, counts: list[int], runs: int, options: Options) -> dict[str, dict[int, list[float]]]:
    """Give each side's figures by number of workers."""
    figures: dict[str, dict[int, list[float]]] = {}
    for _ in range(runs):
        for workers in counts:
            for side, per_s in side_by_side(server, workers, options).items():
                figures.setdefault(side, {}).setdefault(workers, []).append(per_s)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4, 16], help="in full 1 2 4 8 16")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement; in full 6")
    parser.add_argument("--runs", type=int, default=1, help="in full 3")
    parser.add_argument("--sampler", choices=SAMPLERS, default="random")
    parser.add_argument("--batched-reports", action="store_true", help="all reports in the statement of the result")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--role", choices=ROLES, help=argparse.SUPPRESS)
    parser.add_argument("--part", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if given.role:
        ROLES[given.role](Part(**given.part))
        return
    options = Options(seconds=given.seconds, sampler=given.sampler, batched=given.batched_reports)
    with new_server() as server:
        figures = measure(server, given.workers, given.runs, options)
    medians = {
        side: {workers: statistics.median(rates) for workers, rates in found.items()} for side, found in figures.items()
    }
    if given.json:
        print(json.dumps({"sampler": given.sampler, "batched": given.batched_reports, "per_s": figures}))
        return
    reports = "reports with the result" if given.batched_reports else "a statement a report"
    print(f"trials per second, {given.sampler} sampler, {reports}; medians of {given.runs} x {given.seconds:g} s")
    best = max(medians["ours"].values())
    for workers in given.workers:
        mine, other = medians["ours"][workers], medians["optuna"][workers]
        ratios = [a / b for a, b in zip(figures["ours"][workers], figures["optuna"][workers], strict=True)]
        alone = medians["bare"][workers] if "bare" in medians else None
        of_bare = "" if alone is None else f", {mine / alone:.2f} of the optimizer alone ({alone:.0f})"
        print(
            f"{workers:>3} workers: ours {mine:7.1f}, Optuna {other:6.1f}, ratio {statistics.median(ratios):5.1f} "
            f"({min(ratios):.1f} to {max(ratios):.1f}), "
            f"{mine / best:.2f} of our best{of_bare}"
        )


if __name__ == "__main__":
    main()
