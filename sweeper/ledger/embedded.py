"""The embedded default: a private Postgres under `SWEEPER_HOME`, shared by all processes of this machine.

Whoever comes first starts it, a keeper process (`keeper.py`) watches over it, and it stops by itself some time after
its last user has gone. Users are counted by the locks they hold, never by pid.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg

from sweeper.clock import SystemClock
from sweeper.errors import UserError
from sweeper.ledger import server_start
from sweeper.ledger.file_locks import is_locked, open_lock, try_lock
from sweeper.ledger.server_place import (
    SET_URL,
    ServerPlace,
    refuse_other_machine,
    this_machine,
)

IDLE_S = 600.0
"""Default seconds without users after which the server stops."""
START_TRIES = 3
POLL_S = 0.02

_clock = SystemClock()
_attached: dict[Path, int] = {}
"""Locks of this process on `users.lock`, held for its life: closing one would say that we have gone."""


def _forget_attachments() -> None:
    """A forked child is no user until it attaches itself; keeping the descriptor would outlive the parent."""
    for descriptor in _attached.values():
        os.close(descriptor)
    _attached.clear()


os.register_at_fork(after_in_child=_forget_attachments)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """What can be told about an embedded server without touching it."""

    running: bool
    folder: Path
    log: Path
    host: str | None
    """The machine that owns the directory; None before the first start."""
    port: int | None
    in_use: bool
    """Whether any process is attached."""


def ensure_server(
    home: Path, *, idle_s: float = IDLE_S, wait_s: float = 60.0, options: Mapping[str, str] | None = None
) -> str:
    """Attach to the server under `home/postgres`, starting it if needed; returns its URL, which holds the password.

    This process counts as a user until it ends (a child that it forks does not, and calls this again). `idle_s` and
    `options` (server settings) count for the process that starts the server. `wait_s` bounds all waiting: for a stop
    under way, for another starter, for crash recovery.

    Raises:
        UserError: no wheel for this platform, network file system, another machine's directory, or no start.
    """
    place = ServerPlace(folder=Path(home).absolute() / "postgres")
    place.prepare()
    record = place.read_record()
    if record is not None:
        refuse_other_machine(place, record, this_machine())
    deadline_s = _clock.monotonic_s() + wait_s
    newly = _attach(place, deadline_s)
    try:
        return _running_url(place) or _start(place, idle_s=idle_s, options=options or {}, deadline_s=deadline_s)
    except BaseException:
        if newly:
            release_server(home)
        raise


def release_server(home: Path) -> None:
    """Stop being a user of the server before this process ends; its URL may die `idle_s` later."""
    descriptor = _attached.pop(Path(home).absolute() / "postgres", None)
    if descriptor is not None:
        os.close(descriptor)


def stop_server(home: Path, *, wait_s: float = 60.0) -> bool:
    """Stop the server now, whoever uses it; True if one was running. UserError if it does not stop in `wait_s`."""
    place = ServerPlace(folder=Path(home).absolute() / "postgres")
    record = place.read_record()
    if record is None:
        return False
    refuse_other_machine(place, record, this_machine())
    deadline_s = _clock.monotonic_s() + wait_s
    with _start_lock(place, deadline_s):
        if not _anything_runs(place):
            return False
        while _anything_runs(place):
            if not is_locked(place.lock_file("keeper")):
                server_start.launch_keeper(
                    place
                )  # a server whose keeper was killed: a new one adopts it and can stop it
            with suppress(ProcessLookupError):  # killed just now: the next turn sees it
                os.kill(_keeper_pid(place, deadline_s), signal.SIGTERM)
            what = f"the database in {place.folder} to stop"
            _until(lambda: not is_locked(place.lock_file("keeper")), deadline_s, what)
    return True


def _anything_runs(place: ServerPlace) -> bool:
    return is_locked(place.lock_file("server")) or is_locked(place.lock_file("keeper"))


def server_status(home: Path) -> ServerStatus:
    """What is known of the server under `home/postgres`; starts and changes nothing."""
    place = ServerPlace(folder=Path(home).absolute() / "postgres")
    record = place.read_record()
    return ServerStatus(
        running=is_locked(place.lock_file("server")),
        folder=place.folder,
        log=place.log,
        host=record.host if record else None,
        port=record.port if record else None,
        in_use=is_locked(place.lock_file("users"), by_anyone=True),
    )


def _attach(place: ServerPlace, deadline_s: float) -> bool:
    """Hold `users.lock` shared; waits while a stop is under way. False if this process already does."""
    held = _attached.get(place.folder)
    if held is not None and os.fstat(held).st_nlink:
        return False
    if held is not None:  # the folder was deleted and made anew: that lock is nobody's
        os.close(_attached.pop(place.folder))
    descriptor = open_lock(place.lock_file("users"))
    try:
        _until(lambda: try_lock(descriptor, shared=True), deadline_s, f"the database in {place.folder} to stop")
    except BaseException:
        os.close(descriptor)
        raise
    _attached[place.folder] = descriptor
    return True


def _running_url(place: ServerPlace) -> str | None:
    """URL of a server that answers and has a keeper, else None."""
    record = place.read_record()
    if record is None or not is_locked(place.lock_file("keeper")):
        return None
    url = place.url(record)
    return url if _answers(url) else None


def _answers(url: str) -> bool:
    """Liveness is a connection that was let in, nothing less (sockets and pid files outlive a killed server)."""
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


def _start(place: ServerPlace, *, idle_s: float, options: Mapping[str, str], deadline_s: float) -> str:
    with _start_lock(place, deadline_s):
        for _ in range(START_TRIES):
            if (url := _running_url(place)) is not None:
                return url
            if not is_locked(place.lock_file("keeper")):
                if not is_locked(place.lock_file("server")):
                    place.write_record(server_start.plan_start(place, idle_s, options))
                server_start.launch_keeper(place)
            _until(
                lambda: _running_url(place) is not None or not is_locked(place.lock_file("keeper")),
                deadline_s,
                f"the database in {place.folder} to answer (see {place.log})",
            )
        if (url := _running_url(place)) is not None:
            return url
    lines = place.log.read_text(errors="replace").splitlines() if place.log.exists() else []
    raise UserError(
        f"the database server in {place.folder} does not start: {' | '.join(lines[-3:])}",
        remedy=f"See {place.log}, or: {SET_URL}.",
    )


def _keeper_pid(place: ServerPlace, deadline_s: float) -> int:
    """Pid of the keeper, which holds its lock; written right after it left its starter."""
    path = place.lock_file("keeper")
    _until(lambda: path.read_text().strip().isdigit(), deadline_s, "the keeper of the database")
    return int(path.read_text())


@contextmanager
def _start_lock(place: ServerPlace, deadline_s: float) -> Iterator[None]:
    descriptor = open_lock(place.lock_file("start"))
    try:
        _until(lambda: try_lock(descriptor, shared=False), deadline_s, f"another start in {place.folder}")
        yield
    finally:
        os.close(descriptor)


def _until(done: Callable[[], bool], deadline_s: float, what: str) -> None:
    waiting = threading.Event()
    while not done():
        if _clock.monotonic_s() > deadline_s:
            raise UserError(f"waited in vain for {what}", remedy=f"Try again, or: {SET_URL}.")
        waiting.wait(POLL_S)
