"""The directories of a search's trials, each claimed when its config is proposed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

from omegaconf import DictConfig

from sweeper.errors import UserError
from sweeper.hydra.directories import check_lengths, trial_subdir
from sweeper.hydra.jobs import Job
from sweeper.ids import ConfigHash
from sweeper.model.trial import Trial

Existing = Callable[[], Iterable[tuple[Trial, DictConfig]]]
"""Gives a sweep's trials with their configs."""


class ClaimedDirectories:
    """Where the trials of a search write: each below the sweep directory, in a directory of its own (HY-05)."""

    def __init__(self, sweep_dir: Path, existing: Existing) -> None:
        self._sweep_dir = sweep_dir
        self._existing = existing
        self._owners: dict[str, tuple[int, ConfigHash]] | None = None
        self._above: dict[str, tuple[int, ConfigHash]] = {}

    def claim(self, job: Job, number: int) -> None:
        """Give a trial its directory.

        Raises:
            UserError: it would lie outside the sweep directory, be too long, or be shared with another trial.
        """
        subdir = trial_subdir(job.config, number)
        check_lengths(self._sweep_dir, [subdir])
        if subdir == str(number):
            return
        if self._owners is None:
            self._owners = {}
            for trial, config in self._existing():
                self._enter(trial_subdir(config, trial.number), trial.number, trial.config_hash)
        other = self._enter(subdir, number, job.config_hash)
        if other is not None:
            raise UserError(
                f"{job.label} and trial {other} would write into one directory: {subdir!r}",
                remedy="make hydra.sweep.subdir different for each trial, for example with '${hydra.job.num}'",
            )

    def _enter(self, subdir: str, number: int, config_hash: ConfigHash) -> int | None:
        """Note an owner; give the number of another one that is in the way."""
        owners, mine = self._owners if self._owners is not None else {}, (number, config_hash)
        parents = [str(parent) for parent in PurePosixPath(subdir).parents][:-1]
        for owner in (owners.get(subdir), self._above.get(subdir), *(owners.get(parent) for parent in parents)):
            if owner is not None and owner[0] != number and owner[1] != config_hash:
                return owner[0]
        if subdir not in owners or owners[subdir][0] == number:  # an alias, which writes nothing, takes nothing over
            owners[subdir] = mine
        for parent in parents:
            self._above.setdefault(parent, mine)
        return None
