"""Commands that steer: `retry` and `cancel`."""

from __future__ import annotations

from typing import Annotated

import typer

from sweeper.cli.opening import open_ledger, pick_trial
from sweeper.errors import UserError
from sweeper.ids import TrialNumber
from sweeper.ledger import commands, reads
from sweeper.ledger.database import Database
from sweeper.ledger.sweeps import require_sweep
from sweeper.model.states import FINAL_STATES, TrialState
from sweeper.model.trial import Sweep

SweepName = Annotated[str, typer.Argument(metavar="SWEEP", help="The sweep's name.")]
CANCELLABLE = frozenset({TrialState.PENDING, TrialState.RUNNING, TrialState.PAUSED})
Trials = Annotated[list[str] | None, typer.Argument(metavar="[TRIAL]...", help="Numbers or starts of config hashes.")]


def retry(
    sweep: SweepName,
    trials: Trials = None,
    from_zero: Annotated[
        bool,
        typer.Option("--from-zero", help="Forget its history: train from the first step. Also for done trials."),
    ] = False,
) -> None:
    """Set failed or cancelled trials back to pending.

    Without TRIAL, all such trials of the sweep.
    """
    with open_ledger() as database:
        row = require_sweep(database, sweep)
        numbers = _numbers(database, row, trials, retryable(from_zero), action="retried")
        changed = commands.retry_trials(database, row.sweep_id, numbers, from_zero=from_zero)
    for trial in changed:
        start = f"resumes from step {trial.head.step}" if trial.head else "starts from zero"
        typer.echo(f"trial {trial.number} is pending again and {start}")
    if changed:
        typer.echo("give the sweep's command again to run them, if nothing is running it now")
    else:
        typer.echo(f"sweep {sweep!r} has no failed or cancelled trials")


def cancel(sweep: SweepName, trials: Trials = None) -> None:
    """Cancel trials, or without TRIAL the whole sweep.

    Running trials stop at their next safe point.
    """
    with open_ledger() as database:
        row = require_sweep(database, sweep)
        if not trials:
            commands.cancel_sweep(database, row.sweep_id)
            typer.echo(f"sweep {sweep!r} is cancelled; `sweeper retry {sweep}` with trials takes single ones back")
            return
        numbers = _numbers(database, row, trials, CANCELLABLE, action="cancelled")
        for trial in commands.cancel_trials(database, row.sweep_id, numbers):
            typer.echo(f"trial {trial.number} is cancelled")


def retryable(from_zero: bool) -> frozenset[TrialState]:
    """Give the states in which a named trial can be retried: done ones only when their history is given up."""
    return FINAL_STATES if from_zero else frozenset({TrialState.FAILED, TrialState.CANCELLED})


def _numbers(
    database: Database, sweep: Sweep, texts: list[str] | None, allowed: frozenset[TrialState], *, action: str
) -> list[TrialNumber] | None:
    """Turn the TRIAL arguments into numbers; refuse those whose state does not allow it, before anything changes."""
    if not texts:
        return None
    known = reads.trials(database, sweep.sweep_id)
    chosen: dict[TrialNumber, None] = {}
    for text in texts:
        trial = pick_trial(known, text, sweep_name=sweep.name)
        if trial.state not in allowed:
            *most, last = [state.value for state in TrialState if state in allowed]
            hint = "; --from-zero gives up what it has" if trial.state.final and action == "retried" else ""
            raise UserError(
                f"trial {trial.number} is {trial.state.value} and cannot be {action}",
                remedy=f"only trials that are {', '.join(most)} or {last} can be {action}{hint}",
            )
        chosen[trial.number] = None
    return list(chosen)
