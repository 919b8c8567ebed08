"""Optuna's warnings and log lines do not reach the user: what matters is said by us, once, as a notice."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_OPTUNA: Final = "optuna"
_hushed: ContextVar[bool] = ContextVar("hushed", default=False)


class _Hush(logging.Filter):
    """Lets nothing through while the thread that logs is in a call of ours."""

    known = 0
    """How many loggers the process had when Optuna's were last given this filter."""

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter`."""
        return not _hushed.get()

    def spread(self) -> None:
        """Be on each of Optuna's loggers: a filter hears its own logger only, not the ones below.

        Its handlers have it too: modules that are imported during a call bring loggers of their own.
        """
        for handler in logging.getLogger(_OPTUNA).handlers:
            handler.addFilter(self)
        loggers = logging.Logger.manager.loggerDict
        if len(loggers) == self.known:
            return
        self.known = len(loggers)
        for name in list(loggers):
            if name == _OPTUNA or name.startswith(f"{_OPTUNA}."):
                logging.getLogger(name).addFilter(self)


_hush: Final = _Hush()


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Python warnings, and Optuna's log lines of this thread, for the length of one call into Optuna.

    The warnings are silenced process-wide while the call lasts (milliseconds) and then as they were. Levels stay alone:
    changing one empties what every logger of the process remembers, which took a tenth of a quick proposal. Nothing
    else of the process is touched: a user's own Optuna studies log as before.
    """
    if _hushed.get():  # within another such call there is nothing left to do
        yield
        return
    _hush.spread()
    token = _hushed.set(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        _hushed.reset(token)
