"""Opening the ledger for a command, and finding the sweep and trials that its arguments name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sweeper.errors import UserError
from sweeper.ledger.database import Database, open_database
from sweeper.ledger.embedded import ensure_server
from sweeper.ledger.reads import trials
from sweeper.model.trial import Sweep, Trial
from sweeper.settings import Places, resolve_places

_SHORTEST_PREFIX = 4


@contextmanager
def open_ledger(places: Places | None = None) -> Iterator[Database]:
    """Give the ledger that this environment means; the embedded server is started when it has ever been used.

    Raises:
        UserError: nothing there yet, unreachable, wrong password, older schema.
    """
    database = open_database(ledger_url(places or resolve_places()))
    try:
        yield database
    finally:
        database.close()


def ledger_url(places: Places) -> str:
    """Give the database's URL; a command that only looks does not create an embedded one.

    Raises:
        UserError: no database was named and none was ever started under `SWEEPER_HOME`.
    """
    if places.database_url is not None:
        return places.database_url
    if not (places.home / "postgres").exists():
        raise UserError(
            f"there is no ledger yet: no sweep was ever run with SWEEPER_HOME={places.home}",
            remedy="run a sweep (python train.py -m hydra/launcher=sweeper) or set SWEEPER_DATABASE_URL, SWEEPER_HOME",
        )
    return ensure_server(places.home)


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
