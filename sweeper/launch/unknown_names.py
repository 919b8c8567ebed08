"""Names that nothing is called by: refused, since a misspelt setting that is passed over makes another sweep."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from sweeper.errors import UserError


def refuse_unknown(key: str, known: Iterable[str], *, where: str) -> None:
    """Refuse a name that nothing is called by.

    Raises:
        UserError: names it, the nearest known one, and all.
    """
    names = list(known)
    if key in names:
        return
    near = difflib.get_close_matches(key, names, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    raise UserError(f"there is no {key!r} {where}", remedy=f"{meant}known are: {', '.join(names)}")
