"""From a proposal to a trial: parameters become overrides, overrides a config, the config an identity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from hydra.errors import HydraException
from omegaconf import DictConfig

from sweeper.errors import UserError
from sweeper.hydra.claimed_directories import ClaimedDirectories, Existing
from sweeper.hydra.compose import TemplateLoader
from sweeper.hydra.directories import trial_subdir
from sweeper.hydra.first_trial import FirstTrial
from sweeper.hydra.jobs import Job, check_secrets, identify
from sweeper.hydra.received import check_received
from sweeper.hydra.search_arguments import SearchArguments
from sweeper.hydra.space_function import SpaceFunction
from sweeper.ids import ConfigHash
from sweeper.model.space import Choices
from sweeper.model.trial import Json, NewTrial
from sweeper.settings import IdentitySettings, Places

_MOST_TRIED: Final = 200
"""Configs that are composed before the first row: one for each option of each swept group."""


class HydraComposer:
    """Composes jobs of one search; implements `sweeper.coordinator.parts.Composer`."""

    def __init__(
        self,
        loader: TemplateLoader,
        master: DictConfig,
        arguments: SearchArguments,
        *,
        identity: IdentitySettings,
        places: Places,
        existing: Existing,
        function: SpaceFunction | None = None,
    ) -> None:
        """Remember how to compose.

        Args:
            loader: composes.
            master: the multirun config, its sweep directory pinned.
            arguments: what is fixed, and how parameters are written.
            identity: what counts as the same config.
            places: whose credentials no config may spell out.
            existing: the sweep's trials with their configs; asked only where directories do not go by number.
            function: the define-by-run function, whose failures refuse their numbers.
        """
        self._loader = loader
        self._master = master
        self._arguments = arguments
        self._identity = identity
        self._places = places
        self._directories = ClaimedDirectories(Path(str(master.hydra.sweep.dir)), existing)
        self._function = function

    def __call__(self, number: int, params: Mapping[str, Json]) -> NewTrial:
        """Compose; see `Composer`."""
        if self._function is not None and (failure := self._function.failure(number)) is not None:
            raise UserError(failure)
        try:
            job = self._job(number, params)
        except HydraException as error:
            raise UserError(str(error)) from error
        self._directories.claim(job, number)
        return job.new_trial

    def reason(self, number: int, params: Mapping[str, Json]) -> str:
        """Say again why a number was refused; nothing is read or claimed for it."""
        if self._function is not None and (failure := self._function.failure(number)) is not None:
            return failure
        try:
            self._job(number, params)
        except (UserError, HydraException) as error:
            return str(error)
        return "it was refused when it was proposed (a function that failed, or a directory that another trial has)"

    def hash_now(self, overrides: Sequence[str]) -> ConfigHash | None:
        """Give the identity of the config that a job with these overrides has now; None if it cannot be composed."""
        try:
            config = self._loader.compose(self._master, overrides, position=0)
            return identify(self._loader, self._master, config, overrides, self._identity).config_hash
        except (UserError, HydraException):
            return None

    def overrides(self, params: Mapping[str, Json]) -> list[str]:
        """Give the overrides of a job with these parameters."""
        return self._arguments.overrides(params, None if self._function is None else self._function.keys)

    def check(self) -> None:
        """Compose the first config of the space, and one for each option of each swept group (CLEAR, HY-03).

        Raises:
            JobCompositionError: one cannot be composed; Hydra prints it.
            UserError: one has no value somewhere, or may not be stored; or the define-by-run function fails.
        """
        for index, params in enumerate(self._samples()):
            self._job(index, params)

    def _samples(self) -> Iterable[Mapping[str, Json]]:
        first = self._arguments.first()
        yield self._completed(first)
        tried = 1
        for name, dimension in self._arguments.space.items():
            group = name.partition("@")[0]
            if not isinstance(dimension, Choices) or not self._loader.is_group(self._master, group):
                continue
            for option in dimension.values[1:]:
                if tried == _MOST_TRIED:
                    return
                tried += 1
                yield self._completed({**first, name: option})

    def _completed(self, params: Mapping[str, Json]) -> Mapping[str, Json]:
        if self._function is None:
            return params
        trial = FirstTrial(params)
        self._function.suggest(trial)
        return trial.stored

    def _job(self, number: int, params: Mapping[str, Json]) -> Job:
        overrides = tuple(self.overrides(params))
        config = self._loader.compose(self._master, overrides, position=number)
        try:
            new_trial = identify(self._loader, self._master, config, overrides, self._identity)
            job = Job(index=number, overrides=overrides, config=config, new_trial=new_trial)
            check_received(params, new_trial.params)
            trial_subdir(config, number)
        except UserError as error:
            label = f"job #{number} ({' '.join(overrides) or 'no overrides'})"
            raise UserError(f"{label}: {error.message}", remedy=error.remedy) from None
        check_secrets([job], self._places)
        return job
