"""The keeper of an embedded server: starts it, starts it again if it is killed, stops it when nobody uses it.

Run as a script by a fresh interpreter (`python -I -S keeper.py FOLDER`), standard library only, so that it owns
nothing of the process that started it and survives that process. It leaves its starter's session at once. State is in
locks (`server_place.py`): it holds `keeper.lock`; the postmaster inherits `server.lock`, so a server left by a killed
keeper is recognised and adopted.

Exit status of the first process: 0 the keeper runs, 3 another keeper runs.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

TICK_S = 0.25
STOP_TICK_S = 0.02
FAST_STOP_S = 20.0
FAILED_STARTS = 5
"""Starts in a row that never became ready, after the server had once been ready; then the keeper gives up."""
LOCK_TRIES = 25
LOG_BYTES = 8 << 20


def locked(descriptor: int, mode: int) -> bool:
    """Try the lock once."""
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def pause(seconds: float) -> None:
    """Wait; a signal ends the wait early only through its handler's flag at the next tick."""
    select.select([], [], [], seconds)


class Keeper:
    """One embedded server under one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record: dict[str, Any] = json.loads((folder / "server.json").read_text())
        self.users = os.open(folder / "users.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.server = os.open(folder / "server.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.child: subprocess.Popen[bytes] | None = None
        self.was_ready = False
        self.failed_starts = 0
        self.stop_asked = False

    def run(self) -> None:
        """Until the server was stopped, or cannot be started."""
        idle_s = 0.0
        while not self.stop_asked:
            if not self.keep_running():
                return
            used = not locked(self.users, fcntl.LOCK_EX)
            if not used and idle_s >= self.record["idle_s"]:
                break  # still holding the users' lock: who comes now waits until the stop is done
            if not used:
                fcntl.flock(self.users, fcntl.LOCK_UN)
            tick_s = min(TICK_S, max(self.record["idle_s"] / 4, STOP_TICK_S))
            idle_s = 0.0 if used else idle_s + tick_s
            pause(tick_s)
        self.stop()

    def keep_running(self) -> bool:
        """Start the server if it is not running; False when it is time to give up."""
        if self.child is not None and self.child.poll() is not None:
            self.failed_starts = 0 if self.was_ready_now() else self.failed_starts + 1
            self.child = None
        if not self.take_server_lock():
            self.was_ready = self.was_ready_now() or self.was_ready
            return True
        if self.failed_starts > (FAILED_STARTS if self.was_ready else 0):
            return False
        self.forget_dead_server()
        self.start()
        return True

    def take_server_lock(self) -> bool:
        """True if no process of the server is left, the lock then being ours to hand on."""
        return locked(self.server, fcntl.LOCK_EX)

    def start(self) -> None:
        """Start the postmaster in its own session, holding `server.lock` for its whole family's life."""
        log = self.folder / "server.log"
        size = log.stat().st_size if log.exists() else 0
        user, group = self.record["run_as"] or (None, None)
        with log.open("wb" if size > LOG_BYTES else "ab") as output:
            self.child = subprocess.Popen(
                self.record["command"],
                cwd=self.record["data_dir"],
                user=user,
                group=group,
                extra_groups=[] if user is not None else None,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=[self.server],
                env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            )
        # The postmaster shares this open file, and with it the lock; a fresh one here lets us see when it has gone.
        os.close(self.server)
        self.server = os.open(self.folder / "server.lock", os.O_RDWR | os.O_CLOEXEC)

    def stop(self) -> None:
        """Fast shutdown, immediate after `FAST_STOP_S`; returns when no process of the server is left."""
        waited_s, how = 0.0, signal.SIGINT
        while not self.take_server_lock():
            if waited_s >= FAST_STOP_S:
                how = signal.SIGQUIT
            if round(waited_s / STOP_TICK_S) % 25 == 0 and (pid := self.postmaster()) is not None:
                os.kill(pid, how)
            pause(STOP_TICK_S)
            waited_s += STOP_TICK_S
        if self.child is not None:
            self.child.wait()

    def postmaster(self) -> int | None:
        """The pid to signal: our child, or the one in `postmaster.pid` if it still runs in the data directory."""
        if self.child is not None:
            return self.child.pid if self.child.poll() is None else None
        lines = self.pid_file_lines()
        return int(lines[0]) if lines and runs_in(int(lines[0]), self.record["data_dir"]) else None

    def was_ready_now(self) -> bool:
        """Whether `postmaster.pid` says `ready` (its eighth line, as `pg_ctl` reads it)."""
        lines = self.pid_file_lines()
        return len(lines) > 7 and lines[7].strip() == "ready"

    def pid_file_lines(self) -> list[str]:
        """Lines of `postmaster.pid`; none when there is no such file."""
        try:
            return (Path(self.record["data_dir"]) / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def forget_dead_server(self) -> None:
        """Remove lock files left by a killed server: their pid may belong to someone else by now, or to a zombie.

        We hold `server.lock`: no server of ours is left. One that was started by hand still runs in the directory and
        keeps its files, so that Postgres itself refuses.
        """
        data = Path(self.record["data_dir"])
        lines = self.pid_file_lines()
        if lines and runs_in(int(lines[0]), str(data)):
            return
        for stale in (data / "postmaster.pid", *Path(self.record["socket_dir"]).glob(".s.PGSQL.*.lock")):
            stale.unlink(missing_ok=True)


def runs_in(pid: int, folder: str) -> bool:
    """Whether process `pid` has `folder` as its working directory, as every postmaster has its data directory.

    Without /proc nothing is known and the answer is yes: Postgres then judges by itself.
    """
    if not Path("/proc/self/cwd").exists():
        return True
    try:
        return Path(f"/proc/{pid}/cwd").samefile(folder)
    except OSError:
        return False


def main(folder: Path) -> int:
    """Take the keeper's lock, leave the starter's session, keep the server."""
    lock = os.open(folder / "keeper.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(LOCK_TRIES):  # someone who looks whether it is held holds it for an instant
        if locked(lock, fcntl.LOCK_EX):
            break
        pause(STOP_TICK_S)
    else:
        return 3
    if os.fork():
        return 0
    os.setsid()
    os.chdir("/")
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    keeper = Keeper(folder)

    def ask_stop(_signal: int, _frame: object) -> None:
        keeper.stop_asked = True

    signal.signal(signal.SIGTERM, ask_stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    keeper.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
