"""Multirun callbacks belong to the command, not to each process that runs its script again."""

from __future__ import annotations

import os

from hydra._internal.callbacks import Callbacks

from sweeper.trial.fresh import COORDINATOR, ROLE_VARIABLE


def silence_multirun_callbacks() -> None:
    """In a worker or child process, keep `on_multirun_start` from firing.

    Hydra fires it before any plugin code of ours; the sweep's own command has fired it already. Job callbacks stay:
    they belong to the trial, wherever it runs.
    """
    if os.environ.get(ROLE_VARIABLE) in (None, COORDINATOR):
        return

    def quiet(*_: object, **__: object) -> None:
        return

    Callbacks.on_multirun_start = quiet  # type: ignore[method-assign]
