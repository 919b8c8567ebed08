"""How a command answers for what went wrong: one message and a status, without a traceback."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Final, NoReturn

from sweeper.errors import UserError

BAD_INPUT: Final = 2
INTERRUPTED: Final = 75
"""EX_TEMPFAIL: nothing is wrong; the same command goes on."""
FULL_ERROR_VARIABLE: Final = "HYDRA_FULL_ERROR"
"""Hydra's own switch for tracebacks."""


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """Turn bad input into its message on standard error and exit status 2 (CLEAR)."""
    try:
        yield
    except UserError as error:
        if os.environ.get(FULL_ERROR_VARIABLE) == "1":
            raise
        leave(f"error: {error}", BAD_INPUT, cause=error)


def leave(message: str, status: int, *, cause: BaseException | None = None) -> NoReturn:
    """Say something on standard error and leave the process in Hydra's stead.

    Raises:
        SystemExit: always; Hydra lets it pass, so no traceback of ours or Hydra's is printed.
    """
    sys.stdout.flush()
    sys.stderr.write(f"sweeper: {message}\n")
    raise SystemExit(status) from cause
