"""Where the embedded server lives: its folder, the record that names the owning machine, and who may use it.

<home>/postgres/            0700
    data/                   the cluster, owned by the server's user
    server.json             ServerRecord (0600, no secret)
    password                the only place that holds it (0600)
    users.lock              shared: one per attached process; exclusive: a stop is under way
    start.lock              exclusive: someone is starting or stopping
    keeper.lock             held by the keeper; its text is the keeper's pid
    server.lock             held by the postmaster and its children: never two servers on one directory
    server.log
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

from sweeper.errors import UserError

SUPERUSER = "sweeper"
DATABASE = "postgres"
SET_URL = "Set SWEEPER_DATABASE_URL to a Postgres that every machine can reach"

_NETWORK = "afs beegfs ceph cifs coda glusterfs gpfs lustre ncpfs nfs nfs3 nfs4 orangefs panfs pvfs2 smb3 smbfs wekafs"
_FUSE = "ceph cephfs gcsfuse glusterfs juicefs lustre mount-s3 rclone s3fs sshfs"
NETWORK_FILE_SYSTEMS = frozenset(_NETWORK.split()) | {f"fuse.{name}" for name in _FUSE.split()}
"""Two postmasters on two machines cannot see each other's locks there and would destroy the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRecord:
    """What `server.json` says: which machine owns the directory and how the server is started (by the keeper too)."""

    host: str
    boot_id: str
    port: int
    data_dir: str
    socket_dir: str
    command: tuple[str, ...]
    """Everything the keeper runs, in the data directory."""
    run_as: tuple[int, int] | None
    """User and group to drop to when started by root."""
    idle_s: float
    """Seconds without users after which the server stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlace:
    """The folder of one embedded server; knows names and modes, starts nothing."""

    folder: Path

    @property
    def data(self) -> Path:
        """The cluster's directory."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """The server's own messages and the keeper's."""
        return self.folder / "server.log"

    @property
    def password_file(self) -> Path:
        """The only place that holds the password; mode 0600."""
        return self.folder / "password"

    def lock_file(self, name: str) -> Path:
        """Path of `users`, `start`, `keeper` or `server` lock."""
        return self.folder / f"{name}.lock"

    def prepare(self) -> None:
        """Create the folder (0700). UserError on a network file system or a folder that is not ours."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot create {self.folder}: {error.strerror}", remedy="Set SWEEPER_HOME.") from error
        if not os.access(self.folder, os.R_OK | os.W_OK | os.X_OK):
            raise UserError(
                f"{self.folder} belongs to another user", remedy="Set SWEEPER_HOME to a folder of your own."
            )
        kind = file_system_of(self.folder)
        if kind in NETWORK_FILE_SYSTEMS:
            raise UserError(
                f"{self.folder} lies on a network file system ({kind}), where a database would be destroyed as soon "
                "as two machines used it",
                remedy=f"{SET_URL}, or SWEEPER_HOME to a folder on a local disk.",
            )

    def password(self) -> str:
        """The server's password; drawn at the first call."""
        try:
            return self.password_file.read_text().strip()
        except FileNotFoundError:
            text = secrets.token_urlsafe(24)
            write_private(self.password_file, text)
            return text

    def read_record(self) -> ServerRecord | None:
        """What `server.json` says, or None before the first start."""
        try:
            fields = json.loads((self.folder / "server.json").read_text())
        except FileNotFoundError:
            return None
        run_as = fields["run_as"]
        return ServerRecord(
            **{**fields, "command": tuple(fields["command"]), "run_as": tuple(run_as) if run_as else None}
        )

    def write_record(self, record: ServerRecord) -> None:
        """Replace `server.json` in one step."""
        write_private(self.folder / "server.json", json.dumps(asdict(record), indent=1))

    def url(self, record: ServerRecord) -> str:
        """URL of the server: the socket first, the loopback address when the socket cannot be reached."""
        hosts = f"{quote(record.socket_dir, safe='/')},127.0.0.1"
        return (
            f"postgresql://{SUPERUSER}:{quote(self.password(), safe='')}@/{DATABASE}"
            f"?host={hosts}&port={record.port},{record.port}"
        )


def this_machine() -> tuple[str, str]:
    """Host name and the kernel's boot id (empty where the system has none)."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot_id = ""
    return os.uname().nodename, boot_id


def refuse_other_machine(place: ServerPlace, record: ServerRecord, machine: tuple[str, str]) -> None:
    """UserError if another machine owns the directory.

    The same host after a reboot is the same machine, and so are containers on one kernel: file locks work between
    them. A directory that was copied or moved from a machine that is gone is released by deleting `server.json`.
    """
    host, boot_id = machine
    if record.host == host or (boot_id and record.boot_id == boot_id):
        return
    raise UserError(
        f"the database in {place.folder} belongs to the machine {record.host!r}, this is {host!r}",
        remedy=f"{SET_URL}. If {record.host!r} is gone for good, delete {place.folder / 'server.json'}.",
    )


def file_system_of(path: Path, mounts: str | None = None) -> str:
    """Type of the file system that holds `path` (`ext4`, `nfs4`, …); empty where the system does not tell.

    Source: `/proc/self/mountinfo`, proc(5): the mount with the longest matching mount point, the last one of equals.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
        except OSError:
            return ""
    found, kind = -1, ""
    place = Path(os.path.realpath(path))
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        point = before.split()[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        if len(point) >= found and place.is_relative_to(point):
            found, kind = len(point), after.split()[0]
    return kind


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, in one step."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # mkstemp: mode 0600
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    Path(name).replace(path)


def minimal_environment(source: Mapping[str, str]) -> dict[str, str]:
    """What our server processes inherit: no credentials, no PG* settings, just enough to find libraries."""
    kept = {name: source[name] for name in ("LD_LIBRARY_PATH", "SYSTEMROOT") if name in source}
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", **kept}
