"""Running small scripts as a user does, each in a folder, home and database of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from sweeper.ledger.database import Database
from sweeper.ledger.proposals import history
from sweeper.ledger.reads import trials as read_trials
from sweeper.ledger.sweeps import list_sweeps
from sweeper.model.search import Numbered
from sweeper.model.trial import Sweep, Trial

SCRIPT = """
import os
from dataclasses import dataclass, field
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig

import sweeper
{prolog}

@dataclass
class Config:
{fields}

ConfigStore.instance().store(name="config", node=Config)


def count(text):
    descriptor = os.open(os.environ["COUNTER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, (str(text) + "\\n").encode())
    os.close(descriptor)


@hydra.main(version_base=None, config_path=None, config_name="config")
def main(cfg):
{body}


if __name__ == "__main__":
    main()
"""


def script(fields: str = "x: int = 0", body: str = "count(cfg.x)\nreturn cfg.x", prolog: str = "") -> str:
    """Write a script whose config has `fields` and whose task has `body`."""
    return SCRIPT.format(fields=_indented(fields), body=_indented(body), prolog=prolog)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


@dataclass
class Ended:
    """A command that has ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def printed(self) -> str:
        return self.stdout + self.stderr


@dataclass
class Desk:
    """A folder with a script, and where its sweeps are kept."""

    root: Path
    database_url: str
    environ: dict[str, str] = field(default_factory=dict)
    plugin: str = "hydra/launcher=sweeper"

    def write(self, text: str, name: str = "app.py") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    @property
    def home(self) -> Path:
        return self.root / "home"

    def environment(self, **environ: str) -> dict[str, str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("SWEEPER_")}
        ours = {
            "SWEEPER_HOME": str(self.home),
            "SWEEPER_DATABASE_URL": self.database_url,
            "COUNTER": str(self.root / "counter.txt"),
            "CUDA_VISIBLE_DEVICES": "",
        }
        return {**clean, **ours, **self.environ, **environ}

    def start(self, *arguments: str | bytes, name: str = "app.py", cwd: Path | None = None, **environ: str) -> Any:
        """Start `python app.py -m hydra/launcher=sweeper …`, or with the plugin that the desk has."""
        command: list[str | bytes] = [sys.executable, str(self.root / name), "-m", self.plugin, *arguments]
        return subprocess.Popen(
            command,
            cwd=cwd or self.root,
            env=self.environment(**environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def run(self, *arguments: str | bytes, name: str = "app.py", cwd: Path | None = None, **environ: str) -> Ended:
        return finish(self.start(*arguments, name=name, cwd=cwd, **environ))

    def counted(self) -> list[str]:
        """What the task wrote down, one line a training, in no particular order between trials."""
        path = self.root / "counter.txt"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def sweeps(self) -> list[Sweep]:
        with Database(self.database_url, "test") as database:
            return [summary.sweep for summary in list_sweeps(database)]

    def trials(self, name: str | None = None) -> list[Trial]:
        """The trials of the only sweep, or of the one named."""
        with Database(self.database_url, "test") as database:
            (sweep,) = [s.sweep for s in list_sweeps(database) if name in (None, s.sweep.name)]
            return sorted(read_trials(database, sweep.sweep_id), key=lambda trial: trial.number)

    def numbers(self) -> list[Numbered]:
        """The numbers of the only sweep, a search."""
        with Database(self.database_url, "test") as database:
            (sweep,) = [summary.sweep for summary in list_sweeps(database)]
            return history(database, sweep.sweep_id)

    def rows(self) -> int:
        """How many sweeps and trials there are."""
        with psycopg.connect(self.database_url) as session:
            made = session.execute("SELECT to_regclass('sweeper.sweeps') IS NOT NULL").fetchone()
            if not made or not made[0]:
                return 0
            query = "SELECT (SELECT count(*) FROM sweeper.sweeps) + (SELECT count(*) FROM sweeper.trials)"
            row = session.execute(query).fetchone()
            return int(row[0]) if row else 0

    def everything_stored(self) -> str:
        """Every row of every table of ours as text, every object of the store, every file below the folder."""
        texts = []
        with psycopg.connect(self.database_url) as session:
            names = session.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'sweeper'").fetchall()
            for (name,) in names:
                texts += [row[0] for row in session.execute(f'SELECT t::text FROM sweeper."{name}" t').fetchall()]
        texts += [path.read_text(errors="replace") for path in self.root.rglob("*") if path.is_file()]
        return "\n".join(texts)


def finish(process: Any, timeout_s: float = 90) -> Ended:
    """Wait for a command; kill it and its session when it hangs."""
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        raise AssertionError(f"the command hung:\n{stdout}\n{stderr}") from None
    return Ended(process.returncode, stdout, stderr)


def wait_until(condition: Any, timeout_s: float = 30) -> None:
    """Look every few milliseconds until something real has happened."""
    end = time.monotonic() + timeout_s  # noqa: TID251 real processes are waited for
    while not condition():
        assert time.monotonic() < end, "it never happened"  # noqa: TID251
        time.sleep(0.02)  # noqa: TID251
