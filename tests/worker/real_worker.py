"""A worker as a process of its own, with real children: `python -m tests.worker.real_worker HOME DATABASE STORE`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np  # noqa: F401  # imported before the warm parent is forked, so that children have them at once
import torch  # noqa: F401

from sweeper.settings import CheckpointSettings, LeaseSettings, Places, WorkerSettings
from sweeper.trial.fresh import FreshParent
from sweeper.trial.warm_parent import WarmParent
from sweeper.wiring import run_worker
from tests.trial import train_script

NAME = "real"
SETTINGS = WorkerSettings(
    lease=LeaseSettings(lease_s=20.0, heartbeat_s=1.0), checkpoint=CheckpointSettings(every_s=0.05), grace_s=20.0
)


def main() -> int:
    home, database, store = sys.argv[1:]
    warm = WarmParent.fork(train_script.ROLES)
    fallback = FreshParent([sys.executable, train_script.__file__], train_script.ROLES, cwd=Path.cwd())
    places = Places(home=Path(home), database_url=database, store_url=store)
    return run_worker(places, sweep_name=NAME, spawner=warm, fallback=fallback, settings=SETTINGS)


if __name__ == "__main__":
    sys.exit(main())
