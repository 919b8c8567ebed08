"""Commands that run the user's own script in a role: `worker`, `coordinate`, `check`.

The role goes into the environment and the given command takes over this process; the plugin finds the role in the
launcher's set-up. What to run always comes from whoever starts it, never from the ledger (SAFE).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from typing import Annotated, NoReturn

import typer

from sweeper.errors import UserError

PASSED_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}
ROLE = "SWEEPER_ROLE"
SWEEP = "SWEEPER_SWEEP"
LAUNCHER = "hydra/launcher=sweeper"

Command = Annotated[list[str] | None, typer.Argument(metavar="-- COMMAND...", help="python train.py -m …")]


def worker(
    command: Command = None,
    sweep: Annotated[
        str | None, typer.Option("--sweep", metavar="NAME", help="The sweep, when its default name differs here.")
    ] = None,
) -> None:
    """Work on a sweep from this machine.

    After -- comes the same command as the multirun's.
    """
    become({ROLE: "worker"} | ({SWEEP: sweep} if sweep else {}), _script(command, "worker"))


def coordinate(
    command: Command = None,
    sweep: Annotated[
        str | None, typer.Option("--sweep", metavar="NAME", help="The sweep, when its default name differs here.")
    ] = None,
) -> None:
    """Coordinate a sweep without local workers.

    After -- comes the same command as the multirun's.
    """
    become({ROLE: "coordinator"} | ({SWEEP: sweep} if sweep else {}), _script(command, "coordinate"))


def check(
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="The training script.")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="As for one run.")] = None,
) -> None:
    """Prove that a script resumes exactly.

    It trains straight, and again with a save, a death and a resume in the middle.
    """
    if not os.path.isfile(script):  # noqa: PTH113  what the shell would run, unchanged
        raise UserError(f"there is no script {script!r}", remedy="sweeper check train.py key=value …")
    given = list(overrides or [])
    arguments = [sys.executable, script]
    if "-m" not in given and "--multirun" not in given:
        arguments.append("--multirun")
    # Behind all others: Hydra's parser wants overrides in one row.
    arguments += given if any(text.startswith("hydra/launcher=") for text in given) else [*given, LAUNCHER]
    become({ROLE: "check"}, arguments)


def _script(command: list[str] | None, name: str) -> list[str]:
    if not command:
        raise UserError("there is no command to run", remedy=f"sweeper {name} -- python train.py -m …")
    return command


def become(environment: Mapping[str, str], command: list[str]) -> NoReturn:
    """Replace this process by the command.

    Raises:
        UserError: there is no such program.
    """
    program = shutil.which(command[0])
    if program is None:
        raise UserError(f"there is no program {command[0]!r}", remedy="give the command as in a shell, after --")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(program, command, dict(os.environ) | dict(environment))
