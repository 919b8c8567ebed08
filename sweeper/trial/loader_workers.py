"""What runs in a loader's worker processes: seeding per batch, and surviving signals meant for the whole group."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable
from typing import Any

from sweeper.trial.order import SeededIndex, mixed_seed
from sweeper.trial.rng import numpy_random
from sweeper.trial.tensors import torch_if_loaded


class SeededDataset:
    """The user's map-style dataset, reseeding Python, NumPy and torch before each batch.

    So a batch's random numbers depend on the loop and the batch's number alone: not on the worker that makes it, not on
    how many there are, not on what that worker did before. Everything else is the dataset's own.
    """

    def __init__(self, dataset: Any) -> None:
        object.__setattr__(self, "_dataset", dataset)

    def __getitem__(self, carried: Any) -> Any:
        dataset = self._dataset
        if not isinstance(carried, SeededIndex):
            return dataset[carried]
        reseed(mixed_seed(carried.seed, carried.number))
        return dataset[carried.index]

    def __getitems__(self, carried: Any) -> Any:
        dataset = self._dataset
        indices = carried
        if isinstance(carried, SeededIndex):
            reseed(mixed_seed(carried.seed, carried.number))
            indices = carried.index
        fetch = getattr(dataset, "__getitems__", None)
        return fetch(indices) if fetch else [dataset[index] for index in indices]

    def __len__(self) -> int:
        return len(self._dataset)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._dataset)  # `isinstance` in the user's worker_init_fn sees what it knows

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_dataset"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._dataset, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return SeededDataset, (self._dataset,)


class WorkerStart:
    """A `worker_init_fn`: makes the worker outlive SIGTERM and SIGINT to its group, then calls the user's own.

    Training has to reach its safe point when the group is told to end, and needs its loader's workers until then
    (PREEMPTION: the worker process decides, and kills what is left). A SIGTERM from the training process itself is
    honoured: that is how multiprocessing ends its daemons.
    """

    def __init__(self, user: Callable[[int], Any] | None) -> None:
        self._user = user

    def __call__(self, worker_id: int) -> None:
        """Runs in the worker, after torch has seeded it."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_end_only_for, args=(os.getppid(),), daemon=True, name="sweeper-sigterm").start()
        if self._user is not None:
            self._user(worker_id)


def reseed(seed: int) -> None:
    """Seed this process's Python, NumPy (if imported) and torch CPU generators."""
    random.seed(seed)
    numpy = numpy_random()
    if numpy is not None:
        numpy.seed([seed & 0xFFFFFFFF, seed >> 32])
    torch_if_loaded().default_generator.manual_seed(seed)


def _end_only_for(parent_pid: int) -> None:
    """Take every SIGTERM of this process, which no thread gets by itself, and obey only the parent's."""
    while True:
        received = signal.sigwaitinfo({signal.SIGTERM})
        if received.si_pid == parent_pid:
            os._exit(0)
