"""A folder with a script or file that sweeps without Hydra, and commands on it as a user gives them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from sweeper.ids import TrialId
from sweeper.ledger.database import Database
from sweeper.ledger.reads import attempts as read_attempts
from sweeper.ledger.reads import trials as read_trials
from sweeper.ledger.sweeps import require_sweep
from sweeper.model.states import TrialState
from sweeper.model.trial import Attempt, Trial
from tests.hydra.running import Ended, finish, wait_until

MODULE = """
import os
import sys
import time

import sweeper


def count(text):
    descriptor = os.open(os.environ["COUNTER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, f"{text}\\n".encode())
    os.close(descriptor)


def train(config):
    run = sweeper.resume()
    for step in run.steps(config.get("steps", 1)):
        count(f"{config['x']!r} {step}")
        time.sleep(config.get("pause_s", 0.0))
        run.state["sum"] = run.state.get("sum", 0.0) + config["x"]
    return abs(run.state["sum"] - 0.3)
"""
SCRIPT = """
import json
import sys

import sweeper
from training_code import count
{prolog}

if __name__ == "__main__":
    arguments = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {{}}
    keywords = {{"name": "mine", "n_trials": 4, **arguments}}
    result = sweeper.sweep({objective}, {space}, **keywords)
    best = result.best
    print(json.dumps({{
        "values": [trial.value for trial in result.trials],
        "params": [trial.params for trial in result.trials],
        "best": None if best is None else [best.number, best.value],
        "hydra": [name for name in ("hydra", "omegaconf") if name in sys.modules],
    }}))
"""
FILE = """
objective: training_code:train
name: mine
n_trials: 4
space:
  x: {low: 0.0, high: 1.0}
"""


@dataclass
class Desk:
    """A folder with `training_code.py` and what else a test writes, on a database and a home of its own."""

    root: Path
    database_url: str
    environ: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.write("training_code.py", MODULE)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def script(
        self, *, prolog: str = "", objective: str = "training_code.train", space: str = '{"x": sweeper.Float(0, 1)}'
    ) -> None:
        """Write `search.py`."""
        prolog = f"import training_code\n{prolog}"
        self.write("search.py", SCRIPT.format(prolog=prolog, objective=objective, space=space))

    def start(self, *command: str, cwd: Path | None = None, **environ: str) -> Any:
        """Start a command in a session of its own; `python` and `sweeper` are this environment's."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith("SWEEPER_")}
        programs = str(Path(sys.executable).parent)
        ours = {
            "SWEEPER_HOME": str(self.root / "home"),
            "SWEEPER_DATABASE_URL": self.database_url,
            "COUNTER": str(self.root / "counter.txt"),
            "CUDA_VISIBLE_DEVICES": "",
            "PATH": f"{programs}:{os.environ['PATH']}",
        }
        return subprocess.Popen(
            command,
            cwd=cwd or self.root,
            env={**clean, **ours, **self.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def run(self, *command: str, cwd: Path | None = None, **environ: str) -> Ended:
        return finish(self.start(*command, cwd=cwd, **environ))

    def sweep(self, **keywords: Any) -> Ended:
        """Run `search.py` with these keywords for `sweeper.sweep`."""
        return self.run("python", "search.py", json.dumps(keywords))

    def counted(self) -> Counter[tuple[str, int]]:
        """How often each step of each config was trained."""
        path = self.root / "counter.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        return Counter((x, int(step)) for x, step in (line.split() for line in lines))

    def trials(self, name: str = "mine") -> list[Trial]:
        with Database(self.database_url, "test") as database:
            sweep = require_sweep(database, name)
            return sorted(read_trials(database, sweep.sweep_id), key=lambda trial: trial.number)

    def attempts(self, name: str = "mine") -> dict[TrialId, list[Attempt]]:
        with Database(self.database_url, "test") as database:
            return read_attempts(database, require_sweep(database, name).sweep_id)


def result_of(ended: Ended) -> dict[str, Any]:
    """What the script printed at its end."""
    assert ended.status == 0, ended.printed
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


@dataclass(frozen=True, kw_only=True)
class Killed:
    """What a killed command left in the ledger, and what it had said by then."""

    trials: list[Trial]
    attempts: dict[TrialId, list[Attempt]]
    counted: Counter[tuple[str, int]]
    said: str

    def __str__(self) -> str:
        return "\n".join([self.said, *map(repr, self.trials), *map(repr, self.attempts.items())])


def kill_at(desk: Desk, process: Any, *, steps: int, saved: bool = False) -> Killed:
    """SIGKILL a command, and everything that it started, once so many steps were trained.

    `saved`: and once a running trial has a checkpoint; on a busy disk that takes as long as many steps.
    """

    def ready() -> bool:
        return len(desk.counted()) >= steps and (not saved or any(map(_is_saved, desk.trials())))

    wait_until(lambda: ready() or process.poll() is not None, 60)
    assert process.poll() is None, process.communicate()
    found = [psutil.Process(process.pid)]
    found += found[0].children(recursive=True)
    for one in found:
        try:
            one.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(found, timeout=10)
    said = "".join(process.communicate())
    return Killed(trials=desk.trials(), attempts=desk.attempts(), counted=desk.counted(), said=said)


def assert_goes_on(killed: Killed, counted: Counter[tuple[str, int]]) -> None:
    """Its one worker had ended each trial before it began another, and no step in the ledger was trained again since.

    `counted`: how often each step was trained by now.
    """
    states = [trial.state for trial in killed.trials]
    running = states.index(TrialState.RUNNING)
    assert states[:running] == [TrialState.COMPLETED] * running, str(killed)
    kept = {repr(trial.params["x"]): _kept(trial) for trial in killed.trials}
    again = sorted((x, step) for x, step in counted - killed.counted if step < kept.get(x, 0))
    assert not again, f"{again}\n{killed}"


def _is_saved(trial: Trial) -> bool:
    return trial.state is TrialState.RUNNING and trial.head is not None


def _kept(trial: Trial) -> int:
    """Steps that are never to be trained again: all of a finished trial, else those of its head."""
    if trial.state.final:
        return trial.step
    return 0 if trial.head is None else trial.head.step
