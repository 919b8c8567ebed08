"""Unfinished trials of a search whose configs the command would no longer make: found before any worker is."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Final

from sweeper.errors import UserError
from sweeper.ids import ConfigHash
from sweeper.ledger.database import Statements
from sweeper.ledger.reads import config_text
from sweeper.ledger.reads import trials as read_trials
from sweeper.model.config_hash import hash_text
from sweeper.model.trial import Sweep

_MOST_SHOWN: Final = 10


def check_open_trials(
    database: Statements, sweep: Sweep, identify: Callable[[Sequence[str]], ConfigHash], *, fixed: str
) -> None:
    """Refuse a command with which unfinished trials of its search can never be run.

    A search goes on with what is unfinished. A trial that is composed differently now is turned down by every worker,
    one after another; finished ones keep their results, whatever was changed since.

    Args:
        database: the ledger.
        sweep: the search that the command goes on with.
        identify: gives the hash of the config that these overrides make now.
        fixed: what the user calls the values that every trial has.

    Raises:
        UserError: names the trials and both ways out.
    """
    open_trials = [trial for trial in read_trials(database, sweep.sweep_id) if not trial.state.final]
    changed = [
        trial.number
        for trial in open_trials
        if identify(trial.overrides) != hash_text(config_text(database, trial.trial_id))
    ]
    if not changed:
        return
    numbers = [str(number) for number in changed]
    shown = ", ".join(numbers[:_MOST_SHOWN]) + (", …" if len(numbers) > _MOST_SHOWN else "")
    plural = "s" if len(numbers) > 1 else ""
    raise UserError(
        f"trial{plural} {shown} of sweep {sweep.name!r} began with other values than {fixed} has now, and "
        f"{'are' if plural else 'is'} not finished",
        remedy=f"put {fixed} back as it was until then, or give them up first: sweeper cancel "
        f"{shlex.quote(sweep.name)} {' '.join(numbers)}",
    )
