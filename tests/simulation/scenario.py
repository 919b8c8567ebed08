"""One seed: workers, coordinators, faults for a while, then calm, in which everything must come to its end."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
import sqlalchemy as sa

from sweeper.coordinator.parts import CoordinatorParts
from sweeper.coordinator.program import coordinator_program
from sweeper.errors import LedgerUnavailable
from sweeper.ids import AskerId, ConfigHash, CoordinatorId, LedgerId, SweepId, WorkerId
from sweeper.ledger import checkpoints, claims, guards, leases, reads, requests, results, sweeps
from sweeper.ledger.database import Database
from sweeper.ledger.requests import register_asker, request_trials
from sweeper.ledger.sweeps import ledger_id, open_sweep, settle_sweep
from sweeper.model.messages import Start
from sweeper.model.progress import SweepProgress, Transition
from sweeper.model.retry import RetryPolicy
from sweeper.model.trial import AskerRecord, Holder, NewTrial, Sweep, SweepSpec, WorkerRecord
from sweeper.model.waits import Notice, Program, Wait
from sweeper.settings import CheckpointSettings, CoordinatorSettings, LeaseSettings, WorkerSettings
from sweeper.worker.parts import WorkerParts, facts_of
from sweeper.worker.program import worker_program

from .child import SimChild
from .faults import MemoryStore, Rates, SimStatements, SimStore, Weather, name_statements
from .promises import Broken, Promises, Truth
from .world import Process, SimBackground, World

name_statements([checkpoints, claims, guards, leases, reads, requests, results, sweeps])

LEASE = LeaseSettings(lease_s=60.0, heartbeat_s=15.0, blind_s=240.0)
CALM_LIMIT_S = 6000.0
"""After the last fault everything must be final within this time (backoffs, leases and respawns included)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How big a simulation is, and how bad its weather."""

    workers: int = 2
    trials: int = 3
    steps: int = 24
    faults_s: float = 300.0
    poll_s: float = 8.0
    rates: Rates = field(default_factory=Rates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one seed came to."""

    seed: int
    digest: str
    faults: int
    statements: int
    states: tuple[str, ...]
    virtual_s: float


class Scenario:
    """Builds the world of one seed and lets it run."""

    def __init__(self, url: str, seed: int, shape: Shape | None = None) -> None:
        self.world = world = World(seed)
        self.shape = shape or shape_of(world)
        self.store = MemoryStore()
        self.weather = Weather(world, self.shape.rates)
        self.truth = Truth()
        self.database = Database(url, "simulation", now=world.database_now)
        self.session: psycopg.Connection[Any] = psycopg.connect(url.replace("+psycopg", ""), autocommit=True)
        self.retry = RetryPolicy(max_crashes=3, max_no_progress=10, backoff_s=1.0, backoff_max_s=60.0)
        self.rewrite: Callable[[sa.Executable], sa.Executable] = lambda statement: statement
        self.distort_parts: Callable[[WorkerParts], WorkerParts] = lambda parts: parts
        self.statements = 0
        self._names = 0
        self._dirty = True
        self.sweep = self._open()
        self.promises = Promises(
            world, self.session, self.sweep.sweep_id, self.store, self.truth, steps=self.shape.steps,
            retry=self.retry, lease_s=LEASE.lease_s,
        )  # fmt: skip
        self.ledger_id: LedgerId = ledger_id(self.database)
        world.after_step = self._after_step
        self._padding = 70_000 if world.random("shape").random() < 0.3 else 0
        self.done = False

    def run(self) -> Report:
        """Let it rain, then let it clear up; check all the while.

        Raises:
            Broken: a promise did not hold.
        """
        try:
            for index in range(self.shape.workers):
                self._start_worker(index)
            self._start_coordinator(0)
            if self.world.random("shape").random() < 0.3:
                self._start_coordinator(1)
            self._plan_weather()
            self.world.run(self.shape.faults_s, self._over)
            self._calm()
            self.world.run(self.world.now_s + CALM_LIMIT_S, self._over)
            self._check()
            if not self._over():
                states = {number: row["state"] for number, row in self.promises.last.items()}
                raise Broken(f"LIVENESS: not finished {CALM_LIMIT_S:g} s after the last fault: {states}")
            return self._ended()
        finally:
            self.session.close()
            self.database.close()

    # -- building -----------------------------------------------------------------------------------------------------

    def _open(self) -> Sweep:
        seed = self.world.seed
        self.session.execute("DELETE FROM sweeper.pulse")
        now = self.world.database_now()
        self.session.execute(
            "INSERT INTO sweeper.pulse (singleton, last_seen_at, awake_since) VALUES (true, %s, %s)", (now, now)
        )
        name = f"simulation {seed}"
        # Checkpoints name trials and trials their head, so the circle is cut first.
        mine = "sweep_id = (SELECT sweep_id FROM sweeper.sweeps WHERE name = %s)"
        self.session.execute(f"UPDATE sweeper.trials SET head_id = NULL, head_step = NULL WHERE {mine}", (name,))
        self.session.execute("DELETE FROM sweeper.sweeps WHERE name = %s", (name,))
        return open_sweep(self.database, self._spec(name), new_id=SweepId(self._hex("sweep")))

    def _spec(self, name: str) -> SweepSpec:
        return SweepSpec(
            name=name, task="simulation:train", source_digest="0" * 64, sweep_dir="/nowhere",
            store_url=self.store.url, seed=self.world.seed, retry=self.retry, checkpoint_keep=2,
        )  # fmt: skip

    def _start_worker(self, index: int) -> None:
        process = self._process(f"w{index}")
        host = f"host{index % 2}"
        worker_id = WorkerId(self._hex(process.name))
        self.truth.workers[worker_id] = process
        hang_s = 90.0
        parts = WorkerParts(
            database=self._statements(process), store=SimStore(process, self.store, self.weather),
            clock=process.clock, background=SimBackground(process), start_child=self._child_starter(process),
            random_hex=lambda: self._hex(process.name), jitter=self.world.random(f"jitter/{process.name}").random,
            holder_is_dead=self._holder_is_dead(host), output_subdir=lambda grant: str(grant.number),
            sweep=facts_of(self.sweep),
            record=WorkerRecord(
                worker_id=worker_id, host=host, boot_id=host, lock_path=worker_id, lock_inode="0:0", pid=1, pool="sim"
            ),
            settings=WorkerSettings(
                lease=LEASE, checkpoint=CheckpointSettings(every_s=5.0), hang_s=hang_s, poll_s=self.shape.poll_s,
                first_poll_s=0.5,
            ),
        )  # fmt: skip
        process.on_end = lambda: self._again(lambda: self._start_worker(index))
        process.start(worker_program(self.distort_parts(parts)))

    def _start_coordinator(self, index: int) -> None:
        process = self._process(f"c{index}")
        parts = self._coordinator_parts(process)

        def ended() -> None:
            if process.result is not None and process.result.kind == "done":
                self.done = True
            else:
                self._again(lambda: self._start_coordinator(index))

        process.on_end = ended
        process.start(self._command(parts, process))

    def _coordinator_parts(self, process: Process) -> CoordinatorParts:
        asker = AskerRecord(
            asker_id=AskerId(self._hex(process.name)), host="host0", boot_id="host0", lock_path=process.name,
            lock_inode="0:0", pid=1,
        )  # fmt: skip
        parts = CoordinatorParts(
            database=self._statements(process), store=SimStore(process, self.store, self.weather),
            ledger_id=self.ledger_id, clock=process.clock, background=SimBackground(process),
            jitter=self.world.random(f"jitter/{process.name}").random, holder_is_dead=self._holder_is_dead("host0"),
            asker_is_dead=self._asker_is_dead, boot_id="host0",
            coordinator_id=CoordinatorId(asker.asker_id), sweep=self.sweep, asker=asker,
            asked=self.shape.trials, ask_again=lambda: self._ask(parts), workers=NoWorkers(), sink=Silence(),
            settings=CoordinatorSettings(
                workers=0, lease=LEASE, turn_s=15.0, first_turn_s=0.5, tend_every_s=15.0, collect_after_s=300.0,
                collect_every_s=60.0,
            ),
        )  # fmt: skip
        return parts

    def _command(self, parts: CoordinatorParts, process: Process) -> Program[Any]:
        """What a multirun does first: ask for all its trials, again and again until the ledger has answered."""
        while True:
            try:
                self._ask(parts)
                break
            except LedgerUnavailable:
                yield Wait(until_s=process.clock.monotonic_s() + 2.0)
        return (yield from coordinator_program(parts))

    def _ask(self, parts: CoordinatorParts) -> None:
        wanted = [_new_trial(number, self.world.seed) for number in range(self.shape.trials)]
        register_asker(parts.database, self.sweep.sweep_id, parts.asker)
        request_trials(parts.database, self.sweep.sweep_id, parts.asker.asker_id, wanted)
        settle_sweep(parts.database, self.sweep.sweep_id)

    def _child_starter(self, process: Process) -> Callable[[Start, int | None], SimChild]:
        fate = self.world.random(f"fate/{process.name}")

        def start_child(start: Start, restore_fd: int | None) -> SimChild:
            self.promises.child_starts(process, start)
            crash = fate.choices([None, "error", "signal", "hang"], [0.86, 0.06, 0.05, 0.03])[0]
            child = self._child(process, start, restore_fd, crash if self.weather.on else None)

            def crashed() -> None:
                self.weather.count += 1
                self.truth.crashes[start.number] = self.truth.crashes.get(start.number, 0) + 1

            child.on_crash = crashed
            return child

        return start_child

    def _child(self, process: Process, start: Start, restore_fd: int | None, crash: str | None) -> SimChild:
        return SimChild(
            process, start, restore_fd, steps=self.shape.steps, padding=self._padding, crash=crash
        )  # fmt: skip

    def _statements(self, process: Process) -> SimStatements:
        statements = SimStatements(process, Counted(self), self.weather)
        statements.undo_grant = self._maybe_undo if self.shape.rates.undo_grant else None
        return statements

    def _process(self, prefix: str) -> Process:
        self._names += 1
        return Process(self.world, f"{prefix}.{self._names}")

    def _hex(self, stream: str) -> str:
        return f"{self.world.random(f'id/{stream}').getrandbits(128):032x}"

    def _again(self, start: Callable[[], None]) -> None:
        if not self._over():
            self.world.after(self.world.random("respawn").uniform(0.5, 20.0), start)

    def _holder_is_dead(self, host: str) -> Callable[[Holder], bool]:
        def is_dead(holder: Holder) -> bool:
            worker = self.truth.workers.get(holder.worker_id)
            return (
                holder.boot_id == host
                and worker is not None
                and not worker.alive
                and not any(child.lives for child in worker.children)
            )

        return is_dead

    def _asker_is_dead(self, asker: AskerRecord) -> bool:
        return not any(process.name == asker.lock_path and process.alive for process in self.world.processes)

    # -- weather ------------------------------------------------------------------------------------------------------

    def _plan_weather(self) -> None:
        random_ = self.world.random("weather")
        at_s = 0.0
        while at_s < self.shape.faults_s:
            at_s += random_.expovariate(1 / 15.0)
            kind = random_.choices(
                ["evict", "kill", "stop", "cut_off", "database_away", "store_away", "damage", "kill_coordinator",
                 "second_notice", "clock"],
                [4, 3, 2, 2, 1, 2, 2, 2, 1, 0.3],
            )[0]  # fmt: skip
            self.world.after(at_s, self._event(kind, random_.random(), random_.uniform(5, 200)))

    def _event(self, kind: str, choice: float, duration_s: float) -> Callable[[], None]:
        def happen() -> None:
            if not self.weather.on:
                return
            self.weather.count += 1
            self.world.note(f"weather {kind}")
            self._happen(kind, choice, duration_s)

        return happen

    def _happen(self, kind: str, choice: float, duration_s: float) -> None:
        now_s = self.world.now_s
        match kind:
            case "database_away":
                self.weather.database_away_until_s = now_s + duration_s
            case "store_away":
                self.weather.store_away_until_s = now_s + duration_s
            case "clock":
                self.truth.clock_jumped = True
                self.world.database_offset_s += (choice - 0.5) * 400
            case "damage":
                self._damage(choice)
            case _:
                prefix = "c" if kind == "kill_coordinator" else "w"
                alive = [p for p in self.world.processes if p.alive and p.name.startswith(prefix)]
                if alive:
                    self._hit(kind, alive[int(choice * len(alive))], duration_s)

    def _hit(self, kind: str, process: Process, duration_s: float) -> None:
        match kind:
            case "evict":
                process.notify(Notice(source="signal", reason="SIGTERM"))
            case "second_notice":
                process.notify(Notice(source="signal", reason="SIGTERM"))
                process.notify(Notice(source="signal", reason="SIGTERM"))
            case "stop":
                process.sleep(duration_s)
            case "cut_off":
                self.weather.cut_off[process.name] = self.world.now_s + duration_s
                process.excuse(self.world.now_s, self.world.now_s + duration_s)
            case _:
                process.die("killed")

    def _damage(self, choice: float) -> None:
        """Lose or flip an object of some trial's head checkpoint."""
        heads = [
            c["key"]
            for row in self.promises.last.values()
            for c in row["checkpoints"] or []
            if c["id"] == row["head_id"]
        ]
        if not heads:
            return
        manifest = heads[int(choice * len(heads))]
        keys = self.store.list(manifest.rpartition("/")[0] + "/")
        if not keys:
            return
        key = keys[int(choice * 1000) % len(keys)]
        self.truth.damaged.add(manifest)
        self.world.note(f"damage {key[-14:]}")
        data = self.store.objects[key]
        if choice * 77 % 1 < 0.5:
            del self.store.objects[key]
        else:
            self.store.objects[key] = data[:-1] + bytes([data[-1] ^ 1])

    def _maybe_undo(self, run: Callable[[], Sequence[sa.Row[Any]]]) -> Sequence[sa.Row[Any]]:
        """A failover right after a grant: the new primary has never heard of it, and grants the same fence again."""
        columns = (
            "state, fence, lease_id, worker_id, lease_expires_at, child_started, saved_seq, attempts, step,"
            " available_at"
        )
        before = self.session.execute(
            f"SELECT trial_id, {columns} FROM sweeper.trials WHERE sweep_id = %s", (self.sweep.sweep_id,)
        ).fetchall()
        rows = run()
        if rows and self.weather.strikes(self.shape.rates.undo_grant, "undo"):
            lease_id = rows[0].lease_id
            old = next(row for row in before if row[0] == rows[0].trial_id)
            if old[1] == "pending":
                marks = ", ".join(["%s"] * len(old[1:]))
                self.session.execute(
                    f"UPDATE sweeper.trials SET ({columns}) = ROW({marks}) WHERE trial_id = %s", (*old[1:], old[0])
                )
                self.session.execute("DELETE FROM sweeper.attempts WHERE lease_id = %s", (lease_id,))
                self.truth.undone.add(lease_id)
                self.world.note("failover: the grant is lost")
        return rows

    def _calm(self) -> None:
        self.world.note("calm")
        self.weather.on = False
        self.weather.database_away_until_s = self.weather.store_away_until_s = 0.0
        self.weather.cut_off.clear()

    # -- watching -----------------------------------------------------------------------------------------------------

    def statement_ran(self, *, wrote: bool) -> None:
        """Count it; if the ledger may have changed, look again after this step."""
        self.statements += 1
        self._dirty = self._dirty or wrote

    def _after_step(self) -> None:
        if self._dirty:
            self._dirty = False
            self._check()

    def _check(self) -> None:
        self.promises.check()

    def _over(self) -> bool:
        return self.done and self.promises.all_final()

    def _ended(self) -> Report:
        rows = self.promises.last.values()
        self.world.note(str([(row["number"], row["state"], row["result"], row["fence"]) for row in rows]))
        return Report(
            seed=self.world.seed, digest=self.world.digest(), faults=self.weather.count, statements=self.statements,
            states=tuple(row["state"] for row in rows), virtual_s=self.world.now_s,
        )  # fmt: skip


class Counted:
    """The real database, with a possible rewrite of statements (a planted bug), and a note that something ran."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario

    @property
    def now(self) -> Any:
        return self._scenario.database.now

    def run(self, statement: sa.Executable, parameters: Mapping[str, Any] = {}) -> Any:
        rows = self._scenario.database.run(self._scenario.rewrite(statement), parameters)
        self._scenario.statement_ran(wrote=_writes(statement) and not (isinstance(rows, list) and not rows))
        return rows


_writing: dict[int, bool] = {}


def _writes(statement: sa.Executable) -> bool:
    if id(statement) not in _writing:
        text = str(statement)
        _writing[id(statement)] = any(verb in text for verb in ("INSERT", "UPDATE ", "DELETE"))
    return _writing[id(statement)]


class NoWorkers:
    """Workers are started by the scenario itself, as by another engine."""

    failed: str | None = None
    alive = 0
    waitables = ()

    def wake_at_s(self, now_s: float) -> float:
        return float("inf")

    def keep(self, count: int, now_s: float) -> None:
        return

    def progressed(self) -> None:
        return

    def drain(self) -> None:
        return

    def kill(self) -> None:
        return

    def reap(self, now_s: float) -> None:
        return


class Silence:
    """Nobody watches."""

    def transition(self, event: Transition) -> None:
        return

    def turn(self, snapshot: SweepProgress) -> None:
        return

    def note(self, text: str) -> None:
        return

    def close(self) -> None:
        return


def shape_of(world: World) -> Shape:
    """Every seed has its own weather; some have a database that fails over."""
    random_ = world.random("shape")
    bad = random_.uniform(0.3, 2.0)
    fails_over = random_.random() < 0.4
    rates = Rates(
        refuse=0.01 * bad, lose_reply=0.01 * bad, crash_before=0.002 * bad, crash_after=0.002 * bad,
        sleep=0.003 * bad, undo_grant=0.3 if fails_over else 0.0, store_away=0.02 * bad,
        store_lost_reply=0.02 * bad, store_crash=0.004 * bad, store_denied=0.001 * bad,
    )  # fmt: skip
    # More workers than trials where grants are lost, so that somebody waits to be given the same fence again.
    return Shape(
        workers=4 if fails_over else 2, poll_s=2.0 if fails_over else 8.0, steps=random_.randint(15, 60), rates=rates
    )


def _new_trial(number: int, seed: int) -> NewTrial:
    text = f'{{"x": {number}, "seed": {seed}}}'
    return NewTrial(
        config_hash=ConfigHash(hashlib.sha256(text.encode()).hexdigest()), config_text=text,
        overrides=(f"x={number}",), params={"x": number},
    )  # fmt: skip
