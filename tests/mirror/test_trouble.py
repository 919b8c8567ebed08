"""Whatever becomes of the mirror: no entry twice, nobody else's study or table touched, and no sweep stopped."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import optuna
import psycopg
import pytest
from optuna.trial import TrialState as OptunaState

from sweeper.errors import LedgerUnavailable
from sweeper.ledger.mirror_access import MirrorAccess, storage_url
from sweeper.search.mirror import Mirror
from sweeper.search.mirror_study import OldTables, open_storage
from tests.mirror.world import SearchWorld

pytestmark = pytest.mark.slow

PARAMS = {"lr": 0.1, "layers": 3, "act": "relu"}
ROOT = Path(__file__).resolve().parents[2]


def numbers(study: optuna.Study) -> list[int]:
    return sorted(one.user_attrs["sweeper:number"] for one in study.get_trials())


def test_an_entry_that_was_never_acknowledged_is_found_again(
    world: SearchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator dies between Optuna's commit and the ledger's."""
    world.show()
    finished = world.start(**PARAMS)
    world.complete(finished, 0.5)
    running = world.start(lr=0.2, layers=1, act=None)
    doomed = world.mirroring()
    with monkeypatch.context() as patch:
        patch.setattr("sweeper.coordinator.mirroring.acknowledge_mirrored", _die)
        with pytest.raises(KeyboardInterrupt):
            world.turn(doomed)
    doomed.close()
    assert len(world.study().get_trials()) == 2
    assert world.lag == 2
    study = world.show()
    assert numbers(study) == [0, 1]
    assert world.lag == 0
    world.complete(running, 0.25)
    assert sorted(one.value or 0 for one in world.show().get_trials()) == [0.25, 0.5]
    assert world.sql("SELECT count(DISTINCT study) AS studies FROM sweeper.mirrored")[0].studies == 1


def _die(*_: object) -> None:
    raise KeyboardInterrupt


KILLED = """
import os, signal, sys
from sweeper.clock import SystemClock
from sweeper.coordinator import mirroring
from sweeper.coordinator.mirror_opening import study_mirroring
from sweeper.ids import system_random_hex
from sweeper.ledger.database import Database
from sweeper.ledger.sweeps import require_sweep
from sweeper.search import mirror_study, mirror_writing
from tests.mirror.world import AtOnce

url, point = sys.argv[1:]
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
if point == "acknowledge":
    mirroring.acknowledge_mirrored = die
elif point == "second entry":
    create, count = mirror_writing.StudyWriter._create, []
    def counted(*given):
        count.append(create(*given))
        return count[-1] if len(count) < 2 else die()
    mirror_writing.StudyWriter._create = counted
elif point == "mark":
    mirror_study.mark_study = die
with Database(url, "killed") as database:
    sweep = require_sweep(database, "digits")
    made = study_mirroring(url, sweep, database=database, background=AtOnce(), clock=SystemClock(),
                           random_hex=system_random_hex, note=print)
    for _ in range(8):
        made.turn(1)
"""


@pytest.mark.parametrize("point", ["mark", "second entry", "acknowledge"])
def test_a_coordinator_that_is_killed_while_it_writes_doubles_nothing(world: SearchWorld, point: str) -> None:
    for number in range(3):
        world.complete(world.start(lr=0.1 + number / 10, layers=1, act=None), float(number))
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    done = subprocess.run([sys.executable, "-c", KILLED, world.url, point], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    study = world.show()
    assert numbers(study) == [0, 1, 2]
    assert [one.study_name for one in study._storage.get_all_studies()] == ["digits"]
    assert world.notes == []


@pytest.mark.parametrize("theirs", [{"direction": "minimize"}, {"directions": ["minimize", "maximize"]}])
def test_somebody_elses_study_of_the_sweeps_name_is_left_alone(world: SearchWorld, theirs: dict[str, object]) -> None:
    foreign = optuna.create_study(study_name="digits", storage=storage_url(world.url), **theirs)
    if len(theirs.get("directions", [])) < 2:  # an empty one with our directions would be taken over
        foreign.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    before = foreign.get_trials()
    world.complete(world.start(**PARAMS), 0.5)
    mirroring = world.mirroring()
    world.turn(mirroring)
    mirroring.close()
    assert len(world.study("sweeper:digits").get_trials()) == 1
    assert foreign.get_trials() == before
    assert foreign.user_attrs == {}
    (note,) = world.notes
    assert "sweeper:digits" in note
    mirroring = world.mirroring()
    world.turn(mirroring)
    mirroring.close()
    assert len(world.study("sweeper:digits").get_trials()) == 1
    foreign._storage.remove_session()
    foreign._storage._backend.engine.dispose()


def test_an_empty_study_of_the_sweeps_name_is_taken(world: SearchWorld) -> None:
    """A crash right after the study was made leaves such a one."""
    world.show()
    world.sql("DELETE FROM optuna.study_user_attributes")
    world.complete(world.start(**PARAMS), 0.5)
    assert numbers(world.show()) == [0]


def test_a_study_that_somebody_deletes_is_made_anew(world: SearchWorld) -> None:
    mirroring = world.mirroring()
    grant = world.start(**PARAMS)
    world.complete(world.start(lr=0.2, layers=1, act=None), 0.5)
    world.turn(mirroring, 6)
    optuna.delete_study(study_name="digits", storage=world.study()._storage)
    world.turn(mirroring, 1)
    world.complete(grant, 0.25)
    world.turn(mirroring, 8)
    assert numbers(world.study()) == [0, 1]
    assert (world.lag, world.notes) == (0, [])
    mirroring.close()


def test_an_entry_that_somebody_finished_by_hand_is_put_right(world: SearchWorld) -> None:
    mirroring = world.mirroring()
    grant = world.start(**PARAMS)
    world.turn(mirroring, 6)
    world.study().tell(0, 99.0)
    world.report(grant, 0.9)
    world.complete(grant, 0.5)
    world.turn(mirroring, 8)
    (only,) = world.study().get_trials()
    assert only.values == [0.5]
    assert world.notes == []
    mirroring.close()


def test_two_coordinators_that_both_wrote_are_put_right(world: SearchWorld) -> None:
    """One slept while its lease passed to another, and woke in the middle of its batch."""
    grant = world.start(**PARAMS)
    world.complete(world.start(lr=0.2, layers=1, act=None), 0.5)
    world.show()
    double = world.study()
    double.add_trial(double.get_trials()[0])
    assert len(double.get_trials()) == 3
    world.complete(grant, 0.25)
    study = world.show()
    assert numbers(study) == [0, 1]
    assert world.lag == 0


def test_tables_that_vanish_are_told_once_and_made_again(world: SearchWorld) -> None:
    mirroring = world.mirroring()
    world.complete(world.start(**PARAMS), 0.5)
    world.turn(mirroring, 6)
    world.sql("DROP TABLE optuna.trial_values CASCADE")
    world.complete(world.start(lr=0.2, layers=1, act=None), 0.25)
    world.turn(mirroring, 8)
    (note,) = world.notes
    assert "cannot be written" in note
    assert "trial_values" in note
    world.sql("DROP SCHEMA optuna CASCADE")
    world.turn(mirroring, 200)
    assert world.notes[1:] == ["The Optuna study is written again."]
    assert numbers(world.study()) == [0, 1]
    mirroring.close()


def test_the_end_of_a_sweep_does_not_wait_for_a_broken_mirror(world: SearchWorld) -> None:
    world.sql("DROP TABLE optuna.trials CASCADE")
    world.complete(world.start(**PARAMS), 0.5)
    mirroring = world.mirroring()
    turns = 0
    while not mirroring.finish(world.fence):
        turns += 1
        assert turns < 10
    mirroring.close()
    assert "cannot be written" in world.notes[0]
    assert world.lag == 1


def test_a_ledger_that_does_not_answer_loses_no_acknowledgement(
    world: SearchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirroring = world.mirroring()
    world.turn(mirroring, 4)
    world.complete(world.start(**PARAMS), 0.5)
    mirroring.turn(world.fence)
    with monkeypatch.context() as patch:
        patch.setattr(world.db, "run", _unavailable)
        for _ in range(3):
            with pytest.raises(LedgerUnavailable):
                mirroring.turn(world.fence)
    world.turn(mirroring, 3)
    assert numbers(world.study()) == [0]
    assert world.lag == 0
    mirroring.close()


def _unavailable(*_: object, **__: object) -> None:
    raise LedgerUnavailable("away")


def test_tables_of_another_version_of_optuna_are_refused_with_what_to_do(world: SearchWorld) -> None:
    world.sql("UPDATE optuna.alembic_version SET version_num = 'v2.6.0.a'")
    with pytest.raises(OldTables, match="optuna storage upgrade"):
        open_storage(MirrorAccess(world.url))
    world.complete(world.start(**PARAMS), 0.5)
    mirroring = world.mirroring()
    world.turn(mirroring, 20)
    (note,) = world.notes
    assert "v2.6.0.a" in note
    mirroring.close()


def test_another_programs_tables_in_the_database_are_left_alone(world: SearchWorld) -> None:
    """Schema public may hold Optuna's tables, or any other program's `alembic_version`."""
    world.sql("DROP SCHEMA optuna CASCADE")
    world.sql("CREATE TABLE public.alembic_version (version_num text)")
    world.sql("INSERT INTO public.alembic_version VALUES ('theirs')")
    world.sql("CREATE TABLE public.trials (trial_id int, precious text)")
    world.sql("INSERT INTO public.trials VALUES (1, 'data')")
    world.complete(world.start(**PARAMS), 0.5)
    assert numbers(world.show()) == [0]
    world.rebuild()
    assert numbers(world.study()) == [0]
    assert world.sql("SELECT version_num FROM public.alembic_version") == [("theirs",)]
    assert world.sql("SELECT * FROM public.trials") == [(1, "data")]
    tables = world.sql("SELECT count(*) AS found FROM information_schema.tables WHERE table_schema = 'public'")
    assert tables[0].found == 2


def test_ten_processes_at_an_empty_database_all_get_going(world: SearchWorld) -> None:
    """OP-10: one study, one schema, no process dies; three repeats, each from nothing."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(10) as pool:
        for _ in range(3):
            world.sql("DROP SCHEMA IF EXISTS optuna CASCADE")
            names = pool.starmap(_contact, [(world.url, world.sweep.sweep_id)] * 10, chunksize=1)
            assert len(set(names)) == 1, "all see the same study"
            assert world.sql("SELECT count(*) AS found FROM optuna.studies")[0].found == 1
            assert world.sql("SELECT version_num FROM optuna.alembic_version") == [("v3.2.0.a",)]


def _contact(url: str, sweep_id: str) -> tuple[str, str]:
    from sweeper.clock import SystemClock
    from sweeper.ids import SweepId, system_random_hex
    from sweeper.model.search import SearchSpec

    mirror = Mirror(
        MirrorAccess(url),
        sweep_id=SweepId(sweep_id),
        name="digits",
        spec=SearchSpec(),
        clock=SystemClock(),
        random_hex=system_random_hex,
    )
    try:
        study = mirror.contact()
        return study.name, study.mark
    finally:
        mirror.close()


def test_numbers_of_entries_are_whole_though_other_programs_add_some(world: SearchWorld) -> None:
    mirroring = world.mirroring()
    world.turn(mirroring, 4)
    theirs = world.study()

    def add(value: float) -> None:
        theirs.add_trial(optuna.trial.create_trial(state=OptunaState.COMPLETE, value=value))

    with ThreadPoolExecutor(1) as thread:
        for number in range(5):
            adding = thread.submit(add, float(number))
            world.complete(world.start(lr=0.1 + number / 10, layers=1, act=None), 0.5)
            world.turn(mirroring, 2)
            adding.result()
        thread.submit(theirs._storage.remove_session).result()
    found = world.study().get_trials()
    assert sorted(one.number for one in found) == list(range(10))
    mirroring.close()


def test_the_password_is_in_no_message(world: SearchWorld) -> None:
    """SAFE."""
    password = psycopg.conninfo.conninfo_to_dict(world.url)["password"]
    access = MirrorAccess(world.url)
    assert str(password) not in str(access.engine_settings)
    with pytest.raises(Exception, match="password") as refused:
        open_storage(MirrorAccess(world.url.replace(str(password), f"{password}wrong")))
    assert str(password) not in access.explain(refused.value)
    assert str(password) not in str(refused.value)
