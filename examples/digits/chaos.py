"""Kill a sweep three times and compare it with one that was left alone.

Runs the digits sweep undisturbed, then again on another home while SIGKILLing everything that belongs to it
(coordinator, workers, children) at three random moments, giving the same command again each time. Prints what was
trained, lost and repeated, and ends with status 0 only if every final value equals the undisturbed sweep's, bit for
bit.

    python examples/digits/chaos.py [--kills 3] [--seed 7] [key=value ...]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

TRAIN = Path(__file__).with_name("counted.py")
MARK = "DIGITS_CHAOS_MARK"
"""In the environment of everything that a sweep of ours starts, so that we find it whoever its parent is now."""


class Home:
    """A private SWEEPER_HOME, and the commands given on it."""

    def __init__(self, root: Path, overrides: list[str]) -> None:
        self.root = root
        self.overrides = overrides
        self.log = root / "output.txt"
        self.mark = uuid.uuid4().hex
        clean = {key: value for key, value in os.environ.items() if not key.startswith("SWEEPER_")}
        self.steps = root / "steps"
        self.steps.mkdir(parents=True)
        self.environ = clean | {
            "SWEEPER_HOME": str(root / "home"),
            "DIGITS_STEPS": str(self.steps),
            "HYDRA_MAIN_MODULE": "__main__",  # `train` is imported, but its config path is meant from its file
        }

    def start(self) -> subprocess.Popen[bytes]:
        """Give the sweep's command, the same each time."""
        command = [sys.executable, str(TRAIN), "-m", f"hydra.sweep.dir={self.root}/multirun"]
        command += ["hydra.launcher.checkpoint.every_s=0.2", *self.overrides]
        with self.log.open("ab") as sink:
            return subprocess.Popen(
                command,
                env=self.environ | {MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill_everything(self) -> int:
        """SIGKILL every process of the sweep but the database server; give how many there were."""
        killed = 0
        for _ in range(20):  # a fork may have been under way while we looked
            found = [process for process in psutil.process_iter() if self._ours(process)]
            if not found:
                break
            for process in found:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            killed += len(found)
            psutil.wait_procs(found, timeout=5)
        return killed

    def _ours(self, process: psutil.Process) -> bool:
        try:
            marked = process.environ().get(MARK) == self.mark
            return marked and process.status() != psutil.STATUS_ZOMBIE and "postgres" not in process.name()
        except psutil.Error:
            return False

    def trials(self) -> list[dict[str, Any]]:
        """Ask the command line what it knows of the sweep."""
        listing: list[dict[str, Any]] = json.loads(self.sweeper("trials", "digits", "--json"))
        return listing

    def sweeper(self, *arguments: str) -> str:
        """Run the `sweeper` command and give what it printed."""
        command = [sys.executable, "-m", "sweeper.cli.app", *arguments]
        return subprocess.run(command, env=self.environ, check=True, capture_output=True, text=True).stdout

    def trained(self, number: int | None = None) -> int:
        """Count the optimizer steps really made, by all attempts of one trial or of all."""
        paths = self.steps.iterdir() if number is None else [self.steps / str(number)]
        return sum(path.stat().st_size for path in paths if path.exists())


def run_undisturbed(home: Home) -> float:
    """Run the sweep to its end; give the seconds it took."""
    started = time.monotonic()
    status = home.start().wait()
    if status != 0:
        sys.exit(f"the undisturbed sweep ended with status {status}:\n{home.log.read_text()}")
    return time.monotonic() - started


def run_killed(home: Home, *, kills: int, needed: int, rng: random.Random) -> int:
    """Run the sweep, killing it at some random step of what is left each time, and then to its end; give the hits."""
    hits = 0
    for left in range(kills, 0, -1):
        before = home.trained()
        target = before + rng.uniform(0.1, 0.9) * max(needed - before, 0) / left
        process = home.start()
        while process.poll() is None and home.trained() < target:
            time.sleep(0.02)
        if process.poll() is not None:
            break
        count = home.kill_everything()
        process.wait()
        done = sum(trial["state"] == "completed" for trial in home.trials())
        print(f"  killed {count} processes after {home.trained()} steps; {done} trials complete", flush=True)
        hits += 1
    status = home.start().wait()
    if status != 0:
        sys.exit(f"the last command ended with status {status}:\n{home.log.read_text()}")
    return hits


def tell(home: Home, trials: list[dict[str, Any]]) -> None:
    """Print what the attempts of each trial trained, and what was lost with a kill and trained again, in steps."""
    print(f"{'trial':>5} {'attempts':>8} {'trained':>8} {'repeated':>8}  attempts")
    for trial in trials:
        trained = home.trained(trial["number"])
        history = ", ".join(f"from {a['first_step'] or 0} {a['outcome']}" for a in trial["attempts"])
        print(f"{trial['number']:>5} {len(trial['attempts']):>8} {trained:>8} {trained - trial['step']:>8}  {history}")
    total = home.trained()
    repeated = total - sum(trial["step"] for trial in trials)
    print(f"{total} steps trained, of which {repeated} were lost with a kill and trained again")


def differences(expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> list[str]:
    """Compare final values exactly: JSON carries a float's shortest exact form."""

    def values(trials: list[dict[str, Any]]) -> Mapping[str, str]:
        return {trial["config_hash"]: f"{trial['state']} {json.dumps(trial['values'])}" for trial in trials}

    left, right = values(expected), values(found)
    return [
        f"{key[:12]}: undisturbed {left.get(key)}, killed {right.get(key)}"
        for key in sorted(left.keys() | right.keys())
        if left.get(key) != right.get(key)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=None, help="of the random moments; printed when drawn")
    parser.add_argument("overrides", nargs="*", help="of the sweep, as in epochs=2")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10_000)
    with tempfile.TemporaryDirectory(prefix="sweeper-chaos-", ignore_cleanup_errors=True) as folder:
        left_alone = Home(Path(folder) / "left-alone", arguments.overrides)
        killed = Home(Path(folder) / "killed", arguments.overrides)
        try:
            return compare(left_alone, killed, kills=arguments.kills, seed=seed)
        finally:
            for home in (left_alone, killed):
                home.kill_everything()
                with contextlib.suppress(subprocess.CalledProcessError):
                    home.sweeper("db", "stop")


def compare(left_alone: Home, killed: Home, *, kills: int, seed: int) -> int:
    print("undisturbed sweep", flush=True)
    duration_s = run_undisturbed(left_alone)
    expected = left_alone.trials()
    print(
        f"  {len(expected)} trials in {duration_s:.1f} s\nthe same sweep, killed {kills} times (seed {seed})",
        flush=True,
    )
    hits = run_killed(killed, kills=kills, needed=left_alone.trained(), rng=random.Random(seed))
    found = killed.trials()
    tell(killed, found)
    different = differences(expected, found)
    if different or not expected or hits != kills:
        print(f"FAILED ({hits} kills hit):", *different, sep="\n  ")
        return 1
    print(f"all {len(found)} final values equal the undisturbed sweep's, bit for bit")
    return 0


if __name__ == "__main__":
    sys.exit(main())
