"""Points that people enqueue on the mirrored study: tried once each, and answered on their own entry."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from optuna.trial import TrialState as OptunaState

from sweeper.ledger.enqueued import next_enqueued, set_enqueued_refused
from sweeper.ledger.searches import end_search
from sweeper.model.space import Choices, FloatRange
from sweeper.search.mirror import MirrorBatch
from tests.mirror.world import SearchWorld

pytestmark = pytest.mark.slow

POINT = {"lr": 0.5, "layers": 2}


def one(study: optuna.Study, number: int) -> optuna.trial.FrozenTrial:
    return study.get_trials()[number]


def enqueued(world: SearchWorld) -> tuple[str, dict[str, Any]] | None:
    return next_enqueued(world.db, world.sweep.sweep_id)


def test_a_waiting_point_is_claimed_tried_and_its_entry_becomes_the_trials(world: SearchWorld) -> None:
    mirroring = world.mirroring()
    world.turn(mirroring, 4)
    world.study().enqueue_trial(POINT, user_attrs={"why": "a hunch"})
    world.turn(mirroring, 3)
    found = enqueued(world)
    assert found is not None
    key, point = found
    assert point == POINT, "nothing but its fixed parameters is taken (SAFE)"
    assert one(world.study(), 0).state is OptunaState.RUNNING, "no other program tries it"

    grant = world.start(**POINT, act="relu", key=key)
    assert enqueued(world) is None
    world.report(grant, 0.9)
    world.turn(mirroring, 3)
    running = one(world.study(), 0)
    assert running.params == POINT | {"act": "relu"}
    assert running.user_attrs["sweeper:number"] == 0
    assert running.user_attrs["why"] == "a hunch"
    world.complete(grant, 0.5)
    world.turn(mirroring, 3)
    (only,) = world.study().get_trials()
    assert (only.state, only.values, only.intermediate_values) == (OptunaState.COMPLETE, [0.5], {0: 0.9})
    assert (world.lag, world.notes) == (0, [])
    mirroring.close()


def test_a_point_is_put_into_the_ledger_once_however_often_the_coordinator_dies(world: SearchWorld) -> None:
    world.show().enqueue_trial(POINT)
    mirror = world.mirror()
    mirror.contact()
    claimed = mirror.write(MirrorBatch(claims=True))  # and the coordinator dies before the ledger hears of it
    assert [point.point for point in claimed.points] == [POINT]
    mirror.close()
    for _ in range(2):
        world.show()
        assert len(world.sql("SELECT key FROM sweeper.enqueued")) == 1
    key, _ = enqueued(world) or ("", {})
    world.complete(world.start(**POINT, act=None, key=key), 0.5)
    (only,) = world.show().get_trials()
    assert only.values == [0.5]


@pytest.mark.parametrize("ends", [True, False], ids=["ended", "running"])
def test_an_entry_that_became_a_trials_and_was_never_acknowledged_stays_its_only_one(
    world: SearchWorld, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """It is older than the last entry that the ledger knows, so nobody finds it among the new ones."""
    mirroring = world.mirroring()
    world.turn(mirroring, 4)
    world.study().enqueue_trial(POINT)
    world.turn(mirroring, 3)
    key, _ = enqueued(world) or ("", {})
    world.complete(world.start(lr=0.01, layers=1, act=None), 0.5)
    world.turn(mirroring, 3)
    grant = world.start(**POINT, act="relu", key=key)
    world.report(grant, 0.9)
    if ends:
        world.complete(grant, 0.25)
    with monkeypatch.context() as patch:
        patch.setattr("sweeper.coordinator.mirroring.acknowledge_mirrored", _die_of_acks)
        with pytest.raises(KeyboardInterrupt):
            world.turn(mirroring, 4)
    mirroring.close()
    world.show()
    if not ends:
        world.report(grant, 0.8, first=1)
        world.complete(grant, 0.25)
    shown = world.show().get_trials()
    assert sorted(one.user_attrs["sweeper:number"] for one in shown) == [0, 1]
    (tried,) = [one for one in shown if one.user_attrs["sweeper:number"] == grant.number]
    assert (tried.state, tried.values) == (OptunaState.COMPLETE, [0.25])
    assert tried.intermediate_values == ({0: 0.9} if ends else {0: 0.9, 1: 0.8})
    assert world.lag == 0


def test_a_point_that_was_tried_before_or_does_not_fit_says_so(world: SearchWorld) -> None:
    mirroring = world.mirroring()
    world.complete(world.start(lr=0.5, layers=2, act="relu"), 0.5)
    world.turn(mirroring, 6)
    study = world.study()
    study.enqueue_trial({"lr": 0.5, "layers": 2, "act": "relu"})
    study.enqueue_trial({"lr": 100.0})
    world.turn(mirroring, 3)
    key, _ = enqueued(world) or ("", {})
    world.propose(lr=0.5, layers=2, act="relu", key=key)
    key, point = enqueued(world) or ("", {})
    assert point == {"lr": 100.0}
    leader = (world.sweep.sweep_id, world.coordinator_id, world.fence)
    set_enqueued_refused(world.db, *leader, key=key, reason="lr=100.0 is outside 1e-05 to 1.0")
    world.turn(mirroring, 3)
    study = world.study()
    assert [one.state for one in study.get_trials()] == [OptunaState.COMPLETE, OptunaState.FAIL, OptunaState.FAIL]
    assert one(study, 1).user_attrs["sweeper:reason"] == "trial 0 has this config"
    assert one(study, 2).user_attrs["sweeper:reason"] == "lr=100.0 is outside 1e-05 to 1.0"
    mirroring.close()


def test_points_that_nobody_will_try_any_more_are_ended_with_the_search(world: SearchWorld) -> None:
    mirroring = world.mirroring()
    world.turn(mirroring, 4)
    world.study().enqueue_trial(POINT)
    world.turn(mirroring, 3)
    end_search(world.db, world.sweep.sweep_id, world.coordinator_id, world.fence, reason="100 trials")
    world.study().enqueue_trial({"lr": 0.7})
    while not mirroring.finish(world.fence):
        pass
    study = world.study()
    assert one(study, 0).state is OptunaState.FAIL
    assert "ended" in one(study, 0).user_attrs["sweeper:reason"]
    assert one(study, 1).state is OptunaState.WAITING, "the next run of the sweep may still take it"
    mirroring.close()


def test_an_entry_that_another_program_took_first_is_left_to_it(world: SearchWorld) -> None:
    mirroring = world.mirroring()
    world.turn(mirroring, 4)
    study = world.study()
    study.enqueue_trial(POINT)
    theirs = study.ask()
    world.turn(mirroring, 3)
    assert enqueued(world) is None
    study.tell(theirs, 0.125)
    world.complete(world.start(lr=0.1, layers=1, act=None), 0.5)
    world.turn(mirroring, 3)
    assert [found.values for found in world.study().get_trials()] == [[0.125], [0.5]]
    world.rebuild()
    assert [found.values for found in world.study().get_trials()] == [[0.5], [0.125]], "kept when it is written anew"
    mirroring.close()


@pytest.mark.parametrize("fixed", [["lr", 0.5], "lr=0.5", 7])
def test_fixed_parameters_that_are_no_mapping_are_refused(world: SearchWorld, fixed: Any) -> None:
    """DB-02: such an entry makes the dashboard answer 500 for as long as it waits."""
    mirroring = world.mirroring()
    world.turn(mirroring, 4)
    study = world.study()
    template = optuna.trial.create_trial(state=OptunaState.WAITING, system_attrs={"fixed_params": fixed})
    study.add_trial(template)
    world.turn(mirroring, 3)
    assert enqueued(world) is None
    refused = one(world.study(), 0)
    assert (refused.state, refused.system_attrs["fixed_params"]) == (OptunaState.FAIL, {})
    assert world.notes == []
    mirroring.close()


def test_a_choice_is_meant_by_the_text_that_the_dashboard_shows(world: SearchWorld) -> None:
    space = {"net": Choices(values=([8, 8], [16])), "x": FloatRange(low=0.0, high=1.0)}
    other = SearchWorld.build(world.db, world.url, name="nets", space=space)
    mirroring = other.mirroring()
    other.turn(mirroring, 4)
    other.study().enqueue_trial({"net": "[8,8]"})
    other.turn(mirroring, 3)
    found = enqueued(other)
    assert found is not None
    assert found[1] == {"net": [8, 8]}
    mirroring.close()
    other.close()


def _die_of_acks(_db: object, _mark: str, acks: list[object]) -> None:
    if acks:
        raise KeyboardInterrupt
