"""Log lines on a terminal that also has the live display: each clears what the display drew, and is not drawn over."""

from __future__ import annotations

import logging
from typing import TextIO

from sweeper.cli.progress import ABOVE_DISPLAY


def log_above_display() -> None:
    """Let the handlers that write to a terminal, as they are now, begin each line above the live display.

    For every process that shares the terminal with a command's display: the command and its local workers. Handlers
    that write elsewhere, also later on (a child's output goes to a file), write what they always did.
    """
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and not isinstance(handler.formatter, _AboveDisplay):
            handler.setFormatter(_AboveDisplay(handler))


class _AboveDisplay(logging.Formatter):
    def __init__(self, handler: logging.StreamHandler[TextIO]) -> None:
        super().__init__()
        self._handler = handler
        self._inner = handler.formatter or logging.Formatter()

    def format(self, record: logging.LogRecord) -> str:
        text = self._inner.format(record)
        is_terminal = getattr(self._handler.stream, "isatty", lambda: False)()
        return ABOVE_DISPLAY + text if is_terminal else text
