"""The simulator is worth nothing if it finds nothing: bugs are planted, and must be caught within a few seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from sweeper.checkpoint.keys import parse_manifest_key
from sweeper.ledger.guards import HELD
from sweeper.ledger.sql import statement
from sweeper.model.states import AttemptOutcome
from sweeper.worker import committing, saving

from .faults import Rates
from .promises import Broken
from .scenario import Scenario, Shape

pytestmark = pytest.mark.slow

FEW = 12


FAILING_OVER = Shape(workers=4, poll_s=2.0, steps=40, rates=Rates(undo_grant=0.5))
"""Grants are lost again and again, and somebody is always waiting to be given the same fence."""


def _caught(url: str, plant: Callable[[Scenario], None] = lambda scenario: None, *, shape: Shape | None = None) -> str:
    """Run seeds until a promise is seen broken; give what was said."""
    for seed in range(FEW):
        scenario = Scenario(url, seed, shape)
        plant(scenario)
        try:
            scenario.run()
        except (Broken, ValueError) as caught:  # the program's own alarm counts as well
            return str(caught)
    pytest.fail(f"{FEW} seeds did not catch it")


def test_a_guard_without_the_lease_id_is_caught(ledger_url: str) -> None:
    """FENCE: after a failover the same fence is granted twice; only the lease id tells the holders apart."""
    weaker = HELD.replace("t.lease_id = :lease_id AND ", "")
    assert weaker != HELD
    known: dict[int, sa.Executable] = {}

    def weaken(original: sa.Executable) -> sa.Executable:
        if isinstance(original, sa.TextClause) and HELD in original.text:
            return known.setdefault(id(original), statement(original.text.replace(HELD, weaker)))
        return original

    def plant(scenario: Scenario) -> None:
        scenario.rewrite = weaken

    caught = _caught(ledger_url, plant, shape=FAILING_OVER)
    assert "FENCE" in caught or "comes after save" in caught, "two holders wrote, or one stumbled over the other's save"


def test_the_same_failovers_break_nothing_while_the_guard_is_whole(ledger_url: str) -> None:
    """FENCE: the history in which the planted bug shows is one that the real guard survives."""
    scenario = Scenario(ledger_url, 0, FAILING_OVER)
    scenario.run()
    assert scenario.truth.undone, "grants were really lost"


def test_a_row_before_its_manifest_is_caught(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """FALLBACK: a row that names a manifest which is not there yet is a checkpoint that does not exist."""
    put_off: list[tuple[Any, str, bytes]] = []

    class Hasty:
        def __init__(self, store: Any) -> None:
            self._store = store

        def create(self, key: str, data: bytes) -> None:
            if parse_manifest_key(key):
                put_off.append((self._store, key, data))
            else:
                self._store.create(key, data)

        def size(self, key: str) -> int:
            return int(self._store.size(key))

    write, commit = saving.write_checkpoint, saving.commit_checkpoint

    def commit_first(*args: Any, **settings: Any) -> None:
        commit(*args, **settings)
        while put_off:
            store, key, data = put_off.pop()
            store.create(key, data)

    monkeypatch.setattr(saving, "write_checkpoint", lambda store, **rest: write(Hasty(store), **rest))
    monkeypatch.setattr(saving, "commit_checkpoint", commit_first)
    assert "FALLBACK" in _caught(ledger_url)


def test_an_eviction_counted_as_a_crash_is_caught(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAIR: the simulator knows how many children really crashed."""
    release = committing.release_trial

    def unfair(*args: Any, outcome: AttemptOutcome, **rest: Any) -> Any:
        evicted = outcome is AttemptOutcome.EVICTED
        return release(*args, outcome=AttemptOutcome.CRASHED if evicted else outcome, **rest)

    monkeypatch.setattr(committing, "release_trial", unfair)
    assert "FAIR" in _caught(ledger_url)
