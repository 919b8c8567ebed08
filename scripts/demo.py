"""Run the example sweep, show what it left, and stop the embedded server. Run it again: nothing is trained."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SWEEPER = [sys.executable, "-m", "sweeper.cli.app"]
TRAIN = ["examples/digits/train.py", "-m", "hydra.sweep.dir=.demo/multirun"]


def step(command: list[str], *, shown: str) -> int:
    print(f"\n$ {shown}", flush=True)
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main() -> int:
    print(f"SWEEPER_HOME={os.environ['SWEEPER_HOME']}", flush=True)
    try:
        status = step([sys.executable, *TRAIN, *sys.argv[1:]], shown=f"python {' '.join([*TRAIN, *sys.argv[1:]])}")
        if status == 0:
            status = step([*SWEEPER, "trials", "digits"], shown="sweeper trials digits")
    finally:
        step([*SWEEPER, "db", "stop"], shown="sweeper db stop")
    return status


if __name__ == "__main__":
    sys.exit(main())
