"""`sweeper doctor`: can this machine run sweeps? Each check is one line, with the remedy when it fails."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from sweeper.checkpoint.store import open_store, probe
from sweeper.cli.output import console, say_json
from sweeper.errors import SweeperError
from sweeper.ledger.database import open_database
from sweeper.ledger.embedded import ensure_server
from sweeper.ledger.schema import schema_version
from sweeper.ledger.urls import redact
from sweeper.settings import Places, resolve_places


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check's answer. `ok` is None for what is only told."""

    name: str
    ok: bool | None
    detail: str


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False) -> None:
    """Check this machine: versions, home, database, store. Status 1 when something is wrong."""
    places = resolve_places()
    findings = [
        *versions(),
        guarded("home", lambda: home(places.home)),
        guarded("database", lambda: database(places)),
        guarded("store", lambda: store(places)),
        memory_files(),
        Finding(name="cores", ok=None, detail=str(len(os.sched_getaffinity(0)))),
    ]
    if as_json:
        say_json([asdict(finding) for finding in findings])
    else:
        out = console()
        for finding in findings:
            mark, style = {True: ("ok", "green"), False: ("FAIL", "bold red"), None: ("--", "dim")}[finding.ok]
            out.print(Text(f"{mark:>4}  ", style=style) + Text(f"{finding.name}: {finding.detail}", style=""))
    if any(finding.ok is False for finding in findings):
        raise typer.Exit(1)


def guarded(name: str, check: Callable[[], str]) -> Finding:
    """Run a check; what it raises on purpose is its finding."""
    try:
        return Finding(name=name, ok=True, detail=check())
    except (SweeperError, OSError) as error:
        return Finding(name=name, ok=False, detail=str(error))


def versions() -> list[Finding]:
    """Tell the versions that matter; nothing heavy is imported."""
    findings = [Finding(name="python", ok=None, detail=f"{platform.python_version()} on {platform.platform()}")]
    needed = ("sweeper", "hydra-core", "omegaconf", "SQLAlchemy", "psycopg", "fsspec")
    findings += [Finding(name=package, ok=True, detail=importlib.metadata.version(package)) for package in needed]
    for package, extra in (("torch", "torch"), ("s3fs", "s3")):
        if importlib.util.find_spec(package) is None:
            detail = f"not installed; training code or stores that need it: pip install 'sweeper[{extra}]'"
            findings.append(Finding(name=package, ok=None, detail=detail))
        else:
            findings.append(Finding(name=package, ok=None, detail=importlib.metadata.version(package)))
    plugin = importlib.util.find_spec("hydra_plugins.sweeper_plugin") is not None
    detail = "found" if plugin else "missing: reinstall sweeper in this environment"
    return [*findings, Finding(name="hydra plugin", ok=plugin, detail=detail)]


def home(path: Path) -> str:
    """Check that our own folder can be written."""
    path.mkdir(parents=True, exist_ok=True)
    trial = path / f".doctor-{os.getpid()}"
    trial.write_bytes(b"")
    trial.unlink()
    return f"{path} can be written"


def database(places: Places) -> str:
    """Check that the ledger answers (the embedded server is started) and has its tables."""
    embedded = places.database_url is None
    url = ensure_server(places.home) if places.database_url is None else places.database_url
    ledger = open_database(url)
    try:
        return f"{'embedded, ' if embedded else ''}{redact(url)}, schema {schema_version(ledger)}"
    finally:
        ledger.close()


def store(places: Places) -> str:
    """Check that the store takes, gives back and deletes an object."""
    target = open_store(places.store_url)
    probe(target)
    return f"{target.url} takes, gives and deletes"


def memory_files() -> Finding:
    """Tell whether saves are staged in memory files or in unlinked files."""
    if hasattr(os, "memfd_create"):
        return Finding(name="staging", ok=True, detail="memory files")
    return Finding(name="staging", ok=None, detail="unlinked files: this system has no memfd")
