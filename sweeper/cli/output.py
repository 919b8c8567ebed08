"""Where commands print: tables on a console as wide as they need when nobody looks, JSON exactly."""

from __future__ import annotations

import json

import typer
from rich.console import Console

from sweeper.cli.records import Record

WIDTH_WITHOUT_TERMINAL = 240


def console() -> Console:
    """Give a console on the standard output; without a terminal, lines are not cut to its width."""
    out = Console(highlight=False)
    if not out.is_terminal:
        out = Console(highlight=False, width=WIDTH_WITHOUT_TERMINAL)
    return out


def say_json(value: Record | list[Record]) -> None:
    """Print JSON; floats in their shortest exact form."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))
