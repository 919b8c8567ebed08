"""`sweeper watch`: a sweep as it works, from any machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Annotated

import typer

from sweeper.cli.opening import open_ledger
from sweeper.cli.progress import open_progress
from sweeper.cli.records import progress_record
from sweeper.errors import LedgerUnavailable
from sweeper.ids import SweepId, TrialId
from sweeper.ledger import reads
from sweeper.ledger.database import Database
from sweeper.ledger.sweeps import find_sweep, require_sweep
from sweeper.model.progress import ProgressSink, SweepProgress, Transition
from sweeper.model.states import SweepState
from sweeper.model.trial import Attempt, Trial

Seen = Mapping[TrialId, tuple[str, int]]
"""State and fence of each trial at the last look."""


def watch(
    sweep: Annotated[str, typer.Argument(metavar="SWEEP", help="The sweep's name.")],
    every_s: Annotated[float, typer.Option("--every", metavar="SECONDS", min=0.1, help="Time between looks.")] = 1.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line, when something changed.")
    ] = False,
) -> None:
    """Watch a sweep until all of it is done, or Ctrl-C. Watching changes nothing."""
    with open_ledger() as database:
        row = require_sweep(database, sweep)
        sink: ProgressSink = JsonLines() if as_json else open_progress()
        try:
            _follow(database, row.sweep_id, row.name, sink, every_s)
        except KeyboardInterrupt:
            pass
        finally:
            sink.close()


def _follow(database: Database, sweep_id: SweepId, name: str, sink: ProgressSink, every_s: float) -> None:
    pause = threading.Event()
    seen: Seen | None = None
    while True:
        try:
            snapshot = reads.progress(database, sweep_id)
            listing = reads.trials(database, sweep_id)
            attempts = reads.attempts(database, sweep_id)
            sweep = find_sweep(database, name)
        except LedgerUnavailable as error:
            sink.note(f"the ledger does not answer: {error}")
        else:
            for event in changes(seen, listing, attempts):
                sink.transition(event)
            seen = {trial.trial_id: (trial.state, trial.fence) for trial in listing}
            sink.turn(snapshot)
            if sweep is None or sweep.state is not SweepState.ACTIVE:
                return
        pause.wait(every_s)


def changes(seen: Seen | None, listing: list[Trial], attempts: Mapping[TrialId, list[Attempt]]) -> list[Transition]:
    """Tell what changed since the last look; nothing at the first one."""
    if seen is None:
        return []
    events = []
    for trial in listing:
        if seen.get(trial.trial_id) in (None, (trial.state, trial.fence)):
            continue
        rows = attempts.get(trial.trial_id, [])
        ended = [attempt for attempt in rows if attempt.outcome is not None]
        last = ended[-1] if ended and trial.state != "running" else None
        events.append(
            Transition(
                number=trial.number,
                state=trial.state,
                outcome=last.outcome if last else None,
                reason=(last.reason or "") if last else "",
                attempt=len(rows),
                step=trial.head.step if trial.state == "running" and trial.head else trial.step,
                value=trial.result,
                overrides=trial.overrides,
            )
        )
    return events


class JsonLines:
    """Prints a snapshot whenever it differs from the one before, for programs."""

    def __init__(self) -> None:
        self._last = ""

    def transition(self, event: Transition) -> None:
        """Nothing: the snapshot shows it."""

    def turn(self, snapshot: SweepProgress) -> None:
        """Print one line when anything changed."""
        text = json.dumps(progress_record(snapshot), ensure_ascii=False)
        if text != self._last:
            self._last = text
            typer.echo(text)

    def note(self, text: str) -> None:
        """Notes go to the error stream, so that the output stays JSON."""
        typer.echo(text, err=True)

    def close(self) -> None:
        """Nothing to put back."""
