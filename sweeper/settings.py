"""Settings from Hydra, environment or command line, resolved once: explicit beats environment beats default."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

DEFAULT_SIGNALS: Final = ("SIGTERM", "SIGINT")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How a worker works. Times are in seconds."""

    lease: LeaseSettings = field(default_factory=LeaseSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    pool: str = "local"
    threads: int = 1
    """Compute threads of a trial whose first attempt runs here."""
    gpu: str | None = None
    grace_s: float = 30.0
    """Time a notice without a deadline is taken to leave."""
    idle_grace_s: float = 5.0
    """Time a child that cannot save is given to finish after a notice: waiting longer saves nothing."""
    exit_grace_s: float = 10.0
    """Time a child has to leave after its last message."""
    signals: tuple[str, ...] = DEFAULT_SIGNALS
    """Names of the signals that announce an eviction; some schedulers send SIGUSR1, SIGUSR2 or SIGHUP."""
    fail_fast: bool = False
    """Whether the worker leaves after a trial that failed, instead of taking one more before it is told."""
    hang_s: float | None = None
    """A child without a safe point for this long is ended as crashed; None: never."""
    poll_s: float = 1.0
    """Longest pause between two looks for a trial."""
    first_poll_s: float = 0.02
    """Shortest pause between them, right after a trial."""
    outcome_patience_s: float = 60.0
    """How long a finished trial waits for a store that is away before its result is committed without the object."""
    probe_max_s: float = 60.0
    """Longest pause between two probes of a store that is away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings:
    """How a coordinator works. Times are in seconds."""

    workers: int = 1
    """Local workers to keep going; 0 when workers are started elsewhere."""
    fail_fast: bool = False
    """Whether the first failed trial stops the run; the rest stays pending."""
    lease: LeaseSettings = field(default_factory=LeaseSettings)
    coordinator_lease_s: float = 30.0
    turn_s: float = 0.5
    """Longest pause between two turns."""
    first_turn_s: float = 0.02
    """Shortest pause between them, when something has happened."""
    tend_every_s: float = 1.0
    """Between two looks for dead holders and expired leases."""
    highwater_every_s: float = 60.0
    collect_every_s: float = 300.0
    collect_after_s: float = 3600.0
    """Objects are deleted this long after their rows were retired."""
    asker_silent_s: float = 600.0
    """A command that was not heard of for this long is dead, and what it asked for is no longer wanted."""
    drain_grace_s: float = 45.0
    """Longest wait for local workers to leave after they were told to."""
    signals: tuple[str, ...] = DEFAULT_SIGNALS
    """Names of the signals that announce an eviction; the same as the workers'."""
