"""The study written anew from the ledger: the same as the one that grew with it, by COPY and by Optuna's calls."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import optuna
import psycopg
import pytest
from optuna.trial import TrialState as OptunaState
from optuna_dashboard import get_note, save_note

from sweeper.coordinator import mirror_rebuild
from sweeper.coordinator.mirror_rebuild import Rebuilt
from sweeper.ledger import mirror_copy
from sweeper.model.search import Constraint, Direction
from sweeper.model.space import Choices, FloatRange, IntRange
from sweeper.model.states import AttemptOutcome
from tests.mirror.world import SearchWorld, facts

pytestmark = pytest.mark.slow

SPACE = {
    "lr": FloatRange(low=1e-5, high=1.0, log=True),
    "width": IntRange(low=8, high=64, step=8),
    "net": Choices(values=([8, 8], [16], "é'\\\t\n")),
    "flag": Choices(values=(True, None, "a\tb")),
}
BY_COPY = pytest.mark.parametrize("by_copy", [True, False], ids=["by COPY", "by calls"])


@pytest.fixture
def varied(world: SearchWorld) -> Iterator[SearchWorld]:
    """A search with a trial of every kind, mirrored as it went."""
    other = SearchWorld.build(
        world.db, world.url, name="varied", space=SPACE, constraints=(Constraint(metric="ms", at_most=20.0),)
    )
    base: dict[str, Any] = {"lr": 0.1, "width": 16, "net": [8, 8], "flag": None}
    mirroring = other.mirroring()
    done = other.start(**base)
    other.report(done, 0.5, math.nan, math.inf, -math.inf, 1e-300, ms=10.0)
    other.complete(done, -math.inf)
    other.turn(mirroring, 6)
    pruned = other.start(**base | {"net": "é'\\\t\n", "flag": "a\tb"})
    other.report(pruned, 0.7, 0.6)
    other.prune(pruned)
    other.fail(other.start(**base | {"net": [16]}), "boom\x00 \N{SNOWMAN}\n\\N")
    other.turn(mirroring, 3)
    paused = other.start(**base | {"flag": True})
    other.report(paused, 0.4, 0.3)
    other.turn(mirroring, 3)
    other.release(paused, AttemptOutcome.PAUSED)
    running = other.start(**base | {"width": 64})
    other.report(running, 0.2)
    other.turn(mirroring, 3)
    mirroring.close()
    yield other
    other.close()


def by(world: SearchWorld, monkeypatch: pytest.MonkeyPatch, *, copy: bool) -> Rebuilt:
    """Write the study anew; without COPY as on tables of a revision that we do not know."""
    with monkeypatch.context() as patch:
        if not copy:
            patch.setattr(mirror_copy, "KNOWN_REVISION", "v9")
        rebuilt = world.rebuild()
    assert isinstance(rebuilt, Rebuilt)
    assert rebuilt.by_copy is copy
    return rebuilt


@BY_COPY
def test_the_new_study_shows_what_the_grown_one_did(
    varied: SearchWorld, monkeypatch: pytest.MonkeyPatch, by_copy: bool
) -> None:
    """TRUTH: a projection that can be rebuilt."""
    before = varied.study()
    grown, old_id = facts(before), before._study_id
    rebuilt = by(varied, monkeypatch, copy=by_copy)
    assert (rebuilt.study, rebuilt.trials) == ("varied", 5)
    study = varied.study()
    assert facts(study) == grown
    assert study._study_id != old_id, "what remembers entries of the former one looks again"
    assert [one.number for one in study.get_trials()] == list(range(5))
    assert study.best_value == -math.inf
    assert [found.study_name for found in study._storage.get_all_studies()] == ["varied"]
    assert varied.lag == 0
    left = varied.sql(
        "SELECT count(*) AS found FROM optuna.trial_intermediate_values v"
        " WHERE NOT EXISTS (SELECT FROM optuna.trials t WHERE t.trial_id = v.trial_id)"
    )
    assert left[0].found == 0


@BY_COPY
def test_a_running_coordinator_goes_on_with_the_new_study(
    varied: SearchWorld, monkeypatch: pytest.MonkeyPatch, by_copy: bool
) -> None:
    """`sweeper rebuild NAME --mirror` works beside a running sweep."""
    mirroring = varied.mirroring()
    varied.turn(mirroring, 6)
    mirroring.turn(varied.fence)  # a batch for the former study is under way
    by(varied, monkeypatch, copy=by_copy)
    varied.complete(varied.start(lr=0.5, width=8, net=[16], flag=None), 0.125)
    varied.turn(mirroring, 6)
    study = varied.study()
    assert len(study.get_trials()) == 6
    assert (varied.lag, varied.notes) == (0, [])
    mirroring.close()


@BY_COPY
def test_what_other_people_put_on_the_study_stays(
    varied: SearchWorld, monkeypatch: pytest.MonkeyPatch, by_copy: bool
) -> None:
    study = varied.study()
    study.set_user_attr("theirs", {"a": 1})
    study.enqueue_trial({"lr": 0.5})
    save_note(study, "# about the study")
    if by_copy:
        theirs = next(one for one in study.get_trials() if one.user_attrs.get("sweeper:number") == 3)
        save_note(optuna.trial.Trial(study, theirs._trial_id), "about trial 3")
    by(varied, monkeypatch, copy=by_copy)
    study = varied.study()
    assert study.user_attrs["theirs"] == {"a": 1}
    assert get_note(study) == "# about the study"
    waiting = [one for one in study.get_trials() if one.state is OptunaState.WAITING]
    assert [one.system_attrs["fixed_params"] for one in waiting] == [{"lr": 0.5}]
    if by_copy:
        same = next(one for one in study.get_trials() if one.user_attrs.get("sweeper:number") == 3)
        assert get_note(optuna.trial.Trial(study, same._trial_id)) == "about trial 3"


def test_a_study_that_is_missing_is_made(world: SearchWorld) -> None:
    two = SearchWorld.build(world.db, world.url, name="two", directions=(Direction.MAXIMIZE, Direction.MINIMIZE))
    two.complete(two.start(lr=0.1, layers=1, act=None), [1, 2])
    two.rebuild()
    study = two.study()
    assert study.directions == [optuna.study.StudyDirection.MAXIMIZE, optuna.study.StudyDirection.MINIMIZE]
    assert [one.values for one in study.get_trials()] == [[1.0, 2.0]]
    assert two.lag == 0
    two.close()


def test_a_failure_leaves_the_former_study(varied: SearchWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    before = facts(varied.study())

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no more")

    monkeypatch.setattr(mirror_rebuild.StudyCopy, "finish", fail)
    with pytest.raises(RuntimeError):
        varied.rebuild()
    study = varied.study()
    assert facts(study) == before
    assert [found.study_name for found in study._storage.get_all_studies()] == ["varied"]
    assert len(varied.show().get_trials()) == 5


def test_a_report_that_is_being_written_is_waited_for(varied: SearchWorld) -> None:
    """The former study's reports go first, then their trials: none may come in between."""
    (running,) = [one for one in varied.study().get_trials() if one.user_attrs["sweeper:number"] == 4]
    with psycopg.connect(varied.url) as writing, ThreadPoolExecutor(1) as background:
        writing.execute(
            "INSERT INTO optuna.trial_intermediate_values (trial_id, step, intermediate_value, intermediate_value_type)"
            " VALUES (%s, 9, 0.5, 'FINITE')",
            [running._trial_id],
        )
        rebuilding = background.submit(varied.rebuild)
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        with psycopg.connect(varied.url, autocommit=True) as watching:
            while watching.execute(waiting).fetchone() != (1,):
                assert not rebuilding.done()
        writing.commit()
        assert isinstance(rebuilding.result(), Rebuilt)
    assert len(varied.study().get_trials()) == 5


def test_a_search_with_many_trials_to_show_is_written_at_once(
    world: SearchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror that was away for long, or is new to an old ledger, does not add thousands one by one."""
    monkeypatch.setattr("sweeper.coordinator.mirroring.MOST_MISSING", 5)
    for number in range(8):
        world.complete(world.start(lr=0.1 + number / 100, layers=1, act=None), float(number))
    mirroring = world.mirroring()
    calls = []
    monkeypatch.setattr(optuna.storages.RDBStorage, "create_new_trial", lambda *given: calls.append(given))
    world.turn(mirroring, 6)
    assert calls == []
    assert len(world.study().get_trials()) == 8
    assert world.lag == 0
    mirroring.close()
