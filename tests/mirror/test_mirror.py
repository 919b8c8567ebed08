"""A search's trials as an Optuna study, from first to last (TRUTH: a projection, and always one of what is true)."""

from __future__ import annotations

import itertools
import math

import optuna
import pytest
from optuna.trial import TrialState as OptunaState

from tests.mirror.world import SearchWorld, entry, steps

PARAMS = {"lr": 0.1, "layers": 3, "act": "relu"}


def test_a_trial_is_shown_from_its_start_to_its_end(world: SearchWorld) -> None:
    mirroring = world.mirroring()
    world.propose(**PARAMS)
    world.turn(mirroring, 4)
    assert world.study().get_trials() == []
    assert world.lag == 0

    grant = world.lease()
    world.report(grant, 0.9, 0.8)
    world.turn(mirroring, 2)
    running = entry(world.study(), 0)
    assert running.state is OptunaState.RUNNING
    assert running.params == PARAMS
    assert steps(running) == {0: 0.9, 1: 0.8}

    world.report(grant, 0.7, math.inf, math.nan, first=2)
    world.turn(mirroring, 2)
    assert steps(entry(world.study(), 0)) == {0: 0.9, 1: 0.8, 2: 0.7, 3: math.inf, 4: None}

    world.complete(grant, 0.5)
    assert world.lag == 1
    world.turn(mirroring, 2)
    done = entry(world.study(), 0)
    assert (done.state, done.values) == (OptunaState.COMPLETE, [0.5])
    assert done.user_attrs["sweeper:hash"] == grant.config_hash
    assert set(done.user_attrs) == {"sweeper:number", "sweeper:hash", "sweeper:step"}, "what says nothing is left out"
    assert (world.lag, mirroring.lag, world.notes) == (0, 0, [])
    mirroring.close()


def test_a_trial_that_began_and_ended_between_two_turns_is_one_call(
    world: SearchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirroring = world.mirroring()
    world.turn(mirroring, 4)
    calls: list[str] = []
    storage = optuna.storages.RDBStorage
    for name in ("create_new_trial", "set_trial_user_attr", "set_trial_state_values", "set_trial_intermediate_value"):
        original = getattr(storage, name)
        monkeypatch.setattr(
            storage, name, lambda *given, of=original, called=name, **named: calls.append(called) or of(*given, **named)
        )
    grant = world.start(**PARAMS)
    world.report(grant, 0.9, 0.8)
    world.complete(grant, 0.5)
    world.turn(mirroring, 2)
    assert calls == ["create_new_trial"]
    assert entry(world.study(), 0).datetime_complete is not None
    mirroring.close()


def test_where_there_is_always_more_to_show_it_rests_and_at_the_end_it_does_not(
    world: SearchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its work and the proposals share an interpreter: without rests a search proposes a quarter less."""
    mirror, moments = world.mirror(), []
    write = mirror.write
    monkeypatch.setattr(mirror, "write", lambda batch: moments.append(world.clock.now_s) or write(batch))
    mirroring = world.mirroring(mirror=mirror)
    world.turn(mirroring, 4)
    moments.clear()
    for turn in range(20):
        for x in range(14 if turn == 0 else 26):
            world.complete(world.start(**{**PARAMS, "lr": 0.1 + 0.01 * turn + 0.0001 * x}), 0.5)
        world.turn(mirroring, 1)
    gaps = [after - before for before, after in itertools.pairwise(moments)]
    # A batch takes a second here, until the next turn. Fourteen have ended, then 52, then as many as fit.
    assert gaps == [2, 7, 7]
    before_s = world.clock.now_s
    while not mirroring.finish(world.fence):
        world.clock.now_s += 0.1
    assert world.clock.now_s - before_s < 20
    assert world.lag == 0
    mirroring.close()
