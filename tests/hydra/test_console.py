"""Log lines and the live display share a terminal."""

from __future__ import annotations

import io
import logging
import os
import pty
from collections.abc import Iterator

import pytest

from sweeper.cli.progress import ABOVE_DISPLAY
from sweeper.launch.console import log_above_display


@pytest.fixture
def root_handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[logging.Handler]]:
    handlers: list[logging.Handler] = []
    monkeypatch.setattr(logging.getLogger(), "handlers", handlers)
    yield handlers
    for handler in handlers:
        handler.close()


def test_lines_on_a_terminal_clear_the_display_and_lines_elsewhere_are_untouched(
    root_handlers: list[logging.Handler],
) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen, os.fdopen(theirs, "w", encoding="utf-8") as terminal:
        elsewhere = io.StringIO()
        on_terminal = logging.StreamHandler(terminal)
        root_handlers += [on_terminal, logging.StreamHandler(elsewhere)]
        for handler in root_handlers:
            handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))
        log_above_display()
        log_above_display()
        logging.getLogger("sweeper.worker").warning("upload failed")
        assert os.read(screen.fileno(), 100).decode() == f"{ABOVE_DISPLAY}[sweeper.worker] upload failed\r\n"
        assert elsewhere.getvalue() == "[sweeper.worker] upload failed\n"
        on_terminal.setStream(elsewhere)  # type: ignore[arg-type]
        logging.getLogger("sweeper.worker").warning("again")
        assert ABOVE_DISPLAY not in elsewhere.getvalue(), "a trial's output is a file"
