"""Commands that only look: `status`, `trials`, `show`."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from sweeper.checkpoint.keys import trial_prefix
from sweeper.cli.opening import open_ledger, require_trial
from sweeper.cli.output import console, say_json
from sweeper.cli.progress import counts_text, running_table, search_text
from sweeper.cli.records import (
    attempt_record,
    checkpoint_record,
    moment,
    progress_record,
    report_record,
    sweep_record,
    trial_record,
)
from sweeper.cli.sheets import attempts_table, checkpoints_table, facts_table, reports_table, trials_table
from sweeper.cli.texts import result_text
from sweeper.ledger import reads
from sweeper.ledger.database import Database
from sweeper.ledger.sweeps import SweepSummary, list_sweeps, require_sweep
from sweeper.model.states import TrialState
from sweeper.model.trial import Attempt, Sweep, Trial

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON with exact values instead of tables.")]
SweepName = Annotated[str, typer.Argument(metavar="SWEEP", help="The sweep's name.")]
LOG_LINES = 20
"""Lines of output that `show` ends with."""
MOST_FOLDERS = 10_000
"""Trial directories that are looked into when they are not named by number."""


def status(
    sweep: Annotated[str | None, typer.Argument(metavar="[SWEEP]", help="One sweep; without it, all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show all sweeps, or one with what its workers are doing."""
    with open_ledger() as database:
        if sweep is None:
            _all_sweeps(list_sweeps(database), as_json=as_json)
        else:
            _one_sweep(database, require_sweep(database, sweep), as_json=as_json)


def _all_sweeps(summaries: list[SweepSummary], *, as_json: bool) -> None:
    if as_json:
        say_json(
            [
                sweep_record(summary.sweep, summary.counts) | {"last_activity_at": moment(summary.last_activity_at)}
                for summary in summaries
            ]
        )
        return
    if not summaries:
        console().print("no sweeps yet")
        return
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("sweep", "state", "trials", "by state", "last activity"):
        table.add_column(column, overflow="fold")
    for summary in summaries:
        table.add_row(
            Text(summary.sweep.name),
            summary.sweep.state.value,
            str(sum(summary.counts.values())),
            counts_text(summary.counts),
            f"{summary.last_activity_at:%Y-%m-%d %H:%M:%S}" if summary.last_activity_at else "–",
        )
    console().print(table)


def _one_sweep(database: Database, sweep: Sweep, *, as_json: bool) -> None:
    progress = reads.progress(database, sweep.sweep_id)
    if as_json:
        say_json(sweep_record(sweep, progress.counts) | progress_record(progress))
        return
    out = console()
    facts = {
        "sweep": sweep.name,
        "state": sweep.state.value,
        "task": sweep.task,
        "directory": sweep.sweep_dir,
        "store": sweep.store_url,
        "begun": f"{sweep.created_at:%Y-%m-%d %H:%M:%S %Z}",
        "evictions": str(progress.evictions),
    }
    if progress.search is not None:
        facts["search"] = search_text(progress.search)
    if progress.not_requested:
        facts["not requested"] = f"{progress.not_requested} unfinished trials that no live command asks for"
    out.print(facts_table(facts))
    out.print(counts_text(progress.counts))
    if progress.running:
        out.print(running_table(progress.running))


def trials(sweep: SweepName, as_json: AsJson = False) -> None:
    """List a sweep's trials with their typed parameters and results."""
    with open_ledger() as database:
        row = require_sweep(database, sweep)
        listing = sorted(reads.trials(database, row.sweep_id), key=lambda trial: trial.number)
        attempts = reads.attempts(database, row.sweep_id)
    if as_json:
        say_json([trial_record(trial, attempts.get(trial.trial_id, [])) for trial in listing])
        return
    console().print(trials_table(listing, {number: len(rows) for number, rows in attempts.items()}))


def show(
    sweep: SweepName,
    trial: Annotated[str, typer.Argument(metavar="TRIAL", help="Its number, or the start of its config hash.")],
    as_json: AsJson = False,
) -> None:
    """Show one trial: attempts, checkpoints, reports, output."""
    with open_ledger() as database:
        row = require_sweep(database, sweep)
        found = require_trial(database, row, trial)
        attempts = reads.attempts_of(database, found.trial_id)
        checkpoints = reads.checkpoints_of(database, found.trial_id)
        reports = reads.reports_of(database, found.trial_id)
    output = output_tail(row, found, attempts)
    if as_json:
        record = trial_record(found, attempts)
        record["attempts"] = [attempt_record(attempt) | {"error": attempt.error} for attempt in attempts]
        record["checkpoints"] = [checkpoint_record(ref) for ref in checkpoints]
        record["reports"] = [report_record(report) for report in reports]
        record["output"] = output
        say_json(record)
        return
    out = console()
    folder = trial_prefix(row.sweep_id, found.config_hash)
    out.print(facts_table(_facts(found) | ({"in the store": folder} if checkpoints else {})))
    for table in (attempts_table(attempts), checkpoints_table(checkpoints, found.head, folder), reports_table(reports)):
        if table.row_count:
            out.print()
            out.print(table)
    errors = [attempt.error for attempt in attempts if attempt.error]
    for title, text in (("error", found.error or (errors[-1] if errors else "")), ("output", "\n".join(output))):
        if text:
            out.print(f"\n[bold]{title}[/bold]")
            out.print(Text(text))


def _facts(trial: Trial) -> dict[str, str]:
    facts = {
        "trial": str(trial.number),
        "config hash": trial.config_hash,
        "state": trial.state.value + ("" if trial.requested or trial.state.final else ", not requested"),
        "overrides": " ".join(trial.overrides),
        "step": str(trial.step),
        "crashes": str(trial.crashes),
    }
    if trial.state is TrialState.COMPLETED:
        facts["result"] = result_text(trial)
    if trial.lineage:
        facts["lineage"] = f"{trial.lineage} (its history was cut that many times)"
    return facts


def output_tail(sweep: Sweep, trial: Trial, attempts: list[Attempt]) -> list[str]:
    """Give the last lines of the newest attempt's output, if its file is on this machine; at most `LOG_LINES`."""
    folder = _output_folder(Path(sweep.sweep_dir), trial.number)
    for attempt in reversed(attempts):
        path = folder / f"attempt-{attempt.fence}.log" if folder else None
        if path is not None and path.is_file():
            with path.open("rb") as file:
                file.seek(max(path.stat().st_size - LOG_LINES * 400, 0))
                return file.read().decode(errors="replace").splitlines()[-LOG_LINES:]
    return []


def _output_folder(sweep_dir: Path, number: int) -> Path | None:
    """Find a trial's directory: named by its number as Hydra does by default, else by what Hydra wrote into it."""
    if (sweep_dir / str(number) / ".hydra").is_dir():
        return sweep_dir / str(number)
    this_number = re.compile(rf"^ +num: {number}$", re.MULTILINE)
    for path in itertools.islice(sweep_dir.rglob(".hydra/hydra.yaml"), MOST_FOLDERS):
        if this_number.search(path.read_text(errors="replace")):
            return path.parent.parent
    return None
