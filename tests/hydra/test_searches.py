"""`hydra/sweeper=sweeper` as a whole command: what is searched, recorded, answered, refused, and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from sweeper.model.states import TrialState
from tests.hydra.running import Desk, Ended, finish, script, wait_until

pytestmark = pytest.mark.slow

SEARCH = "hydra/sweeper=sweeper"
RANDOM = "hydra/sweeper/sampler=random"
SPACE = ("x=interval(-1,1)", "kind=plain,wavy")


@pytest.fixture
def search(desk: Desk) -> Desk:
    """A desk whose commands search."""
    desk.plugin = SEARCH
    desk.write(script(fields="x: float = 0.0\nkind: str = 'plain'", body="count(cfg.x)\nreturn (cfg.x - 0.3) ** 2"))
    return desk


def refused(ended: Ended, *parts: str, status: int = 2) -> None:
    assert ended.status == status, ended.printed
    assert "Traceback" not in ended.printed, ended.printed
    assert ended.stderr.count("sweeper: error:") == (status == 2), ended.printed
    for part in parts:
        assert part in ended.stderr, ended.printed


def sweep_dir(desk: Desk) -> Path:
    (sweep,) = desk.sweeps()
    return Path(sweep.sweep_dir)


def test_a_search_ends_with_its_best_trial_written_down(search: Desk) -> None:
    ended = search.run(*SPACE, "hydra.sweeper.n_trials=5", "hydra.sweeper.sampler.seed=5")
    assert ended.status == 0, ended.printed
    trials = search.trials()
    assert [trial.state for trial in trials] == [TrialState.COMPLETED] * 5
    assert search.sweeps()[0].seed == 5
    best = min(trials, key=lambda trial: float(trial.result))  # type: ignore[arg-type]
    folder = sweep_dir(search)
    found = OmegaConf.load(folder / "optimization_results.yaml")
    assert found == {"name": "optuna", "best_params": dict(best.params), "best_value": best.result}
    assert [line.partition(",")[0] for line in (folder / "results.csv").read_text().splitlines()][1:] == list("01234")
    assert OmegaConf.load(folder / "multirun.yaml").hydra.overrides.task == list(SPACE)
    for part in ("ended", f"best: {best.result!r} by trial {best.number}", "optimization_results.yaml"):
        assert part in ended.stderr
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == list("01234")


def test_the_same_command_again_proposes_nothing_and_a_larger_total_the_rest(search: Desk) -> None:
    """OP-05."""
    command = (*SPACE, RANDOM, "hydra.sweeper.sampler.seed=5", "hydra.sweeper.study_name=mine")
    assert search.run(*command, "hydra.sweeper.n_trials=4").status == 0
    first = search.trials("mine")
    same = search.run(*command, "hydra.sweeper.n_trials=4")
    assert same.status == 0
    assert "all 4 trials of sweep 'mine' are done already: nothing to train" in same.stderr
    assert len(search.counted()) == 4
    again = search.run(*command, "hydra.sweeper.n_trials=8")
    assert again.status == 0, again.printed
    trials = search.trials("mine")
    assert [trial.config_hash for trial in trials[:4]] == [trial.config_hash for trial in first]
    assert len({trial.config_hash for trial in trials}) == len(trials) == len(search.counted()) == 8
    assert sorted(path.name for path in sweep_dir(search).iterdir() if path.is_dir()) == list("01234567")


def test_a_changed_space_is_refused_accepted_or_told(search: Desk) -> None:
    """OP-06."""
    search.write(script(fields="x: Any = 0\nk: Any = 0\nc: str = 'a'", body="count(1)\nreturn 1.0"))
    common = (RANDOM, "hydra.launcher.name=mine", "hydra.sweeper.n_trials=2")
    space = {"x": "interval(1,3)", "k": "int(interval(1,3))", "c": "a,b"}

    def command(**changed: str) -> list[str]:
        return [*common, *(f"{name}={text}" for name, text in {**space, **changed}.items())]

    assert search.run(*command()).status == 0
    rows = search.rows()
    for changed, parts in (
        ({"c": "a,b,c"}, ['"a", "b"', '"c"']),
        ({"k": "interval(1,3)"}, ["an integer from 1 to 3", "a float from 1.0 to 3.0"]),
        ({"x": "tag(log,interval(1,3))"}, ["log"]),
    ):
        refused(search.run(*command(**changed)), "'mine'", *parts)
    assert search.rows() == rows
    assert all(trial.state is TrialState.COMPLETED for trial in search.trials("mine"))
    reordered = search.run(*command(c="b,a"))
    assert reordered.status == 0, reordered.printed
    moved = search.run(*command(x="interval(10,30)"))
    assert moved.status == 0, moved.printed
    (notice,) = [line for line in moved.printed.splitlines() if "x was" in line]
    assert "from 10.0 to 30.0" in notice
    refused(search.run(*command(), "hydra.sweeper.direction=maximize"), "direction", "minimize", "maximize")
    refused(search.run(*command(), "hydra/sweeper/sampler=qmc"), "RandomSampler", "QMCSampler")
    refused(search.run(*command(), "hydra.launcher.seed=3"), "seed")
    assert len(search.counted()) == 2


def test_other_values_beside_the_searched_ones_are_told_and_stop_what_cannot_go_on(search: Desk) -> None:
    """RESUME, CLEAR: no worker could compose what an unfinished trial began with."""
    slow = "for _ in sweeper.resume().steps(cfg.steps):\n    count(cfg.x)\n    time.sleep(0.05)\nreturn cfg.x"
    command = (RANDOM, "x=interval(0,1)", "hydra.launcher.name=mine", "hydra.sweeper.n_trials=2")

    def write(steps: int) -> None:
        search.write(script(fields=f"x: float = 0.0\nsteps: int = {steps}", body=slow, prolog="import time"))

    write(steps=500)
    started = search.start(*command)
    wait_until(search.counted)
    os.kill(started.pid, signal.SIGTERM)
    assert finish(started).status == 75
    write(steps=1)
    refused(search.run(*command), "trial 0 of sweep 'mine'", "the config", "sweeper cancel mine 0")
    cancel = [str(Path(sys.executable).with_name("sweeper")), "cancel", "mine", "0"]
    subprocess.run(cancel, check=True, env=search.environment(), capture_output=True)
    again = search.run(*command)
    assert again.status == 0, again.printed
    assert "trial 0 began with other values than the config" in again.printed
    assert [trial.state for trial in search.trials()] == [TrialState.CANCELLED, TrialState.COMPLETED]
    write(steps=2)
    assert "trial 1 began with other values" in search.run(*command).printed


def test_return_values_that_are_no_objective_fail_their_trials_only(search: Desk) -> None:
    """OP-07: NaN, two values for one objective, text, and nothing at all; infinity is a value and wins."""
    search.write(
        script(body="return [0.5, float('nan'), (1.0, 2.0), '0.5', float('-inf'), None][cfg.x]", fields="x: int = 0")
    )
    ended = search.run("x=range(0,6)", "hydra/sweeper/sampler=grid", "hydra.launcher.retry.max_crashes=1")
    assert ended.status == 1, ended.printed
    trials = search.trials()
    assert [trial.number for trial in trials if trial.state is TrialState.COMPLETED] == [0, 4]
    for number, reason in ((1, "nan"), (2, "2"), (3, "text '0.5'"), (5, "none")):
        assert trials[number].state is TrialState.FAILED
        assert reason in str(trials[number].error).lower()
    found = OmegaConf.load(sweep_dir(search) / "optimization_results.yaml")
    assert (found.best_params.x, found.best_value) == (4, float("-inf"))
    assert "4 of 6 trials failed" in ended.stderr


def test_a_forgotten_return_stops_the_search_at_once(search: Desk) -> None:
    """OP-07."""
    search.write(script(body="count(cfg.x)"))
    ended = search.run("x=range(0,100)", RANDOM)
    assert ended.status == 1, ended.printed
    assert "return" in ended.stderr
    assert len(search.counted()) <= 2


def test_choices_arrive_byte_for_byte_and_are_recorded_so(search: Desk) -> None:
    """OP-08, TRUTH: null in both spellings, quotes, commas, an empty string, a trailing space, lists, mappings."""
    search.write(script(fields="c: Any = 0", body="count(repr(cfg.c))\nreturn 0.0"))
    values = [None, "null", "a", "a,b", "c=d", "it's", "", "trailing ", [1, 2], {"b": 2}, "1", 1, 1.0, True, "李"]
    choices = "'null',a,'a,b','c=d','it\\'s','','trailing ',[1,2],{b:2},'1',1,1.0,true,'李'"
    for spelling in (f"c=null,{choices}", f"c=choice(null,{choices})"):
        ended = search.run(spelling, "hydra/sweeper/sampler=grid", "hydra.launcher.name=mine")
        assert ended.status == 0, ended.printed
    assert search.counted() == [repr(value) for value in values], "the second spelling is the same search"
    assert [trial.params["c"] for trial in search.trials()] == values
    listing = subprocess.run(
        [str(Path(sys.executable).with_name("sweeper")), "trials", "mine", "--json"],
        cwd=search.root, env=search.environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert [trial["params"]["c"] for trial in json.loads(listing.stdout)] == values


def test_a_parameter_that_does_not_apply_is_absent_and_such_trials_are_one(search: Desk) -> None:
    """OP-09."""
    search.write(
        script(
            fields="use: bool = True\ndropout: float = 0.0\nfree: Any = None",
            body="count(f'{cfg.use} {cfg.dropout}')\nreturn 0.0",
            prolog="def configure(cfg, trial):\n    assert cfg.free is None\n    if not trial.params['use']:\n"
            "        trial.drop('dropout')\n    trial.suggest_categorical('++new.key', ['a,b', None])\n",
        )
    )
    ended = search.run(
        "use=true,false", "dropout=interval(0,0.5)", RANDOM, "hydra.sweeper.n_trials=12",
        "hydra.sweeper.custom_search_space=app.configure",
    )  # fmt: skip
    assert ended.status == 0, ended.printed
    trials = search.trials()
    without = [trial for trial in trials if trial.params["use"] is False]
    assert len(without) == 2, "one for each choice of the new key"
    assert all("dropout" not in trial.params and len(trial.overrides) == 2 for trial in without)
    assert {trial.params["new.key"] for trial in without} == {"a,b", None}
    assert len(search.numbers()) == 12
    assert len(search.counted()) == len(trials) < 12


def test_a_function_that_fails_at_first_ends_the_command_and_later_refuses_its_number(search: Desk) -> None:
    search.write(
        script(
            body="count(cfg.x)\nreturn 0.0",
            prolog="def always(cfg, trial):\n    raise KeyError('no such luck')\n"
            "def sometimes(cfg, trial):\n    if trial.number == 2:\n        raise KeyError('two')\n",
        )
    )
    ended = search.run("x=range(0,50)", "hydra.sweeper.custom_search_space=app.always")
    assert ended.status == 2, ended.printed
    assert "KeyError: 'no such luck'" in ended.stderr
    assert search.rows() == 0
    ended = search.run("x=range(0,50)", "hydra.sweeper.custom_search_space=app.sometimes", "hydra.sweeper.n_trials=4")
    assert ended.status == 0, ended.printed
    assert "KeyError: 'two'" in ended.printed
    assert [row.number for row in search.numbers() if row.trial_id is None] == [2]
    assert len(search.counted()) == 3


def test_enqueued_points_are_tried_first_and_once(search: Desk) -> None:
    """OP-13: three starts, one training for each distinct config."""
    search.write(script(fields="lr: float = 0.0\nwd: float = 0.0\nf: Any = 0.0", body="count(cfg.lr)\nreturn 0.0"))
    space = ("lr=interval(0,1)", "wd=interval(0,1)", "f=choice(0.0,nan)")
    points = [
        "{lr:1.0,wd:0,f:0.0}",
        "{lr:0.999999999,wd:0,f:0.0}",
        "{lr:1,wd:0,f:0.0}",
        "{lr:1,wd:0,f:nan}",
        "{lr:0.5}",
    ]
    command = (*space, RANDOM, f"hydra.sweeper.enqueue=[{','.join(points)}]", "hydra.sweeper.n_trials=6")
    for _ in range(3):
        ended = search.run(*command)
        assert ended.status == 0, ended.printed
    trials = search.trials()
    assert [trial.params["lr"] for trial in trials[:4]] == [1.0, 0.999999999, 1.0, 0.5], "1 is 1.0, and tried once"
    assert [trial.params["f"] for trial in trials[:3]] == [0.0, 0.0, {"$float": "nan"}]
    assert len(search.numbers()) == len(search.counted()) == len(trials) == 6


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["hydra.sweeper.storage=sqlite:///x.db"], ["storage", "SWEEPER_DATABASE_URL"]),
        (["hydra.sweeper.sampler._target_=nowhere.Sampler"], ["nowhere.Sampler"]),
        (["hydra/sweeper/pruner=median", "hydra.sweeper.direction=[minimize,minimize]"], ["pruner"]),
        (["hydra/sweeper/scheduler=asha", "hydra/sweeper/pruner=median"], ["scheduler", "pruner"]),
        (["hydra/sweeper/scheduler=asha", "hydra.sweeper.scheduler.mode=sideways"], ["sideways"]),
        (["hydra/sweeper/sampler=grid", "y=interval(0,1)"], ["y", "grid"]),
        (["hydra.sweeper.enqueue=[{x:100}]"], ["100", "x"]),
        (["hydra.sweeper.custom_search_space=app.nothing"], ["app.nothing"]),
        ([f"+{'p' * 600}=1,2"], ["600"]),
        ([f"hydra.sweeper.study_name={'n' * 600}"], ["study_name", "600"]),
        (["hydra/launcher=basic"], ["hydra/launcher=basic"]),
    ],
)
def test_bad_input_is_one_message_and_no_row(search: Desk, overrides: list[str], parts: list[str]) -> None:
    """CLEAR, OP-14."""
    search.write(script(fields="x: float = 0.0\ny: float = 0.0", body="count(cfg.x)\nreturn cfg.x"))
    refused(search.run("x=interval(0,1)", *overrides), *parts)
    assert search.rows() == 0
    assert search.counted() == []


def test_a_config_that_cannot_be_composed_keeps_hydras_message_and_status(search: Desk) -> None:
    """HY-03."""
    refused(search.run("nope=1,2"), "job #0 (nope=1)", "nope", status=1)
    assert search.rows() == 0


def test_a_search_and_a_grid_do_not_share_a_name(search: Desk) -> None:
    name = "hydra.launcher.name=mine"
    assert search.run("x=0.5,1.0", RANDOM, name, "hydra.sweeper.n_trials=2").status == 0
    search.plugin = "hydra/launcher=sweeper"
    refused(search.run("x=0.5,1.0", name), "'mine'", "search", "hydra.launcher.name")
    assert search.run("x=0.5", "hydra.launcher.name=grid").status == 0
    search.plugin = SEARCH
    refused(search.run("x=0.5,1.0", "hydra.launcher.name=grid"), "'grid'", "grid of given jobs")


def test_groups_fixed_values_and_params_of_a_config_written_for_the_plugin(search: Desk) -> None:
    """Switching is one line: `override hydra/sweeper: sweeper`."""
    search.plugin = "hydra.job.chdir=true"
    search.write(
        "import hydra, os\n@hydra.main(version_base=None, config_path='conf', config_name='config')\n"
        "def main(cfg):\n    assert os.path.basename(os.getcwd()).isdigit()\n"
        "    return cfg.x ** 2 + cfg.y ** 2 + cfg.db.cost\nif __name__ == '__main__': main()\n"
    )
    for name, cost in {"mysql": 1, "pg": 2}.items():
        search.write(f"cost: {cost}\n", f"conf/db/{name}.yaml")
    search.write(
        "defaults:\n  - _self_\n  - db: mysql\n  - override hydra/sweeper: sweeper\n"
        "  - override hydra/sweeper/sampler: tpe\n"
        "hydra:\n  sweeper:\n    sampler: {seed: 123, n_startup_trials: 5, consider_prior: null}\n"
        "    direction: minimize\n    study_name: sphere\n    storage: null\n    n_trials: 6\n    n_jobs: 2\n"
        "    max_failure_rate: 0.0\n    params:\n      x: range(-5.5, 5.5, step=0.5)\n      y: choice(-5, 0, 5)\n"
        "      db: mysql,pg\n      z: 1\nx: 1\ny: 1\nz: 0\n",
        "conf/config.yaml",
    )
    ended = search.run("y=0", "~z")
    assert ended.status == 0, ended.printed
    trials = search.trials("sphere")
    assert len(trials) == 6
    assert all({"y=0", "~z"} <= set(trial.overrides) and float(trial.params["x"]) % 0.5 == 0 for trial in trials)  # type: ignore[arg-type]
    assert {trial.params["db"] for trial in trials} <= {"mysql", "pg"}
    found = OmegaConf.load(sweep_dir(search) / "optimization_results.yaml")
    assert set(found.best_params) == {"x", "db"}


def test_several_objectives_give_the_solutions(search: Desk) -> None:
    search.write(script(fields="x: float = 0.0", body="return cfg.x, 1 - cfg.x"))
    ended = search.run(
        "x=interval(0,1)", "hydra.sweeper.direction=[minimize,maximize]", "hydra.sweeper.n_trials=4", RANDOM
    )
    assert ended.status == 0, ended.printed
    found = OmegaConf.load(sweep_dir(search) / "optimization_results.yaml")
    assert len(found.solutions) == 1
    assert len(found.solutions[0]["values"]) == 2


def test_reaching_the_target_or_the_time_ends_the_search(search: Desk) -> None:
    command = ("x=interval(0,1)", RANDOM, "hydra.sweeper.n_trials=500", "hydra.launcher.name=mine")
    ended = search.run(*command, "hydra.sweeper.stop.value=0.2")
    assert ended.status == 0, ended.printed
    assert 0 < len(search.trials("mine")) < 500
    assert min(float(trial.result) for trial in search.trials("mine")) <= 0.2  # type: ignore[arg-type]
    before = len(search.numbers())
    ended = search.run(*command, "hydra.sweeper.stop.timeout_s=1")
    assert ended.status == 0, ended.printed
    assert before < len(search.numbers()) < 500


def test_the_users_callbacks_see_the_end_also_when_trials_failed(search: Desk) -> None:
    search.write(
        script(
            body="raise ValueError('no')",
            prolog="from hydra.experimental.callback import Callback\nclass Told(Callback):\n"
            "    def on_multirun_end(self, config, **kwargs):\n        print('told of the end')\n",
        )
    )
    ended = search.run(
        "x=1,2", "hydra/sweeper/sampler=grid", "hydra.launcher.retry.max_crashes=1",
        "+hydra.callbacks.told._target_=__main__.Told",
    )  # fmt: skip
    assert ended.status == 1, ended.printed
    assert "told of the end" in ended.stdout
    assert "ValueError: no" in ended.printed
    assert "2 of 2 trials failed" in ended.stderr


def test_an_interrupted_search_leaves_with_75_and_goes_on(search: Desk) -> None:
    search.write(
        script(
            body="import time\ncount(cfg.x)\nrun = sweeper.resume()\n"
            "for step in run.steps(40):\n    time.sleep(0.05)\nreturn cfg.x"
        )
    )
    command = ("x=1,2,3", "hydra/sweeper/sampler=grid", "hydra.launcher.checkpoint.every_s=0.2")
    started = search.start(*command)
    wait_until(lambda: search.counted())
    os.kill(started.pid, signal.SIGTERM)
    ended = finish(started)
    assert ended.status == 75, ended.printed
    assert "run the same command again" in ended.stderr
    again = search.run(*command)
    assert again.status == 0, again.printed
    assert [trial.result for trial in search.trials()] == [1, 2, 3]


def test_workers_and_a_coordinator_started_by_hand(search: Desk) -> None:
    """The function that suggests runs in the coordinator's care, also where it has no workers of its own."""
    search.write(
        script(
            fields="x: float = 0.0\nn: int = 0",
            body="count(cfg.n)\nreturn cfg.x",
            prolog="def configure(cfg, trial):\n    trial.suggest_int('n', 1, 3)\n",
        )
    )
    tool, environment = str(Path(sys.executable).with_name("sweeper")), search.environment()
    command = [sys.executable, "app.py", "-m", SEARCH, RANDOM, "x=interval(0,1)", "hydra.sweeper.n_trials=4",
               "hydra.sweeper.custom_search_space=app.configure"]  # fmt: skip
    processes = [
        subprocess.Popen(
            [tool, kind, "--", *command], cwd=search.root, env=environment, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )
        for kind in ("coordinate", "worker")
    ]  # fmt: skip
    coordinator, worker = processes
    ended = finish(coordinator)
    os.kill(worker.pid, signal.SIGTERM)
    finish(worker)
    assert ended.status == 0, ended.printed
    assert len(search.trials()) == 4
    assert set(search.counted()) <= {"1", "2", "3"}


def test_a_script_whose_search_resumes_exactly_is_found_so(search: Desk) -> None:
    """`sweeper check` takes the first config of the space."""
    search.write(
        script(
            fields="x: float = 0.0",
            body="run = sweeper.resume()\nfor step in run.steps(20):\n"
            "    run.state['n'] = run.state.get('n', 0) + cfg.x\n    run.report(run.state['n'], step=step)\n"
            "return run.state['n']",
        )
    )
    done = subprocess.run(
        [str(Path(sys.executable).with_name("sweeper")), "check", "app.py", "-m", SEARCH, "x=interval(1,2)"],
        cwd=search.root, env=search.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "checking x=1.0" in done.stdout, done.stdout + done.stderr
    assert search.rows() == 0
