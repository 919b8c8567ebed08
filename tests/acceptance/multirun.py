"""Running a multirun as a user does, and reaching the processes it is made of.

The tree of a local multirun: coordinator → root warm parent → workers → their warm parents → children. All of them are
forks of the user's script, so they are told apart by their depth below the process that was started.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

SCRIPTS = Path(__file__).parent / "scripts"
COUNTED, DRAWN = SCRIPTS / "counted.py", SCRIPTS / "drawn.py"
"""The same training with torch and without."""
_DEPTH = {"warm parent": 1, "worker": 2, "worker's warm parent": 3, "child": 4}


@dataclass
class Bench:
    """A place where one sweep is run, killed and run again: home, working directory, training counter, output."""

    root: Path
    home: Path
    environ: dict[str, str] = field(default_factory=dict)
    script: Path = COUNTED
    options: tuple[str, ...] = ()
    """Hydra's own options; they come before all overrides."""

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self.output = self.root / "output.txt"

    @property
    def counter(self) -> Path:
        return self.root / "counter.txt"

    def environment(self) -> dict[str, str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("SWEEPER_")}
        return clean | {"SWEEPER_HOME": str(self.home), "COUNTER": str(self.counter)} | self.environ

    def start(self, *overrides: str) -> Multirun:
        """Start the script's multirun in a session of its own; output is appended to `output`."""
        with self.output.open("ab") as sink:
            process = subprocess.Popen(
                [sys.executable, str(self.script), *self.options, "-m", "hydra/launcher=sweeper", *overrides],
                cwd=self.root,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Multirun(process=process)

    def finish(self, *overrides: str, timeout_s: float = 120) -> int:
        """Run to the end; give the exit status."""
        multirun = self.start(*overrides)
        try:
            return multirun.process.wait(timeout_s)
        finally:
            multirun.kill_everything()

    def sweeper(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the `sweeper` command on this bench's home."""
        return subprocess.run(
            [sys.executable, "-m", "sweeper.cli.app", *arguments],
            cwd=self.root,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def trials(self, sweep: str) -> list[dict[str, Any]]:
        """Give `sweeper trials SWEEP --json`."""
        done = self.sweeper("trials", sweep, "--json")
        assert done.returncode == 0, done.stderr
        listing: list[dict[str, Any]] = json.loads(done.stdout)
        return listing

    def values(self, sweep: str) -> dict[str, Any]:
        """Give each config hash's values."""
        return {trial["config_hash"]: trial["values"] for trial in self.trials(sweep)}

    def counted(self) -> Mapping[int, Mapping[int, Sequence[int]]]:
        """Give trial number → attempt → steps in the order they were trained."""
        steps: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        if self.counter.exists():
            for line in self.counter.read_text().splitlines():
                number, attempt, step = map(int, line.split())
                steps[number][attempt].append(step)
        return steps

    def printed(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""


@dataclass
class Multirun:
    """One started command and its descendants."""

    process: subprocess.Popen[bytes]
    _seen: dict[int, psutil.Process] = field(default_factory=dict)

    def at_depth(self, role: str) -> list[psutil.Process]:
        """Find the live processes of a role below the command."""
        level = [psutil.Process(self.process.pid)] if self.process.poll() is None else []
        for _ in range(_DEPTH[role]):
            below: list[psutil.Process] = []
            for parent in level:
                with contextlib.suppress(psutil.NoSuchProcess):
                    below += parent.children()
            level = [process for process in below if "postgres" not in _name(process)]
        for process in level:
            self._seen[process.pid] = process
        return level

    def everything(self) -> list[psutil.Process]:
        """Find the command and all its descendants but the embedded server, which is shared and outlives it."""
        found: dict[int, psutil.Process] = {pid: p for pid, p in self._seen.items() if p.is_running()}
        for root in [*found.values(), *([psutil.Process(self.process.pid)] if self.process.poll() is None else [])]:
            with contextlib.suppress(psutil.NoSuchProcess):
                for process in [root, *root.children(recursive=True)]:
                    if "postgres" not in _name(process) and "watch" not in " ".join(_command(process)):
                        found[process.pid] = process
        self._seen |= found
        return list(found.values())

    def kill_everything(self) -> int:
        """SIGKILL the command and all its descendants at once; give how many there were."""
        processes = self.everything()
        for process in processes:
            send(process, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        psutil.wait_procs(processes, timeout=10)
        return len(processes)

    def wait_for(self, role: str, *, timeout_s: float = 60) -> list[psutil.Process]:
        """Wait until a process of the role exists, or the command has ended."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            found = self.at_depth(role)
            if found or self.process.poll() is not None:
                return found
            time.sleep(0.02)
        raise AssertionError(f"no {role} within {timeout_s} s")


def send(process: psutil.Process, number: int) -> None:
    """Send a signal to a process that may have just ended; psutil checks that the pid was not reused."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return []
