"""Opening the ledger for a command, and finding the sweep and trials that its arguments name."""

from __future__ import annotations

from collections.abc import Sequence

from sweeper.errors import UserError
from sweeper.ledger.database import Database
from sweeper.ledger.opening import ledger_url, open_ledger
from sweeper.ledger.reads import trials
from sweeper.model.trial import Sweep, Trial

__all__ = ["ledger_url", "open_ledger", "pick_trial", "require_trial"]

_SHORTEST_PREFIX = 4


def require_trial(database: Database, sweep: Sweep, text: str) -> Trial:
    """Give the one trial that a number or a hash prefix names.

    Raises:
        UserError: none, or more than one.
    """
    return pick_trial(trials(database, sweep.sweep_id), text, sweep_name=sweep.name)


def pick_trial(known: Sequence[Trial], text: str, *, sweep_name: str) -> Trial:
    """Choose the trial with this number, else the one whose config hash begins so (at least four digits).

    Raises:
        UserError: none, or more than one.
    """
    if text.isdecimal():
        for trial in known:
            if trial.number == int(text):
                return trial
    prefix = text.lower()
    found = [trial for trial in known if len(prefix) >= _SHORTEST_PREFIX and trial.config_hash.startswith(prefix)]
    if len(found) == 1:
        return found[0]
    if found:
        numbers = ", ".join(str(trial.number) for trial in found)
        raise UserError(f"{text!r} begins the hashes of trials {numbers}", remedy="give more digits, or a number")
    raise UserError(
        f"sweep {sweep_name!r} has no trial {text!r}",
        remedy=f"`sweeper trials {sweep_name}` lists them; a trial is named by its number or at least "
        f"{_SHORTEST_PREFIX} digits of its hash",
    )
