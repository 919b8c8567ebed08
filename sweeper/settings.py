"""Settings from Hydra, environment or command line, resolved once: explicit beats environment beats default."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """When to checkpoint and how many to keep."""

    every_s: float = 300.0
    keep: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where the ledger, the store and our own local files are."""

    home: Path
    """Embedded Postgres, local store, locks."""
    database_url: str | None
    """None: the embedded server under `home`."""
    store_url: str
    """Any fsspec URL; `file://` below `home` by default."""


def resolve_places(
    *, database: str | None = None, store: str | None = None, environ: Mapping[str, str] | None = None
) -> Places:
    """Combine explicit settings with `SWEEPER_DATABASE_URL`, `SWEEPER_STORE_URL`, `SWEEPER_HOME` and the defaults.

    Trailing white space (a newline from a secret file) is stripped. Nothing is created or contacted.
    """
    env = os.environ if environ is None else environ
    home = Path(env.get("SWEEPER_HOME", "").strip() or "~/.sweeper").expanduser().absolute()
    database_url = (database or env.get("SWEEPER_DATABASE_URL", "")).strip() or None
    store_url = (store or env.get("SWEEPER_STORE_URL", "")).strip() or (home / "store").as_uri()
    return Places(home=home, database_url=database_url, store_url=store_url)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """How long a lease lasts and how often it is renewed, in seconds."""

    lease_s: float = 60.0
    heartbeat_s: float = 15.0
    blind_s: float = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentitySettings:
    """What counts as the same config."""

    ignore: tuple[str, ...] = ()
    version: str | None = None
    unstable_resolvers: tuple[str, ...] = field(default_factory=tuple)
    allow_missing: bool = False
