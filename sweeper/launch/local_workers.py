"""Starting a command's local workers: forked by its warm parent, or as fresh interpreters once that is impossible."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sweeper.engines.local import WorkerHandle
from sweeper.errors import UserError
from sweeper.model.trial import Json
from sweeper.trial.spawning import ForkUnsafe, Spawner, SpawnFailed
from sweeper.wiring import start_workers

log = logging.getLogger("sweeper.launcher")


class WorkerStarter:
    """Starts the worker in a place; called with the place's index by the coordinator."""

    def __init__(
        self, spawner: Spawner | None, fallback: Spawner | None, *, sweep: str, gpus: Sequence[str], verbose: bool
    ) -> None:
        """Remember how to start them.

        Args:
            spawner: the warm parent; None for a command without local workers.
            fallback: takes over, for good, from the first time that forking fails.
            sweep: the sweep's name.
            gpus: devices to hand out, one per worker.
            verbose: whether workers tell of each transition themselves.
        """
        self._spawner = spawner
        self._fallback = fallback
        self._sweep = sweep
        self._gpus = gpus
        self._verbose = verbose

    def __call__(self, index: int) -> WorkerHandle:
        """Start one.

        Raises:
            SpawnFailed: neither way works.
        """
        if self._spawner is None:
            raise UserError("a coordinator without local workers was asked to start one")
        try:
            return start_workers(self._spawner, self._payload)(index)
        except (ForkUnsafe, SpawnFailed) as error:
            if self._fallback is None:
                raise
            log.warning("workers start in fresh interpreters, some seconds each: %s", error)
            self._spawner, self._fallback = self._fallback, None
            return start_workers(self._spawner, self._payload)(index)

    def _payload(self, index: int) -> Json:
        gpu = self._gpus[index % len(self._gpus)] if self._gpus else None
        return {"sweep": self._sweep, "gpu": gpu, "verbose": self._verbose}
