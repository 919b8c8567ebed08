"""The exit status of a search that has returned its results to Hydra."""

from __future__ import annotations

from typing import Any

from hydra.experimental.callback import Callback
from hydra.types import HydraContext


def leave_with(status: int, context: HydraContext) -> None:
    """Have the command end with `status` once Hydra has told every callback that the multirun is over.

    A sweeper that returns its results has no other way to say that some trials failed: raising instead of returning
    would keep them, and the user's own `on_multirun_end`, from happening.
    """
    context.callbacks.callbacks.insert(0, _Leave(status))  # told in reverse order: this one is the last


class _Leave(Callback):
    def __init__(self, status: int) -> None:
        self._status = status

    def on_multirun_end(self, config: Any, **kwargs: Any) -> None:  # Any: as in the base class
        """Leave; Hydra lets `SystemExit` pass, so nothing is printed."""
        raise SystemExit(self._status)
