"""What is too much for one call after another is written at once, and shows the same."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from typing import Any

import optuna
import pytest

from sweeper.coordinator import mirror_reading
from sweeper.coordinator.mirroring import StudyMirroring
from sweeper.ledger import mirror_copy
from sweeper.model.search import Constraint
from sweeper.model.states import AttemptOutcome
from sweeper.model.trial import Grant
from sweeper.search import mirror
from tests.mirror.test_rebuild import SPACE
from tests.mirror.world import SearchWorld, facts

pytestmark = pytest.mark.slow

NUMBERS = [0.5, -1e-300, math.nan, math.inf, -math.inf, 3.0]
TRIALS = 24
ROUNDS = 6


class Life:
    """A search whose trials go through everything, in two sweeps alike."""

    def __init__(self, seed: int, *worlds: SearchWorld) -> None:
        self._random, self._worlds = random.Random(seed), worlds
        self._held: dict[int, tuple[Grant, ...]] = {}
        self._next = itertools.count()

    def go_on(self) -> None:
        """Something happens to most trials; new ones come."""
        for number in sorted(self._held):
            self._befall(number, self._random.choice(("nothing", "report", "report", "end", "end", "leave", "pause")))
        while len(self._held) < TRIALS:
            number = next(self._next)
            params = {"lr": (number + 1) / 1000, "width": 8, "net": self._random.choice(([8, 8], [16])), "flag": None}
            self._held[number] = tuple(world.start(**params) for world in self._worlds)
            self._befall(number, self._random.choice(("nothing", "report", "end")))

    def _befall(self, number: int, what: str) -> None:
        grants, result = self._held[number], self._random.choice(NUMBERS)
        reports, first = self._random.choices(NUMBERS, k=3), self._random.randrange(4)
        end = self._random.choice((SearchWorld.complete, SearchWorld.prune, SearchWorld.fail))
        if what == "leave":
            for world, grant in zip(self._worlds, grants, strict=True):
                world.report(grant, *reports, first=first, ms=12.0)
                world.release(grant, AttemptOutcome.EVICTED)
            self._held[number] = grants = tuple(world.lease() for world in self._worlds)  # nothing was saved
        for world, grant in zip(self._worlds, grants, strict=True):
            if what in ("report", "leave", "end"):
                world.report(grant, *reports, first=first, ms=31.0 * self._share(number))
            if what == "end":
                end(world, grant, str(result) if end is SearchWorld.fail else result)  # type: ignore[operator]
            if what == "pause":
                world.release(grant, AttemptOutcome.PAUSED)
        if what in ("end", "pause"):
            del self._held[number]

    def _share(self, number: int) -> float:
        return number % 3 / 2


@pytest.fixture
def worlds(world: SearchWorld) -> Iterator[tuple[SearchWorld, SearchWorld]]:
    """Two sweeps in one database."""
    settings: dict[str, Any] = {"space": SPACE, "constraints": (Constraint(metric="ms", at_most=20.0),)}
    one, other = (SearchWorld.build(world.db, world.url, name=name, **settings) for name in ("calls", "at once"))
    yield one, other
    one.close()
    other.close()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_written_at_once_a_study_is_what_calls_would_have_made_it(
    worlds: tuple[SearchWorld, SearchWorld], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    by_calls, at_once = worlds
    monkeypatch.setattr(mirror_reading, "SETTLED_S", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(mirror_reading, "FEW", 10**6)
        slow = by_calls.mirroring()
    fast = at_once.mirroring()
    batches: list[mirror.MirrorBatch] = []
    write = mirror.Mirror._write_at_once
    monkeypatch.setattr(
        mirror.Mirror,
        "_write_at_once",
        lambda one, writer, batch, written: batches.append(batch) or write(one, writer, batch, written),
    )
    life = Life(seed, by_calls, at_once)
    for _ in range(ROUNDS):
        life.go_on()
        with monkeypatch.context() as patch:
            patch.setattr(mirror_reading, "FEW", 10**6)
            _until_current(by_calls, slow)
        assert batches == [], "that was call by call"
        _until_current(at_once, fast)
        assert batches, "and that was not"
        batches.clear()
        assert _without_times(at_once) == _without_times(by_calls)
    assert at_once.notes == by_calls.notes == []
    slow.close()
    fast.close()


def test_a_trial_that_goes_on_for_a_while_is_shown_though_others_come_fast(world: SearchWorld) -> None:
    mirroring = world.mirroring()
    lasting = world.start(lr=0.001, layers=1, act="relu")
    world.sql("UPDATE sweeper.attempts SET started_at = started_at - interval '2 seconds'")
    for number in range(30):
        world.start(lr=0.01 + number / 100, layers=1, act=None)
    world.report(lasting, 0.75)
    world.turn(mirroring, 4)
    (shown,) = world.study().get_trials()
    assert (shown.state, shown.intermediate_values) == (optuna.trial.TrialState.RUNNING, {0: 0.75})
    assert world.lag == 30, "the others may be over before they are worth an entry"
    mirroring.close()


def test_what_a_running_trial_reports_is_shown_after_a_new_contact_too(world: SearchWorld) -> None:
    """A coordinator that takes over, or finds the study written anew, knows no entry; others come fast meanwhile."""
    lasting = [world.start(lr=0.001 + number / 1000, layers=1, act="relu") for number in range(5)]
    world.show()
    mirroring = world.mirroring()
    for turn in range(12):
        for grant in lasting:
            world.report(grant, 0.5, first=turn)
        for number in range(15):
            world.complete(world.start(lr=0.1 + turn / 100 + number / 10_000, layers=1, act=None), 0.5)
        world.turn(mirroring, 1)
    shown = [one for one in world.study().get_trials() if one.user_attrs["sweeper:number"] < 5]
    assert len(shown) == 5
    assert all(max(one.intermediate_values, default=-1) >= 3 for one in shown)
    mirroring.close()


def test_an_entry_that_somebody_finished_by_hand_is_put_right_then_too(world: SearchWorld) -> None:
    grants = [world.start(lr=0.01 + number / 100, layers=1, act=None) for number in range(30)]
    mirroring = world.mirroring()
    world.turn(mirroring, 4)
    world.sql("UPDATE sweeper.attempts SET started_at = started_at - interval '2 seconds'")
    world.turn(mirroring, 4)
    study = world.study()
    study.tell(study.get_trials()[7].number, 99.0)
    for grant in grants:
        world.report(grant, 0.9)
        world.complete(grant, 0.5)
    world.turn(mirroring, 8)
    assert [one.values for one in world.study().get_trials()] == [[0.5]] * 30
    assert (world.lag, world.notes) == (0, [])
    mirroring.close()


@pytest.mark.parametrize("known", [True, False], ids=["tables that we know", "others"])
def test_where_trials_end_faster_than_calls_can_show_them_they_are_added_at_once(
    world: SearchWorld, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """Short trials: by Optuna's calls one takes a hundred times as long, and the coordinator has better to do."""
    if not known:
        monkeypatch.setattr(mirror_copy, "KNOWN_REVISION", "v9")
    mirroring = world.mirroring()
    running = world.start(lr=0.001, layers=1, act="relu")
    world.turn(mirroring, 4)
    study_id = world.study()._study_id
    calls: list[object] = []
    create = optuna.storages.RDBStorage.create_new_trial
    monkeypatch.setattr(
        optuna.storages.RDBStorage,
        "create_new_trial",
        lambda *given: calls.append(given) or create(*given),  # type: ignore[func-returns-value]
    )
    for number in range(40):
        grant = world.start(lr=0.01 + number / 100, layers=1, act=None)
        world.report(grant, 0.9, math.nan)
        world.complete(grant, float(number))
    world.complete(running, -1.0)
    world.turn(mirroring, 12)
    study = world.study()
    assert study._study_id == study_id, "whoever looks at it goes on looking"
    assert len(calls) == (0 if known else 40)
    assert sorted(one.user_attrs["sweeper:number"] for one in study.get_trials()) == list(range(41))
    assert [one.number for one in study.get_trials()] == list(range(41))
    assert study.best_value == -1.0
    assert (world.lag, mirroring.lag, world.notes) == (0, 0, [])
    world.complete(world.start(lr=0.5, layers=1, act="tanh"), 0.5)
    world.turn(mirroring, 2)
    assert len(world.study().get_trials()) == 42
    mirroring.close()


def test_entries_added_at_once_and_never_acknowledged_are_found_again(
    world: SearchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.show()
    for number in range(40):
        world.complete(world.start(lr=0.01 + number / 100, layers=1, act=None), float(number))
    doomed = world.mirroring()
    with monkeypatch.context() as patch:
        patch.setattr("sweeper.coordinator.mirroring.acknowledge_mirrored", _die)
        with pytest.raises(KeyboardInterrupt):
            world.turn(doomed)
    doomed.close()
    assert len(world.study().get_trials()) == 40
    assert world.lag == 40
    assert len(world.show().get_trials()) == 40
    assert (world.lag, world.notes) == (0, [])


def _without_times(world: SearchWorld) -> list[Any]:
    return [of_one[:-1] for of_one in facts(world.study())]


def _until_current(world: SearchWorld, mirroring: StudyMirroring) -> None:
    world.turn(mirroring, 4)
    for _ in range(30):
        if world.lag:
            world.turn(mirroring, 1)
    assert world.lag == 0


def _die(*_: object) -> None:
    raise KeyboardInterrupt
