"""The settings that every command that runs a sweep takes, checked once and turned into what the rest of sweeper takes.

Both faces have them under the same names; a face hands in its values, and how a user of it writes a setting.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from sweeper.errors import UserError
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

Values = Mapping[str, Any]  # Any: each of its own type, which the face has checked
"""All settings of `LauncherSettings` by name, those of a group in a mapping of their own."""


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


def resolve_settings(
    values: Values, *, written: Callable[[str], str], environ: Mapping[str, str] | None = None
) -> LauncherSettings:
    """Check all settings and resolve them.

    Args:
        values: every setting, of the right type or None where that is allowed.
        written: how the user writes a setting (`hydra.launcher.workers`, `workers`), for messages.
        environ: this process's environment by default.

    Raises:
        UserError: a value that cannot be; the message names the setting.
    """
    env = os.environ if environ is None else environ
    check = _Checks(values, written)
    name = None if values["name"] is None else check_name(str(values["name"]), written("name"))
    if values["engine"] not in ENGINES:
        raise UserError(
            f"{written('engine')}={values['engine']} is not an engine that this version has",
            remedy=f"choose one of: {', '.join(ENGINES)}",
        )
    lease = _lease(check, written)
    gpus = tuple(visible_gpus(env))
    workers = int(check.at_least("workers", 1)) if values["workers"] is not None else max(1, len(gpus))
    threads = int(check.at_least("threads", 1)) if values["threads"] is not None else threads_for_trial(workers)
    signals = tuple(_signal(str(name), written("signals")) for name in values["signals"])
    identity, fail_fast = values["identity"], bool(values["fail_fast"])
    return LauncherSettings(
        name=name,
        workers=workers,
        gpus=gpus,
        seed=int(values["seed"]),
        places=_places(values, env),
        identity=IdentitySettings(
            ignore=tuple(str(key) for key in identity["ignore"]),
            version=None if identity["version"] is None else str(identity["version"]),
            unstable_resolvers=tuple(str(key) for key in identity["unstable_resolvers"]),
            allow_missing=bool(identity["allow_missing"]),
        ),
        retry=RetryPolicy(
            max_crashes=check.count("retry.max_crashes"), max_no_progress=check.count("retry.max_no_progress")
        ),
        worker=WorkerSettings(
            lease=lease,
            checkpoint=CheckpointSettings(
                every_s=check.above("checkpoint.every_s", 0.0), keep=check.count("checkpoint.keep")
            ),
            threads=threads,
            fail_fast=fail_fast,
            grace_s=check.at_least("grace_s", 0.0),
            signals=signals,
            hang_s=None if values["hang_s"] is None else check.at_least("hang_s", 1.0),
        ),
        coordinator=CoordinatorSettings(workers=workers, fail_fast=fail_fast, lease=lease, signals=signals),
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


def _places(values: Values, environ: Mapping[str, str]) -> Places:
    places = resolve_places(database=values["database"], store=values["store"], environ=environ)
    return dataclasses.replace(places, store_url=absolute_store(places.store_url))


def _lease(check: _Checks, written: Callable[[str], str]) -> LeaseSettings:
    lease = LeaseSettings(
        lease_s=check.at_least("lease_s", 1.0),
        heartbeat_s=check.at_least("heartbeat_s", 0.1),
        blind_s=check.at_least("blind_s", 0.0),
    )
    if lease.lease_s < 3 * lease.heartbeat_s:
        raise UserError(
            f"{written('lease_s')}={lease.lease_s:g} is too short for heartbeat_s={lease.heartbeat_s:g}: one late "
            "heartbeat would lose the trial",
            remedy=f"make it at least {3 * lease.heartbeat_s:g}, or the heartbeat shorter",
        )
    return lease


def _signal(name: str, setting: str) -> str:
    full = f"SIG{name.upper().removeprefix('SIG')}"
    if full not in SIGNALS:
        raise UserError(
            f"{setting}={name} is not a signal that can announce an eviction",
            remedy=f"choose from: {', '.join(known.removeprefix('SIG') for known in SIGNALS)}",
        )
    return full


class _Checks:
    """Range checks; a setting of a group is named with a dot."""

    def __init__(self, values: Values, written: Callable[[str], str]) -> None:
        self._values = values
        self._written = written

    def at_least(self, setting: str, least: float) -> float:
        value = self._value(setting)
        if not value >= least:
            raise UserError(f"{self._written(setting)}={value} must be at least {least:g}")
        return float(value)

    def above(self, setting: str, bound: float) -> float:
        value = float(self._value(setting))
        if not value > bound:
            raise UserError(f"{self._written(setting)}={value:g} must be above {bound:g} (seconds)")
        return value

    def count(self, setting: str) -> int:
        return int(self.at_least(setting, 1))

    def _value(self, setting: str) -> Any:  # Any: see Values
        group, _, name = setting.rpartition(".")
        return self._values[group][name] if group else self._values[name]
