"""`sweeper run FILE.yaml`, alone and with workers and coordinators elsewhere."""

from __future__ import annotations

import signal

import pytest

from tests.hydra.running import finish, wait_until
from tests.plain.desk import FILE, Desk, assert_goes_on, kill_at

pytestmark = pytest.mark.slow
LONGER = FILE + "base: {steps: 30, pause_s: 0.02}\ncheckpoint: {every_s: 0.05}\n"


def test_a_file_is_run_from_anywhere_and_given_again_it_trains_nothing(desk: Desk) -> None:
    """The objective's module is found beside the file."""
    path = desk.write("below/sweep.yaml", FILE)
    (desk.root / "training_code.py").rename(desk.root / "below" / "training_code.py")
    first = desk.run("sweeper", "run", "below/sweep.yaml")
    assert first.status == 0, first.printed
    assert "best:" in first.stderr
    assert len(desk.counted()) == 4
    elsewhere = desk.root / "elsewhere"
    elsewhere.mkdir()
    again = desk.run("sweeper", "run", str(path), cwd=elsewhere)
    assert again.status == 0, again.printed
    assert "nothing to train" in again.stderr
    assert sum(desk.counted().values()) == 4


def test_a_larger_total_in_the_file_adds_trials(desk: Desk) -> None:
    desk.write("sweep.yaml", FILE)
    assert desk.run("sweeper", "run", "sweep.yaml").status == 0
    desk.write("sweep.yaml", FILE.replace("n_trials: 4", "n_trials: 6"))
    assert desk.run("sweeper", "run", "sweep.yaml").status == 0
    assert (len(desk.counted()), sum(desk.counted().values())) == (6, 6)


def test_the_same_file_is_the_same_sweep_as_the_same_call(desk: Desk) -> None:
    desk.script()
    assert desk.sweep().status == 0
    desk.write("sweep.yaml", FILE)
    ended = desk.run("sweeper", "run", "sweep.yaml")
    assert ended.status == 0, ended.printed
    assert "nothing to train" in ended.stderr


def test_workers_elsewhere_do_what_a_coordinator_without_any_proposes(desk: Desk) -> None:
    desk.write("sweep.yaml", LONGER)
    coordinator = desk.start("sweeper", "coordinate", "--", "sweeper", "run", "sweep.yaml")
    workers = [desk.start("sweeper", "worker", "--", "sweeper", "run", "sweep.yaml") for _ in range(2)]
    ends = [finish(process) for process in (coordinator, *workers)]
    assert [end.status for end in ends] == [0, 0, 0], "\n".join(end.printed for end in ends)
    assert set(desk.counted().values()) == {1}
    assert len(desk.counted()) == 4 * 30


def test_a_worker_joins_a_script_that_sweeps(desk: Desk) -> None:
    """The same words for a script: sweeper worker -- python search.py."""
    desk.script()
    keywords = '{"base": {"steps": 30, "pause_s": 0.02}, "n_trials": 6}'
    command = desk.start("python", "search.py", keywords)
    wait_until(lambda: bool(desk.counted()) or command.poll() is not None, 60)
    worker = finish(desk.start("sweeper", "worker", "--", "python", "search.py", keywords))
    ended = finish(command)
    assert (ended.status, worker.status) == (0, 0), ended.printed + worker.printed
    assert worker.stdout == ""  # the rest of the script is the command's affair
    assert set(desk.counted().values()) == {1}


def test_a_killed_run_goes_on_with_the_same_command(desk: Desk) -> None:
    """ONCE, RESUME."""
    desk.write("sweep.yaml", LONGER)
    killed = kill_at(desk, desk.start("sweeper", "run", "sweep.yaml"), steps=45, saved=True)
    ended = desk.run("sweeper", "run", "sweep.yaml")
    assert ended.status == 0, ended.printed
    assert len(desk.counted()) == 4 * 30
    assert_goes_on(killed, desk.counted())


def test_an_interrupted_run_leaves_with_75(desk: Desk) -> None:
    desk.write("sweep.yaml", LONGER)
    process = desk.start("sweeper", "run", "sweep.yaml")
    wait_until(lambda: len(desk.counted()) >= 10 or process.poll() is not None, 60)
    process.send_signal(signal.SIGINT)
    ended = finish(process)
    assert ended.status == 75, ended.printed
    assert "goes on from there" in ended.stderr
    assert desk.run("sweeper", "run", "sweep.yaml").status == 0
    assert len(desk.counted()) == 4 * 30


def test_a_run_with_failed_trials_ends_with_1(desk: Desk) -> None:
    desk.write("training_code.py", "def train(config):\n    return 1 / (config['x'] - 1)\n")
    text = FILE.replace("{low: 0.0, high: 1.0}", "[0, 1]") + "sampler: grid\nretry: {max_crashes: 1}\n"
    desk.write("sweep.yaml", text)
    ended = desk.run("sweeper", "run", "sweep.yaml")
    assert ended.status == 1, ended.printed
    assert "ZeroDivisionError" in ended.stderr
