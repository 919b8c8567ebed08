"""Trials of a search that began with other values than its command has now: found before any worker is.

What is searched is compared when a sweep is matched (`ledger/matching.py`); here it is what all trials have in common,
which only whoever makes configs can compare. Finished trials keep their results and somebody is told; unfinished ones
could never be run, because every worker would compose another config than the trial's and turn it down.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Final

from sweeper.errors import UserError
from sweeper.ids import ConfigHash
from sweeper.ledger.reads import begun_configs
from sweeper.ledger.statements import Statements
from sweeper.model.config_hash import hash_text
from sweeper.model.trial import Sweep

_MOST_SHOWN: Final = 10
_MOST_COMPARED: Final = 100
"""What has changed for one has usually changed for all, and hundreds may be paused at a rung."""


def check_begun_trials(
    database: Statements, sweep: Sweep, identify: Callable[[Sequence[str]], ConfigHash | None], *, fixed: str
) -> tuple[str, ...]:
    """Compare unfinished trials of a search, and its newest finished one, with what the command makes of them now.

    Args:
        database: the ledger.
        sweep: the search that the command goes on with.
        identify: gives the hash of the config that these overrides make now; None if they make none.
        fixed: what the user calls the values that every trial has.

    Returns:
        What to tell of finished trials.

    Raises:
        UserError: unfinished ones cannot be run; names them and both ways out.
    """
    changed = [
        begun for begun in begun_configs(database, sweep.sweep_id, most=_MOST_COMPARED)
        if identify(begun.overrides) != hash_text(begun.config_text)
    ]  # fmt: skip
    numbers = [str(begun.number) for begun in changed if not begun.final]
    if numbers:
        shown = ", ".join(numbers[:_MOST_SHOWN]) + (", …" if len(numbers) > _MOST_SHOWN else "")
        plural = "s" if len(numbers) > 1 else ""
        raise UserError(
            f"trial{plural} {shown} of sweep {sweep.name!r} began with other values than {fixed} has now, and "
            f"{'are' if plural else 'is'} not finished",
            remedy=f"put {fixed} back as it was until then, or give them up first: sweeper cancel "
            f"{shlex.quote(sweep.name)} {' '.join(numbers)}",
        )
    if changed:
        return (
            f"trial {changed[0].number} began with other values than {fixed} has now; finished trials keep their "
            "results, trials from here on are composed with the new values",
        )
    return ()
