"""Whole commands: what is trained, what is returned, what is said, and what a second command does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sweeper.model.states import SweepState, TrialState
from tests.hydra.running import Desk, finish, script, wait_until

pytestmark = pytest.mark.slow


def test_the_same_command_twice_trains_nothing(desk: Desk) -> None:
    """ONCE, and CH-07: another hash seed is no other sweep."""
    first = desk.run("x=1,2,3", PYTHONHASHSEED="1")
    assert first.status == 0, first.printed
    assert sorted(desk.counted()) == ["1", "2", "3"]
    second = desk.run("x=1,2,3", PYTHONHASHSEED="2")
    assert second.status == 0
    assert "nothing to train" in second.stderr
    assert sorted(desk.counted()) == ["1", "2", "3"]
    (sweep,) = desk.sweeps()
    assert sweep.state is SweepState.FINISHED
    assert re.fullmatch(r"app-[0-9a-f]{6}", sweep.name)
    assert [(trial.number, trial.state, trial.result) for trial in desk.trials()] == [
        (0, TrialState.COMPLETED, 1),
        (1, TrialState.COMPLETED, 2),
        (2, TrialState.COMPLETED, 3),
    ]


def test_one_more_value_trains_one_more_trial(desk: Desk) -> None:
    assert desk.run("x=1,2").status == 0
    assert desk.run("x=1,2,3").status == 0
    assert sorted(desk.counted()) == ["1", "2", "3"]
    assert [trial.overrides for trial in desk.trials()] == [("x=1",), ("x=2",), ("x=3",)]


@pytest.mark.parametrize(
    ("override", "jobs", "trained"),
    [
        ("lr=0.1,1e-1,.1", 3, 1),
        ("l=[1, 2],[1,2]", 2, 1),
        ("+d={a:1,b:2},{b:2,a:1}", 2, 1),
        ("x=1,2,2,1", 4, 2),
    ],
)
def test_one_config_written_several_ways_trains_once(desk: Desk, override: str, jobs: int, trained: int) -> None:
    """CH-03."""
    desk.write(
        "import hydra, os\n@hydra.main(version_base=None, config_path='.', config_name='config')\ndef main(cfg):\n"
        "    open(os.environ['COUNTER'], 'a').write('trained\\n')\n    return 1.0\nif __name__ == '__main__': main()\n"
    )
    desk.write("lr: 1.0\nl: []\nx: 0\n", "config.yaml")
    ended = desk.run(override)
    assert ended.status == 0, ended.printed
    assert len(desk.counted()) == trained
    assert f"{jobs} jobs, {jobs - trained} of them merged" in ended.stdout


def test_what_depends_on_the_moment_or_the_machine_is_no_other_config(desk: Desk) -> None:
    """CH-06: three trials, not nine; and the token is nowhere."""
    desk.write(
        "import hydra, os\n@hydra.main(version_base=None, config_path='.', config_name='config')\ndef main(cfg):\n"
        "    assert cfg.token == os.environ['TOKEN'] and cfg.stamp\n"
        "    open(os.environ['COUNTER'], 'a').write(f'{cfg.fold} {cfg.pre} {cfg.n}\\n')\n    return cfg.fold\n"
        "if __name__ == '__main__': main()\n"
    )
    desk.write("stamp: ${now:%H%M%S%f}\nn: ${hydra:job.num}\ntoken: ${oc.env:TOKEN}\nfold: 0\npre: x\n", "config.yaml")
    command = ("fold=0,1,2", "pre=ckpt/${fold}")
    first = desk.run(*command, TOKEN="hunter2hunter2")
    assert first.status == 0, first.printed
    assert sorted(desk.counted()) == ["0 ckpt/0 0", "1 ckpt/1 1", "2 ckpt/2 2"]
    elsewhere = desk.root / "elsewhere"
    elsewhere.mkdir()
    second = desk.run(*command, cwd=elsewhere, TOKEN="swordfish99")
    assert second.status == 0
    assert len(desk.counted()) == 3
    stored = desk.everything_stored() + first.printed + second.printed
    assert "hunter2hunter2" not in stored
    assert "swordfish99" not in stored
    assert desk.trials()[1].params == {"fold": 1, "pre": "ckpt/1"}


def test_text_outside_ascii_runs_end_to_end(desk: Desk) -> None:
    """CH-08: composed and decomposed text are two trials."""
    desk.write(script(fields='s: str = ""', body="count(len(cfg.s))\nreturn cfg.s"))
    ended = desk.run("s='caf\u00e9','cafe\u0301','李明'")
    assert ended.status == 0, ended.printed
    assert sorted(desk.counted()) == ["2", "4", "5"]
    assert [trial.result for trial in desk.trials()] == ["caf\u00e9", "cafe\u0301", "李明"]


def test_classes_enums_and_resolvers_of_the_script_work_in_the_child(desk: Desk) -> None:
    prolog = (
        "import enum\nfrom omegaconf import OmegaConf\n"
        "class Color(enum.Enum):\n    RED = 1\n    BLUE = 2\n"
        "class Box:\n    def __init__(self, v): self.v = v\n"
        "OmegaConf.register_new_resolver('twice', lambda v: v * 2)\n"
        "secret = (lambda k: lambda: k)(41)\n"
    )
    body = "assert isinstance(cfg.color, Color)\ncount(f'{cfg.color.name} {cfg.y} {Box(cfg.x).v} {secret()}')\nreturn 1"
    desk.write(
        script(fields='x: int = 0\ncolor: Color = Color.RED\ny: int = "${twice:${x}}"', body=body, prolog=prolog)
    )
    ended = desk.run("color=RED,BLUE", "x=3")
    assert ended.status == 0, ended.printed
    assert sorted(desk.counted()) == ["BLUE 6 3 41", "RED 6 3 41"]


UNFORKABLE = """
import os, threading
os.register_at_fork(after_in_child=lambda: threading.Thread(target=threading.Event().wait, daemon=True).start())
"""


def test_a_script_that_cannot_be_forked_runs_in_fresh_interpreters(desk: Desk) -> None:
    desk.write(script(prolog=UNFORKABLE))
    ended = desk.run("x=1,2")
    assert ended.status == 0, ended.printed
    assert sorted(desk.counted()) == ["1", "2"]
    assert "fresh interpreter" in ended.printed


CALLBACKS = """
import os
from hydra.experimental.callback import Callback

def note(text):
    with open(os.environ["COUNTER"], "a") as file:
        file.write(text + "\\n")

class Noting(Callback):
    def on_multirun_start(self, config, **kwargs): note("multirun start")
    def on_multirun_end(self, config, **kwargs): note("multirun end")
    def on_job_start(self, config, **kwargs): note(f"job start {config.hydra.job.num}")
    def on_job_end(self, config, job_return, **kwargs): note(f"job end {job_return.return_value}")
"""


@pytest.mark.parametrize("fresh", [False, True])
def test_callbacks_fire_as_with_other_launchers(desk: Desk, fresh: bool) -> None:
    desk.write(CALLBACKS, "noting.py")
    desk.write(script(body="return cfg.x * 10", prolog=UNFORKABLE if fresh else ""))
    command = ("x=1,2", "+hydra.callbacks.noting._target_=noting.Noting")
    ended = desk.run(*command, PYTHONPATH=str(desk.root))
    assert ended.status == 0, ended.printed
    expected = ["job end 10", "job end 20", "job start 0", "job start 1", "multirun end", "multirun start"]
    assert sorted(desk.counted()) == expected
    (desk.root / "counter.txt").unlink()
    assert desk.run(*command, PYTHONPATH=str(desk.root)).status == 0
    assert desk.counted() == ["multirun start", "multirun end"], "nothing fires for trials that were done already"


def test_the_child_sees_a_single_run(desk: Desk) -> None:
    """`sys.argv`, Hydra's config and the working directory are those of `run_job`."""
    body = (
        "import sys\nhydra_cfg = HydraConfig.get()\n"
        "count([sys.argv[1:], hydra_cfg.job.num, hydra_cfg.job.id, os.path.basename(hydra_cfg.runtime.output_dir), "
        "list(hydra_cfg.overrides.task), os.getcwd() == hydra_cfg.runtime.output_dir])\n"
        "open(os.path.join(hydra_cfg.runtime.output_dir, 'mine.txt'), 'w').close()\nreturn 0"
    )
    desk.write(script(body=body))
    ended = desk.run("x=5", "hydra.job.chdir=true", "hydra.sweep.dir=out", "hydra.sweep.subdir=t${hydra.job.num}")
    assert ended.status == 0, ended.printed
    assert desk.counted() == ["[['x=5'], 0, '0', 't0', ['x=5'], True]"]
    made = {path.relative_to(desk.root / "out").as_posix() for path in (desk.root / "out").rglob("*") if path.is_file()}
    assert {"multirun.yaml", "t0/mine.txt", "t0/app.log", "t0/.hydra/config.yaml", "t0/.hydra/overrides.yaml"} <= made


def test_our_urls_are_not_in_the_childs_environment(desk: Desk) -> None:
    desk.write(script(body="count(sorted(k for k in os.environ if k.startswith('SWEEPER_')))\nreturn 0"))
    assert desk.run("x=1").status == 0
    assert desk.counted() == ["['SWEEPER_HOME']"]


def test_an_edited_script_after_a_finished_sweep_begins_a_new_one(desk: Desk) -> None:
    assert desk.run("x=1,2").status == 0
    desk.write(script(body="count(cfg.x)\nreturn cfg.x * 100"))
    ended = desk.run("x=1,2")
    assert ended.status == 0
    names = [sweep.name for sweep in desk.sweeps()]
    assert names[1] == f"{names[0]}-2"
    assert names[1] in ended.printed
    assert "has changed since" in ended.printed
    assert [trial.result for trial in desk.trials(names[1])] == [100, 200]
    again = desk.run("x=1,2")
    assert "nothing to train" in again.stderr
    assert len(desk.counted()) == 4
    named = desk.run("x=1,2", f"hydra.launcher.name={names[0]}")
    assert "nothing to train" in named.stderr, "an explicitly named sweep is continued"


LONG = """
run = sweeper.resume()
count(f"attempt {run.attempt} from {run.step} in {os.path.basename(os.getcwd())}")
for step in run.steps(400):
    count(step)
    import time
    time.sleep(0.02)
return run.step
"""


def interrupted(desk: Desk, number: int, *overrides: str, steps: int = 20) -> str:
    process = desk.start(*overrides)
    wait_until(lambda: len(desk.counted()) >= steps or process.poll() is not None)
    os.kill(process.pid, number)
    ended = finish(process)
    assert ended.status == 75, ended.printed
    assert "run the same command again" in ended.stderr
    assert "Traceback" not in ended.printed
    return ended.printed


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)])
def test_an_interrupted_command_leaves_with_75_and_goes_on_when_given_again(desk: Desk, number: int) -> None:
    desk.write(CALLBACKS, "noting.py")
    desk.write(script(body=LONG.replace("400", "60")))
    command = ("x=1", "+hydra.callbacks.noting._target_=noting.Noting")
    desk.environ["PYTHONPATH"] = str(desk.root)
    interrupted(desk, number, *command)
    assert not [line for line in desk.counted() if line.startswith("job end")], "an evicted attempt has not ended"
    (trial,) = desk.trials()
    assert trial.state is TrialState.PENDING
    assert trial.step > 0
    assert trial.crashes == 0
    ended = desk.run(*command)
    assert ended.status == 0, ended.printed
    steps = [int(line) for line in desk.counted() if line.isdigit()]
    assert sorted(steps) == list(range(60)), "each step once"
    assert desk.counted().count("job end 60") == 1


@pytest.mark.parametrize("chdir", ["true", None, pytest.param("false", marks=pytest.mark.soak)])
def test_relative_paths_mean_the_same_when_resumed_in_another_directory(desk: Desk, chdir: str | None) -> None:
    """HY-06: the relative store is found again, and the flag does not change the config."""
    desk.write(script(body=LONG.replace("400", "40")))
    first = ["x=1", "hydra.launcher.store=ckpt", *([f"hydra.job.chdir={chdir}"] if chdir else [])]
    interrupted(desk, signal.SIGINT, *first, steps=15)
    elsewhere = desk.root / "elsewhere"
    elsewhere.mkdir()
    other = f"hydra.job.chdir={'false' if chdir == 'true' else 'true'}"
    ended = desk.run("x=1", f"hydra.launcher.store={desk.root}/ckpt", other, cwd=elsewhere)
    assert ended.status == 0, ended.printed
    assert sorted(int(line) for line in desk.counted() if line.isdigit()) == list(range(40))
    assert len(desk.trials()) == 1
    assert (desk.root / "ckpt").is_dir()
    assert not (elsewhere / "multirun").exists(), "a resumed sweep writes where it began"


def test_failures_are_told_when_they_happen_and_each_keeps_its_traceback(desk: Desk) -> None:
    """HY-04."""
    desk.write(script(body="count(cfg.x)\nraise ValueError(f'bad {cfg.x}')"))
    ended = desk.run("x=1,2,3", "hydra.launcher.retry.max_crashes=1")
    assert ended.status == 1, ended.printed
    for trial, x in zip(desk.trials(), (1, 2, 3), strict=True):
        assert trial.state is TrialState.FAILED
        assert trial.error is not None
        assert f"ValueError: bad {x}" in trial.error
        assert 'raise ValueError(f"bad' in trial.error.replace("'", '"')
        assert f"trial {trial.number} failed (config {trial.config_hash[:12]}, x={x})" in ended.stdout
    assert f"trial 0 failed ({desk.trials()[0].config_hash[:12]}, job #0 (x=1" in ended.stderr
    assert "hydra/_internal" not in ended.printed, "the user's frames, none of Hydra's"
    name = desk.sweeps()[0].name
    advice = f"3 of 3 trials failed: `sweeper show {name} 0` says why, `sweeper retry {name}` makes them pending again"
    assert advice in ended.stderr


def test_a_command_whose_trials_failed_before_says_so_and_how_to_run_them_again(desk: Desk) -> None:
    desk.write(script(body="if cfg.x == 2: raise ValueError('bad')\nreturn cfg.x"))
    command = ("x=1,2", "hydra.launcher.retry.max_crashes=1")
    assert desk.run(*command).status == 1
    again = desk.run(*command)
    assert again.status == 1, again.printed
    assert "nothing is run: 1 completed, 1 failed" in again.stderr
    assert f"1 of 2 trials failed: `sweeper show {desk.sweeps()[0].name} 1` says why" in again.stderr
    assert "ValueError: bad" in again.stderr, "the error is shown again"


def test_fail_fast_leaves_the_rest_pending_and_a_second_command_runs_exactly_it(desk: Desk) -> None:
    """HY-04."""
    body = "if cfg.x == 2: raise ValueError('no')\ncount(cfg.x)\nreturn 1"
    desk.write(script(body=body))
    command = ("x=1,2,3,4,5", "hydra.launcher.retry.max_crashes=1", "hydra.launcher.fail_fast=true")
    ended = desk.run(*command)
    assert ended.status == 1, ended.printed
    states = [trial.state for trial in desk.trials()]
    assert states == [TrialState.COMPLETED, TrialState.FAILED, *[TrialState.PENDING] * 3]
    again = desk.run(*command)
    assert again.status == 1, "the failure of the first run does not stop the second"
    assert sorted(desk.counted()) == ["1", "3", "4", "5"]
    assert desk.trials()[1].crashes == 1, "the failed one runs only if asked"


def test_directories_made_of_overrides(desk: Desk) -> None:
    """HY-05: shortened or rewritten, inside the sweep directory, no two trials in one."""
    desk.write(script(fields='s: str = ""', body="count(HydraConfig.get().runtime.output_dir)\nreturn 1"))
    values = f"s={'n' * 300},'a/b','../x'"
    ended = desk.run(values, "hydra.sweep.dir=out/sweep", "hydra.sweep.subdir=${hydra.job.override_dirname}")
    assert ended.status == 0, ended.printed
    directories = [Path(line) for line in desk.counted()]
    assert len(set(directories)) == 3
    assert {directory.parent for directory in directories} == {desk.root / "out" / "sweep"}
    shared = desk.run("s=x,y", "hydra.sweep.dir=out2", "hydra.sweep.subdir=one")
    assert shared.status == 2
    assert "would write into one directory" in shared.stderr


def test_two_commands_begun_in_one_folder_at_once_share_no_directory(desk: Desk) -> None:
    """HY-05."""
    body = "count(HydraConfig.get().runtime.output_dir)\nreturn 1"
    fields = "x: int = 0"
    fixed = "hydra.sweep.dir=multirun/${now:%Y}"
    desk.write(script(fields, body))
    processes = [desk.start("x=1,2", f"hydra.launcher.name={name}", fixed) for name in ("one", "two")]
    for process in processes:
        ended = finish(process)
        assert ended.status == 0, ended.printed
    assert len(set(desk.counted())) == 4


def test_a_worker_started_by_hand_works_on_the_sweep_of_its_command(desk: Desk) -> None:
    desk.write(script(body="import time\ncount(cfg.x)\ntime.sleep(0.3)\nreturn 1"))
    tool = [sys.executable, "-m", "sweeper.cli.app"]
    command = [sys.executable, str(desk.root / "app.py"), "-m", "hydra/launcher=sweeper", "x=1,2,3,4"]
    coordinator = subprocess.Popen(
        [*tool, "coordinate", "--", *command], cwd=desk.root, env=desk.environment(), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    wait_until(lambda: desk.rows() == 5)
    worker = subprocess.Popen(
        [*tool, "worker", "--", *command], cwd=desk.root, env=desk.environment(), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert finish(coordinator).status == 0
    os.kill(worker.pid, signal.SIGTERM)
    finish(worker)
    assert sorted(desk.counted()) == ["1", "2", "3", "4"]


def test_a_worker_with_other_config_files_fails_nobodys_trial(desk: Desk) -> None:
    """FAIR: it says what differs and leaves; the trials are as they were."""
    tool = [sys.executable, "-m", "sweeper.cli.app"]
    command = [sys.executable, str(desk.root / "app.py"), "-m", "hydra/launcher=sweeper", "x=1,2,3"]
    desk.write(script(body="return 1"))
    coordinator = subprocess.Popen(
        [*tool, "coordinate", "--", *command], cwd=desk.root, env=desk.environment(), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    wait_until(lambda: desk.rows() == 4)
    desk.write(script(body="return 1", fields="x: int = 0\ny: int = 2"))
    worker = subprocess.run(
        [*tool, "worker", "--", *command], cwd=desk.root, env=desk.environment(), capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert worker.returncode == 70, worker.stdout + worker.stderr
    assert "config" in worker.stdout + worker.stderr
    os.kill(coordinator.pid, signal.SIGTERM)
    assert finish(coordinator).status == 75
    assert [(trial.state, trial.crashes) for trial in desk.trials()] == [(TrialState.PENDING, 0)] * 3
