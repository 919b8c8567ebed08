"""The `sweeper` command."""

from __future__ import annotations

import io
import sys

import typer

from sweeper.cli import changing, database, doctor, mirroring, reading, roles, running, watching
from sweeper.errors import SweeperError, TransientError, UserError

app = typer.Typer(
    name="sweeper",
    help="Look at sweeps, steer them, and add workers. A sweep itself is run by its own script: python train.py -m …",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(running.run)
app.command()(reading.status)
app.command()(reading.trials)
app.command()(reading.show)
app.command()(watching.watch)
app.command()(changing.retry)
app.command()(changing.cancel)
app.command(context_settings=roles.PASSED_ON)(roles.worker)
app.command(context_settings=roles.PASSED_ON)(roles.coordinate)
app.command(context_settings=roles.PASSED_ON)(roles.check)
app.command()(mirroring.dashboard)
app.command()(mirroring.url)
app.command()(mirroring.rebuild)
app.command(name="doctor")(doctor.doctor)
app.add_typer(database.app, name="db")


def main() -> None:
    """Run the command line; a `UserError` is one message on the error stream and status 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a trial's value may hold what the terminal cannot show
    try:
        app()
    except UserError as error:
        print(f"sweeper: {error}", file=sys.stderr)
        sys.exit(2)
    except TransientError as error:
        print(f"sweeper: {error}\n  this may pass: give the command again", file=sys.stderr)
        sys.exit(1)
    except SweeperError as error:
        print(f"sweeper: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
