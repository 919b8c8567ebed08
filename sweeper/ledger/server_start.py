"""Setting up a start of the embedded server: programs, user, cluster, port, socket; and launching the keeper."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from sweeper.errors import UserError
from sweeper.ledger import keeper, server_cluster
from sweeper.ledger.server_place import SET_URL, ServerPlace, ServerRecord, minimal_environment, this_machine

SOCKET_PATH_BYTES = 107
"""Longest path of a Unix socket on Linux, unix(7)."""


def plan_start(place: ServerPlace, idle_s: float, options: Mapping[str, str]) -> ServerRecord:
    """Everything for a start, the cluster included; keeps the port of the last start if it is free."""
    run_as = server_cluster.choose_user(place.data)
    install = server_cluster.reachable_install(server_cluster.find_install(place.data), run_as)
    server_cluster.remove_scratch(place)
    if not place.data.exists():
        server_cluster.create_cluster(place, install, run_as)
    before = place.read_record()
    port = _free_port(before.port if before else 0)
    socket_dir = _socket_folder(place, before, port, run_as)
    host, boot_id = this_machine()
    command = [str(install / "bin" / "postgres"), "-D", server_cluster.server_data_argument(place.data, run_as)]
    command += ["-p", str(port), "-k", "." if socket_dir == place.data else str(socket_dir)]
    command += [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    return ServerRecord(
        host=host,
        boot_id=boot_id,
        port=port,
        data_dir=str(place.data),
        socket_dir=str(socket_dir),
        command=tuple(command),
        run_as=run_as,
        idle_s=idle_s,
    )


def launch_keeper(place: ServerPlace) -> None:
    """Start a keeper in a fresh interpreter; it has left our process tree when this returns."""
    with place.log.open("ab") as log:
        subprocess.run(
            [sys.executable, "-I", "-S", keeper.__file__, str(place.folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=minimal_environment(os.environ),
            start_new_session=True,
            check=False,
        )


def _socket_folder(place: ServerPlace, before: ServerRecord | None, port: int, run_as: tuple[int, int] | None) -> Path:
    """The data directory, which is private, or a private folder in the temp folder when that path is too long."""
    if len(os.fsencode(place.data / f".s.PGSQL.{port}")) <= SOCKET_PATH_BYTES:
        return place.data
    if before is not None and before.socket_dir != before.data_dir:
        shutil.rmtree(before.socket_dir, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix="sweeper-"))
    if run_as:
        os.chown(folder, *run_as)
    return folder


def _free_port(preferred: int) -> int:
    """A free loopback port, the preferred one if possible so that URLs stay good. Someone may still take it first."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise UserError("no free port on the loopback address", remedy=f"{SET_URL}.")
