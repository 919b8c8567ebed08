"""From a launch call's overrides to trials: every job composed, checked and identified before the first row exists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from sweeper.errors import UserError
from sweeper.hydra.compose import TemplateLoader
from sweeper.hydra.directories import check_lengths, check_unshared, trial_subdir
from sweeper.hydra.identity import identity_values
from sweeper.ids import ConfigHash
from sweeper.launch.settings import carries_secret
from sweeper.model.config_hash import canonical_document, canonical_value, hash_text
from sweeper.model.trial import Json, NewTrial, Trial
from sweeper.settings import IdentitySettings, Places

_PROVISIONAL = 1_000_000
"""Numbers that no trial has yet stand in for the real ones while directories are checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One requested job, composed and identified."""

    index: int
    overrides: tuple[str, ...]
    config: DictConfig
    new_trial: NewTrial

    @property
    def config_hash(self) -> ConfigHash:
        """The identity of its config."""
        return self.new_trial.config_hash

    @property
    def label(self) -> str:
        """How messages name it."""
        return f"job #{self.index} ({' '.join(self.overrides) or 'no overrides'})"


def compose_jobs(
    loader: TemplateLoader,
    master: DictConfig,
    job_overrides: Sequence[Sequence[str]],
    first_index: int,
    identity: IdentitySettings,
) -> list[Job]:
    """Compose, check and hash every job of a launch call.

    Raises:
        JobCompositionError: a job cannot be composed.
        UserError: a job has a missing value, an object, or text that cannot be stored; names job and key.
    """
    jobs = []
    for index, overrides in enumerate(job_overrides, start=first_index):
        config = loader.compose(master, overrides, position=index)
        try:
            new_trial = identify(loader, master, config, overrides, identity)
        except UserError as error:
            label = f"job #{index} ({' '.join(overrides) or 'no overrides'})"
            raise UserError(f"{label}: {error.message}", remedy=error.remedy) from None
        jobs.append(Job(index=index, overrides=tuple(overrides), config=config, new_trial=new_trial))
    return jobs


def identify(
    loader: TemplateLoader,
    master: DictConfig,
    config: DictConfig,
    overrides: Sequence[str],
    identity: IdentitySettings,
) -> NewTrial:
    """Give the trial that a composed job asks for: hash, canonical text, and its overrides' values as they count.

    Raises:
        UserError: as `config_hash`.
    """
    values = identity_values(config, identity)
    text = canonical_document(values, version=identity.version)
    return NewTrial(
        config_hash=hash_text(text),
        config_text=text,
        overrides=tuple(overrides),
        params=_params(loader, master, overrides, values),
    )


def check_secrets(jobs: Sequence[Job], places: Places) -> None:
    """Refuse configs that spell out the ledger's or store's URL with its password (SAFE).

    Raises:
        UserError: names the job, never the URL.
    """
    for url in (places.database_url, places.store_url):
        if url is None or not carries_secret(url):
            continue
        for job in jobs:
            if url in job.new_trial.config_text:
                raise UserError(
                    f"{job.label}: its config holds the URL of the database or store with its password",
                    remedy="refer to it as ${oc.env:NAME}, which is never stored",
                )


def distinct(jobs: Sequence[Job]) -> list[Job]:
    """Give the first job of each config, in order."""
    first: dict[ConfigHash, Job] = {}
    for job in jobs:
        first.setdefault(job.config_hash, job)
    return list(first.values())


def check_directories(
    jobs: Sequence[Job], sweep_dir: Path, existing: Callable[[], Iterable[tuple[Trial, DictConfig]]]
) -> None:
    """Check where the jobs' trials would write, with numbers that no trial has yet.

    Args:
        jobs: one job for each config.
        sweep_dir: the pinned sweep directory.
        existing: the sweep's trials with their configs; asked only where a directory does not depend on the number.

    Raises:
        UserError: outside the sweep directory, too long, or shared by two trials.
    """
    directories: list[tuple[str, str, str]] = []
    numbered = True
    for job in jobs:
        try:
            subdir = trial_subdir(job.config, _PROVISIONAL + job.index)
            numbered = numbered and subdir != trial_subdir(job.config, 2 * _PROVISIONAL + job.index)
        except UserError as error:
            raise UserError(f"{job.label}: {error.message}", remedy=error.remedy) from None
        directories.append((job.config_hash, job.label, subdir))
    if not numbered:
        known = {job.config_hash for job in jobs}
        for trial, config in existing():
            if trial.config_hash not in known:
                directories.append((trial.config_hash, f"trial {trial.number}", trial_subdir(config, trial.number)))
    check_lengths(sweep_dir, (subdir for _, _, subdir in directories))
    check_unshared(directories)


def _params(
    loader: TemplateLoader, master: DictConfig, overrides: Sequence[str], values: dict[str, Any]
) -> dict[str, Json]:
    """What the overrides chose: the composed value of each plain one, the choice of each group."""
    params: dict[str, Json] = {}
    for line in overrides:
        override = loader.parse(line)
        if override.is_delete():
            continue
        found: Any = values  # Any: walks down the config's plain values
        for part in override.key_or_group.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        choice, name = override.value(), override.get_key_element().lstrip("+")
        if isinstance(choice, str) and not loader.is_value(master, override) and isinstance(found, dict | None):
            params[name] = choice
        else:
            params[name] = canonical_value(found, override.key_or_group)
    return params
