"""Whether a search waits so that nothing in it depends on timing, and for how many workers (SAME)."""

from __future__ import annotations

from collections.abc import Callable

from sweeper.errors import UserError


def search_lag(
    asked: bool | None, *, workers: int | None, scheduler: bool, written: Callable[[str], str]
) -> int | None:
    """Give the number of workers that a deterministic search waits for; None: it is not deterministic.

    One worker's search is, unless told otherwise; with more of them it costs waiting, so it has to be asked for.

    Args:
        asked: the setting `deterministic`, None where it is not set.
        workers: how many work on it; None where they are started elsewhere and nobody said how many.
        scheduler: whether trials pause at rungs.
        written: how the user writes a setting, for messages.

    Raises:
        UserError: it is asked for where it cannot be.
    """
    deterministic = workers == 1 if asked is None else asked
    if not deterministic:
        return None
    if workers is None:
        raise UserError(
            f"{written('deterministic')}=true needs the number of workers",
            remedy=f"say how many are started elsewhere: {written('workers')}=N",
        )
    if scheduler and workers != 1:
        raise UserError(
            f"{written('deterministic')}=true and a scheduler allow one worker only, and there are {workers}",
            remedy=f"set {written('workers')}=1, or {written('deterministic')}=false",
        )
    return workers
