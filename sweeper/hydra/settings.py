"""The `hydra.launcher` node, checked once and turned into the settings that the rest of sweeper takes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from omegaconf import DictConfig, OmegaConf

from sweeper.errors import UserError
from sweeper.hydra.compose import override_lines
from sweeper.model.retry import RetryPolicy
from sweeper.settings import (
    CheckpointSettings,
    CoordinatorSettings,
    IdentitySettings,
    LeaseSettings,
    Places,
    WorkerSettings,
    resolve_places,
)
from sweeper.trial.host import threads_for_trial, visible_gpus

ENGINES: Final = ("local",)
MAX_NAME_CHARACTERS: Final = 200
SIGNALS: Final = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")
_SECRET_PARAMETERS: Final = frozenset({"password", "passwd", "pwd", "secret", "key", "token", "sig", "signature"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherSettings:
    """Everything a launch needs to know, resolved: explicit setting, else environment, else default."""

    name: str | None
    """None: made from job, script and sweep directory (`sweeper.hydra.naming`)."""
    workers: int
    gpus: tuple[str, ...]
    """Devices to hand out, one per worker; empty when there are none."""
    seed: int
    places: Places
    identity: IdentitySettings
    retry: RetryPolicy
    worker: WorkerSettings
    coordinator: CoordinatorSettings


def read_settings(config: DictConfig, environ: Mapping[str, str] | None = None) -> LauncherSettings:
    """Check `hydra.launcher` of a composed multirun config and resolve it.

    Raises:
        UserError: a value that cannot be; the message names the setting.
    """
    env = os.environ if environ is None else environ
    node = config.hydra.launcher
    refuse_literal_secrets(config)
    values: dict[str, Any] = {str(key): node[key] for key in node}  # Any: the node's declared types
    check = _Checks(values)
    name = None if values["name"] is None else check_name(str(values["name"]), "hydra.launcher.name")
    if values["engine"] not in ENGINES:
        raise UserError(
            f"hydra.launcher.engine={values['engine']} is not an engine that this version has",
            remedy=f"choose one of: {', '.join(ENGINES)}",
        )
    lease = LeaseSettings(
        lease_s=check.at_least("lease_s", 1.0),
        heartbeat_s=check.at_least("heartbeat_s", 0.1),
        blind_s=check.at_least("blind_s", 0.0),
    )
    if lease.lease_s < 3 * lease.heartbeat_s:
        raise UserError(
            f"hydra.launcher.lease_s={lease.lease_s:g} is too short for heartbeat_s={lease.heartbeat_s:g}: one late "
            "heartbeat would lose the trial",
            remedy=f"make it at least {3 * lease.heartbeat_s:g}, or the heartbeat shorter",
        )
    gpus = tuple(visible_gpus(env))
    workers = int(check.at_least("workers", 1)) if values["workers"] is not None else max(1, len(gpus))
    threads = int(check.at_least("threads", 1)) if values["threads"] is not None else threads_for_trial(workers)
    checkpoint = _checkpoint(node.checkpoint)
    signals = tuple(_signal(str(name)) for name in node.signals)
    return LauncherSettings(
        name=name,
        workers=workers,
        gpus=gpus,
        seed=int(values["seed"]),
        places=_places(values, env),
        identity=IdentitySettings(
            ignore=tuple(str(key) for key in node.identity.ignore),
            version=None if node.identity.version is None else str(node.identity.version),
            unstable_resolvers=tuple(str(key) for key in node.identity.unstable_resolvers),
            allow_missing=bool(node.identity.allow_missing),
        ),
        retry=RetryPolicy(
            max_crashes=_count(node.retry, "retry.max_crashes"),
            max_no_progress=_count(node.retry, "retry.max_no_progress"),
        ),
        worker=WorkerSettings(
            lease=lease,
            checkpoint=checkpoint,
            threads=threads,
            fail_fast=bool(values["fail_fast"]),
            grace_s=check.at_least("grace_s", 0.0),
            signals=signals,
            hang_s=None if values["hang_s"] is None else check.at_least("hang_s", 1.0),
        ),
        coordinator=CoordinatorSettings(
            workers=workers, fail_fast=bool(values["fail_fast"]), lease=lease, signals=signals
        ),
    )


def check_name(name: str, setting: str) -> str:
    """Give the sweep's name back if it can be one: 1 to 200 characters, none of them a control character.

    Raises:
        UserError: it cannot.
    """
    remedy = f"a sweep's name has 1 to {MAX_NAME_CHARACTERS} characters and no control characters"
    if not name.strip():
        raise UserError(f"{setting} is empty", remedy=remedy)
    if len(name) > MAX_NAME_CHARACTERS:
        raise UserError(f"{setting} is too long: {len(name)} characters ({name[:40]!r}…)", remedy=remedy)
    if not name.isprintable():
        raise UserError(f"{setting}={name!r} holds a character that cannot be shown", remedy=remedy)
    return name


def refuse_literal_secrets(config: DictConfig) -> None:
    """Refuse a database or store URL that carries a password in plain sight.

    Hydra writes overrides and configs verbatim into its files, so a password in them would be on disk (SAFE). An
    interpolation is written as an interpolation, and the environment is not written at all.

    Raises:
        UserError: names the setting, never the password.
    """
    for setting, variable in (("database", "SWEEPER_DATABASE_URL"), ("store", "SWEEPER_STORE_URL")):
        node = config.hydra.launcher
        if OmegaConf.is_interpolation(node, setting) or node[setting] is None:
            continue
        if carries_secret(str(node[setting])):
            raise UserError(
                f"hydra.launcher.{setting} holds a URL with a password, which Hydra would write into its files",
                remedy=f"set {variable} in the environment instead, or write hydra.launcher.{setting}="
                f"'${{oc.env:{variable}}}'",
            )


def check_overrides(config: DictConfig) -> None:
    """Refuse arguments that no file, database or child could be given, before Hydra writes them anywhere.

    Raises:
        UserError: names the parameter.
    """
    for text in (*override_lines(config, "task"), *override_lines(config, "hydra")):
        key = text.partition("=")[0]
        shown = "" if key.startswith("hydra.") else f": {text!r}"
        if "\x00" in text:
            raise UserError(f"the parameter {key!r} holds a NUL character")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UserError(
                f"the parameter {key!r} is not valid UTF-8{shown}",
                remedy="check the terminal's or script's encoding",
            ) from None


def carries_secret(url: str) -> bool:
    """Whether a URL holds a password, in its address or its query."""
    try:
        parts = urlsplit(url.strip())
        secrets = {name.lower() for name, value in parse_qsl(parts.query) if value}
    except ValueError:
        return "@" in url  # not even a URL: be careful
    has_password = ":" in parts.netloc.rpartition("@")[0]
    return has_password or bool(secrets & _SECRET_PARAMETERS)


def absolute_store(url: str) -> str:
    """Give a store URL that means the same from every working directory; a bare path becomes a `file://` URL."""
    return url if "://" in url else Path(url).expanduser().absolute().as_uri()


def _places(values: Mapping[str, Any], environ: Mapping[str, str]) -> Places:  # Any: the node's declared types
    places = resolve_places(database=values["database"], store=values["store"], environ=environ)
    return dataclasses.replace(places, store_url=absolute_store(places.store_url))


def _checkpoint(node: DictConfig) -> CheckpointSettings:
    every_s = float(node.every_s)
    if not every_s > 0:
        raise UserError(f"hydra.launcher.checkpoint.every_s={every_s:g} must be above 0 (seconds)")
    return CheckpointSettings(every_s=every_s, keep=_count(node, "checkpoint.keep"))


def _signal(name: str) -> str:
    full = f"SIG{name.upper().removeprefix('SIG')}"
    if full not in SIGNALS:
        raise UserError(
            f"hydra.launcher.signals={name} is not a signal that can announce an eviction",
            remedy=f"choose from: {', '.join(known.removeprefix('SIG') for known in SIGNALS)}",
        )
    return full


def _count(node: DictConfig, setting: str) -> int:
    value = int(node[setting.rpartition(".")[2]])
    if value < 1:
        raise UserError(f"hydra.launcher.{setting}={value} must be at least 1")
    return value


class _Checks:
    """Range checks on the node's own values."""

    def __init__(self, values: Mapping[str, Any]) -> None:  # Any: the node's declared types
        self._values = values

    def at_least(self, setting: str, least: float) -> float:
        value = self._values[setting]
        if not value >= least:
            raise UserError(f"hydra.launcher.{setting}={value} must be at least {least:g}")
        return float(value)
