"""`sweeper run FILE.yaml`: a search of an importable function, described in a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sweeper.model.states import TrialState


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="Objective, name, space and settings.")],
) -> None:
    """Run a search that a file describes, or go on with it.

    With workers elsewhere: sweeper worker -- sweeper run FILE.yaml
    """
    from sweeper.plain.running import run_file  # the other commands do without the processes that this one starts

    try:
        result = run_file(file)
    except KeyboardInterrupt:
        print("sweeper: interrupted; the same command goes on from there", file=sys.stderr)
        sys.exit(75)
    failed = any(trial.state is TrialState.FAILED for trial in result.trials)
    sys.exit(1 if failed or not result.trials else 0)
