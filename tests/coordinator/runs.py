"""A command's coordinator with local workers, all of them programs in one virtual time."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sweeper.coordinator.parts import CoordinatorParts, SearchPlan
from sweeper.coordinator.program import coordinator_program
from sweeper.coordinator.proposing import Chooser
from sweeper.coordinator.rollback import notice_rollback
from sweeper.coordinator.searching import Searching
from sweeper.engines.local import LocalWorkers
from sweeper.errors import UserError
from sweeper.ids import AskerId, CoordinatorId
from sweeper.ledger.requests import register_asker, request_trials
from sweeper.ledger.searches import request_open
from sweeper.ledger.sweeps import ledger_id, settle_sweep
from sweeper.model.progress import SweepProgress, Transition
from sweeper.model.trial import AskerRecord, NewTrial
from sweeper.model.waits import ExitStatus, Notice
from sweeper.search.optimizer import Optimizer
from sweeper.settings import CoordinatorSettings, LeaseSettings
from tests.simulation.faults import SimStatements, SimStore
from tests.simulation.world import Process, SimBackground
from tests.worker.bench import Bench, new_trial

ALL = [new_trial(number) for number in range(3)]


class Sink:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.events: list[Transition] = []
        self.notes: list[str] = []
        self.turns = 0
        self.last: SweepProgress | None = None

    def transition(self, event: Transition) -> None:
        self.events.append(event)

    def turn(self, snapshot: SweepProgress) -> None:
        self.turns += 1
        self.last = snapshot

    def note(self, text: str) -> None:
        self.notes.append(text)

    def close(self) -> None:
        return


class Handle:
    """A local worker that is a worker program in the same virtual time."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.pid = 1
        self.has_news = False

    def filenos(self) -> tuple[int, ...]:
        return ()

    def exit_status(self) -> ExitStatus | None:
        if self.process.alive:
            return None
        return (
            ExitStatus(code=None, signal=9)
            if self.process.result is None
            else ExitStatus(code=self.process.result.status)
        )

    def drain(self) -> None:
        self.process.notify(Notice(source="command", reason="asked to leave"))

    def kill(self) -> None:
        self.process.die("killed")

    def close(self) -> None:
        return


class Run:
    """One command's coordinator."""

    def __init__(
        self,
        bench: Bench,
        name: str = "c",
        *,
        asker: AskerRecord | None = None,
        wanted: Sequence[NewTrial] = ALL,
        search: SearchPlan | None = None,
        **settings: Any,
    ) -> None:
        self.bench = bench
        self.process = Process(bench.world, name)
        self.sink = Sink()
        self.handles: list[Handle] = []
        self.dead_askers: set[AskerId] = set()
        self.dead_holders: set[str] = set()
        """By their lock's path."""
        self.error: Exception | None = None
        lease = LeaseSettings(lease_s=60.0, heartbeat_s=15.0)
        self.settings = replace(CoordinatorSettings(workers=2, lease=lease), **settings)

        def start(index: int) -> Handle:
            self.handles.append(Handle(bench.worker(f"{name}-w{len(self.handles)}")))
            return self.handles[-1]

        self.workers = LocalWorkers(start, places=self.settings.workers)
        self.parts = CoordinatorParts(
            database=SimStatements(self.process, bench.database, bench.weather),
            store=SimStore(self.process, bench.store, bench.weather),
            ledger_id=ledger_id(bench.database),
            clock=self.process.clock,
            background=SimBackground(self.process),
            jitter=bench.world.random(f"jitter/{name}").random,
            holder_is_dead=lambda holder: holder.lock_path in self.dead_holders,
            asker_is_dead=lambda record: record.asker_id in self.dead_askers,
            boot_id="h",
            coordinator_id=CoordinatorId(asker.asker_id if asker else hashlib.md5(name.encode()).hexdigest()),
            sweep=bench.sweep,
            asker=asker or bench.asker,
            asked=len(wanted) if search is None else 0,
            ask_again=lambda: self._ask(wanted),
            workers=self.workers,
            sink=self.sink,
            settings=self.settings,
        )
        if search is not None:
            self.parts = replace(self.parts, search=self._searching(search))

    def _searching(self, plan: SearchPlan) -> Searching:
        parts = self.parts
        chooser = Chooser(
            database=parts.database,
            sweep_id=parts.sweep.sweep_id,
            coordinator_id=parts.coordinator_id,
            asker_id=parts.asker.asker_id,
        )
        return Searching(
            chooser,
            plan,
            Optimizer(plan.spec, seed=parts.sweep.seed),
            clock=parts.clock,
            workers=self.settings.workers,
            seed=parts.sweep.seed,
            note=self.sink.note,
        )

    def _ask(self, wanted: Sequence[NewTrial]) -> None:
        database, sweep_id, asker = self.parts.database, self.bench.sweep.sweep_id, self.parts.asker
        notice_rollback(database, self.parts.store, sweep_id, self.parts.clock)
        register_asker(database, sweep_id, asker)
        if self.parts.search is None:
            request_trials(database, sweep_id, asker.asker_id, wanted)
        else:
            request_open(database, sweep_id, asker.asker_id)
        settle_sweep(database, sweep_id)

    def start(self) -> Run:
        def program() -> Any:
            try:
                return (yield from coordinator_program(self.parts))
            except UserError as error:
                self.error = error

        self.process.start(program())
        return self
