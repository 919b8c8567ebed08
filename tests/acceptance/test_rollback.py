"""The database was put back to an older copy, or a command was changed between kills: what is done stays done."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.acceptance.conftest import OverridesFor
from tests.acceptance.multirun import SCRIPTS, Bench, Multirun

TABLES = ("sweeps", "coordinators", "trials", "configs", "numbers", "askers", "requests", "workers", "attempts",
          "checkpoints", "reports")  # fmt: skip
"""In the order in which foreign keys let them be filled."""


class Copy:
    """A copy of every row, as a dump has it, put back in place."""

    def __init__(self, url: str) -> None:
        self._session = psycopg.connect(url, autocommit=True)
        for table in TABLES:
            self._session.execute(f"CREATE TABLE copy_of_{table} AS TABLE sweeper.{table}")

    def put_back(self) -> None:
        self._session.execute("UPDATE sweeper.trials SET head_id = NULL, head_step = NULL")
        self._session.execute("DELETE FROM sweeper.sweeps")
        self._session.execute("ALTER TABLE sweeper.trials DISABLE TRIGGER ALL")  # trial and head name one another
        for table in TABLES:
            self._session.execute(f"INSERT INTO sweeper.{table} OVERRIDING SYSTEM VALUE SELECT * FROM copy_of_{table}")
        self._session.execute("ALTER TABLE sweeper.trials ENABLE TRIGGER ALL")

    def close(self) -> None:
        self._session.close()


@pytest.fixture
def trivial(tmp_path: Path, fresh_database: str) -> Bench:
    bench = Bench(root=tmp_path / "bench", home=tmp_path / "home", script=SCRIPTS / "trivial.py")
    bench.environ |= {"SWEEPER_DATABASE_URL": fresh_database}
    return bench


def _ended(bench: Bench) -> list[tuple[int, str, Any]]:
    return [(trial["number"], trial["state"], trial["values"]) for trial in bench.trials("rolled")]


@pytest.mark.slow
def test_the_same_command_on_a_database_put_back_trains_nothing(trivial: Bench, fresh_database: str) -> None:
    """ONCE: copies of an empty sweep and of one with two trials; later results are adopted, one more value is new."""
    name = "hydra.launcher.name=rolled"
    assert trivial.finish("x=0,1", name) == 0, trivial.printed()
    copy = Copy(fresh_database)
    assert trivial.finish("x=0,1,2,3,4", name) == 0, trivial.printed()
    done, trained = _ended(trivial), trivial.counter.read_text()
    copy.put_back()
    copy.close()
    assert len(trivial.trials("rolled")) == 2
    assert trivial.finish("x=0,1,2,3,4", name) == 0, trivial.printed()
    assert "behind what the store has seen" in trivial.printed()
    assert _ended(trivial) == done
    assert trivial.counter.read_text() == trained, "nothing was trained again"
    assert trivial.finish("x=0,1,2,3,4,5", name) == 0, trivial.printed()
    assert trivial.printed().count("behind what the store has seen") == 1, "told once"
    assert sorted(trivial.counted()) == [0, 1, 2, 3, 4, 5]


@pytest.mark.slow
def test_a_sweep_that_the_older_copy_has_not_heard_of_is_adopted_too(trivial: Bench, fresh_database: str) -> None:
    """ONCE: the copy was made when there were only tables."""
    name = "hydra.launcher.name=rolled"
    assert trivial.sweeper("status").returncode == 0
    copy = Copy(fresh_database)
    assert trivial.finish("x=0,1,2", name) == 0, trivial.printed()
    done, trained = _ended(trivial), trivial.counter.read_text()
    copy.put_back()
    copy.close()
    assert trivial.finish("x=0,1,2", name) == 0, trivial.printed()
    assert _ended(trivial) == done
    assert trivial.counter.read_text() == trained


@pytest.mark.slow
def test_what_only_a_killed_command_asked_for_stays_pending_and_is_not_requested(
    bench: Bench, overrides: OverridesFor, sweep_name: str
) -> None:
    """Requests: `lr=1,2,3` killed, then `lr=3,4`, leaves what the second did not ask for."""
    _, *rest = overrides(workers=1)
    multirun = bench.start("lr=0.1,0.2,0.3", *rest)
    try:
        _wait_for_steps(bench, multirun)
        multirun.kill_everything()
    finally:
        multirun.kill_everything()
    assert bench.finish("lr=0.3,0.4", *rest) == 0, bench.printed()
    listing = bench.trials(sweep_name)
    assert [trial["overrides"] for trial in listing] == [[f"lr={lr}"] for lr in (0.1, 0.2, 0.3, 0.4)]
    assert [(trial["state"], trial["requested"]) for trial in listing[:2]] == [("pending", False)] * 2
    assert [trial["state"] for trial in listing[2:]] == ["completed"] * 2
    assert listing[1]["attempts"] == []
    assert "not requested" in bench.sweeper("status", sweep_name).stdout


def _wait_for_steps(bench: Bench, multirun: Multirun) -> None:
    deadline = time.monotonic() + 60
    while not bench.counter.exists() and multirun.process.poll() is None:
        assert time.monotonic() < deadline, bench.printed()
        time.sleep(0.05)
