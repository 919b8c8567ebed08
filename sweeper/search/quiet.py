"""Optuna's warnings and log lines do not reach the user: what matters is said by us, once, as a notice."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_SILENT: Final = logging.CRITICAL + 1


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Python warnings and Optuna's logger for the length of one call into Optuna.

    Both are process-wide while the call lasts (milliseconds) and are put back as they were. Nothing else of the process
    is touched: a user's own Optuna studies log as before. Within another such call there is nothing left to do.
    """
    logger = logging.getLogger("optuna")
    level = logger.level
    if level == _SILENT:
        yield
        return
    logger.setLevel(_SILENT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
