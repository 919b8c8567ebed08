"""What goes wrong, decided at one seam: before and after each statement and each call of the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from sweeper.errors import LedgerUnavailable, ObjectExists, ObjectMissing, StoreDenied, StoreUnavailable
from sweeper.ledger.database import Statements

from .world import Crash, Process, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Probability of each fault per call, while faults are on."""

    refuse: float = 0.01
    lose_reply: float = 0.01
    crash_before: float = 0.002
    crash_after: float = 0.002
    sleep: float = 0.003
    undo_grant: float = 0.0
    store_away: float = 0.02
    store_lost_reply: float = 0.02
    store_crash: float = 0.004
    store_denied: float = 0.001


class Weather:
    """Outages of database and store, for everybody or for one process."""

    def __init__(self, world: World, rates: Rates) -> None:
        self.world = world
        self.rates = rates
        self.on = True
        self.database_away_until_s = 0.0
        self.store_away_until_s = 0.0
        self.cut_off: dict[str, float] = {}
        self.count = 0

    def reaches_database(self, process: Process) -> bool:
        now_s = self.world.now_s
        return now_s >= self.database_away_until_s and now_s >= self.cut_off.get(process.name, 0.0)

    def reaches_store(self) -> bool:
        return self.world.now_s >= self.store_away_until_s

    def strikes(self, rate: float, stream: str) -> bool:
        """Draw always, so that a fault more or less does not shift the others."""
        hit = self.world.random(stream).random() < rate
        if hit and self.on:
            self.count += 1
        return hit and self.on


class SimStatements:
    """A process's connection to the real database, with weather."""

    def __init__(self, process: Process, database: Statements, weather: Weather) -> None:
        self.process = process
        self.database = database
        self.weather = weather
        self.rewrite: Callable[[sa.Executable], sa.Executable] = lambda statement: statement
        self.undo_grant: Callable[[Callable[[], Sequence[sa.Row[Any]]]], Sequence[sa.Row[Any]]] | None = None

    @property
    def now(self) -> Any:
        return self.database.now

    def run(self, statement: sa.Executable, parameters: Mapping[str, Any] = {}) -> Sequence[sa.Row[Any]]:
        weather, rates, stream = self.weather, self.weather.rates, f"sql/{self.process.name}"
        name = _name(statement)
        if weather.strikes(rates.crash_before, stream):
            self._note(name, "crash before")
            raise Crash
        if weather.strikes(rates.sleep, stream):
            self.weather.world.pause_inside(self.process, self.weather.world.random(stream).uniform(1, 150))
        if not weather.reaches_database(self.process) or weather.strikes(rates.refuse, stream):
            self._note(name, "refused")
            raise LedgerUnavailable("the simulated database does not answer")
        rows = self._really(statement, parameters)
        self._note(name, str(len(rows)))
        if weather.strikes(rates.lose_reply, stream):
            self._note(name, "reply lost")
            raise LedgerUnavailable("the reply was lost")
        if weather.strikes(rates.crash_after, stream):
            self._note(name, "crash after")
            raise Crash
        return rows

    def _really(self, statement: sa.Executable, parameters: Mapping[str, Any]) -> Sequence[sa.Row[Any]]:
        def run() -> Sequence[sa.Row[Any]]:
            return self.database.run(self.rewrite(statement), parameters)

        if self.undo_grant is not None and "INSERT INTO sweeper.attempts" in getattr(statement, "text", ""):
            return self.undo_grant(run)
        return run()

    def _note(self, name: str, what: str) -> None:
        self.weather.world.note(f"{self.process.name} sql {name} {what}")


class MemoryStore:
    """Objects in a dictionary, with the promises of `ObjectStore`."""

    url = "memory://simulation"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def create(self, key: str, data: bytes | memoryview) -> None:
        if self.objects.setdefault(key, bytes(data)) != bytes(data):
            raise ObjectExists(key)

    def replace(self, key: str, data: bytes | memoryview) -> None:
        self.objects[key] = bytes(data)

    def read(self, key: str) -> bytes:
        if key not in self.objects:
            raise ObjectMissing(key)
        return self.objects[key]

    def read_range(self, key: str, offset: int, size: int) -> bytes:
        return self.read(key)[offset : offset + size]

    def size(self, key: str) -> int:
        return len(self.read(key))

    def list(self, prefix: str) -> list[str]:
        return sorted(key for key in self.objects if key.startswith(prefix))

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)


class SimStore:
    """A process's way to the store, with weather. A crash between two calls is a torn upload."""

    url = MemoryStore.url

    def __init__(self, process: Process, inner: MemoryStore, weather: Weather) -> None:
        self.process = process
        self.inner = inner
        self.weather = weather

    def create(self, key: str, data: bytes | memoryview) -> None:
        self._call("create", lambda: self.inner.create(key, data))

    def replace(self, key: str, data: bytes | memoryview) -> None:
        self._call("replace", lambda: self.inner.replace(key, data))

    def read(self, key: str) -> bytes:
        return self._call("read", lambda: self.inner.read(key))

    def read_range(self, key: str, offset: int, size: int) -> bytes:
        return self._call("read", lambda: self.inner.read_range(key, offset, size))

    def size(self, key: str) -> int:
        return self._call("size", lambda: self.inner.size(key))

    def list(self, prefix: str) -> list[str]:
        return self._call("list", lambda: self.inner.list(prefix))

    def delete(self, keys: Iterable[str]) -> None:
        self._call("delete", lambda: self.inner.delete(keys))

    def _call(self, name: str, call: Callable[[], Any]) -> Any:
        weather, rates, stream = self.weather, self.weather.rates, f"store/{self.process.name}"
        if weather.strikes(rates.store_crash, stream):
            weather.world.note(f"{self.process.name} store {name} crash before")
            raise Crash
        if not weather.reaches_store() or weather.strikes(rates.store_away, stream):
            raise StoreUnavailable("the simulated store does not answer")
        if weather.strikes(rates.store_denied, stream):
            raise StoreDenied("the simulated store lets nobody in")
        value = call()
        if weather.strikes(rates.store_lost_reply, stream):
            raise StoreUnavailable("the reply was lost")
        return value


_NAMES: dict[int, str] = {}


def name_statements(modules: Iterable[Any]) -> None:
    """Learn the statements' names from the modules that define them, for the trace and for aimed faults."""
    for module in modules:
        for name, value in vars(module).items():
            if isinstance(value, sa.Executable):
                _NAMES[id(value)] = name.strip("_").lower()


def _name(statement: sa.Executable) -> str:
    return _NAMES.get(id(statement), "?")
