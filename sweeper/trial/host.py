"""This machine: which boot it is, who on it is alive, how many threads and which GPUs there are.

Whether a worker lives is read from an `flock` that the worker and its child share, never from a process number: a child
can outlive its worker, numbers are reused, and containers share names.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sweeper.errors import UserError
from sweeper.ids import WorkerId

_LOCAL_FILE_SYSTEMS: Final = frozenset(
    (
        "apfs",
        "bcachefs",
        "btrfs",
        "ext2",
        "ext3",
        "ext4",
        "f2fs",
        "hfs",
        "jfs",
        "overlay",
        "ramfs",
        "tmpfs",
        "xfs",
        "zfs",
    )
)
_STALE_S: Final = 86_400.0
_MAX_STALE: Final = 1000


def boot_id() -> str:
    """What is equal for two processes only if they run under one kernel that has not been restarted between.

    Linux: the kernel's random boot id. Elsewhere: host name and boot time as the system tells them.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        booted = _output("sysctl", "-n", "kern.boottime").strip() or "unknown"
        return f"{os.uname().nodename} {booted}"


class LifeLock:
    """A file that is locked exactly as long as a worker or its child lives.

    Make it after the warm parent was forked. Pass `fileno()` to the child: the lock belongs to the open file, and so
    ends with its last holder, however that dies.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._closed = False

    @classmethod
    def acquire(cls, home: Path, worker_id: WorkerId) -> LifeLock:
        """Create and lock `home/locks/<worker_id>.lock`.

        Raises:
            UserError: the folder cannot be written, or its file system has no locks.
        """
        folder = home / "locks"
        path = folder / f"{worker_id}.lock"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            remedy = "set SWEEPER_HOME to a folder on a local disk"
            raise UserError(f"cannot lock {path}: {error.strerror}", remedy=remedy) from error
        _remove_stale(folder, os.fstat(descriptor).st_mtime - _STALE_S)
        return cls(path, descriptor)

    @property
    def inode(self) -> str:
        """`<st_dev>:<st_ino>`; with `path` and `boot_id()` it lets others on this host judge whether we live."""
        return _inode(self._descriptor)

    def fileno(self) -> int:
        """The locked descriptor."""
        return self._descriptor

    def close(self) -> None:
        """Let go and remove the file: after a clean end, when no lease is held and no child lives."""
        if not self._closed:
            self._closed = True
            self.path.unlink(missing_ok=True)
            os.close(self._descriptor)


def holder_is_dead(path: Path, inode: str, holder_boot_id: str) -> bool:
    """Prove that neither the worker that made this lock nor its child lives; False means *not proven*.

    A proof needs the same boot of the same kernel, the very same file, and a file system that is local by its type.
    """
    if holder_boot_id != boot_id() or not is_local_file_system(path):
        return False
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        if _inode(descriptor) != inode:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two judges do not disturb one another
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def is_local_file_system(path: Path) -> bool:
    """Whether the file lies on a file system whose type is known to be local (its locks mean something)."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return os.uname().sysname == "Darwin" and not _output("df", "-T", "nfs,smbfs,afpfs", str(path)).strip()
    target = os.fspath(path.resolve())
    best, kind = "", ""
    for line in lines:
        left, _, right = line.partition(" - ")
        mount = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), left.split()[4])
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, right.split()[0]
    return kind in _LOCAL_FILE_SYSTEMS


def threads_for_trial(local_workers: int, cores: int | None = None) -> int:
    """Compute threads of one trial: `max(1, (cores − 1) // local workers)`, the one core left is for the workers."""
    available = cores if cores is not None else len(os.sched_getaffinity(0)) if _HAS_AFFINITY else os.cpu_count() or 1
    return max(1, (available - 1) // max(1, local_workers))


_HAS_AFFINITY: Final = hasattr(os, "sched_getaffinity")


def visible_gpus(environ: Mapping[str, str]) -> list[str]:
    """The GPUs this process may use, as `CUDA_VISIBLE_DEVICES` names them; CUDA is not initialised by asking.

    An existing `CUDA_VISIBLE_DEVICES` is taken as it is (up to a `-1`, which ends the list for CUDA). Else the driver's
    tool is asked: MIG slices where there are any, else whole GPUs by UUID, whose order does not depend on settings.
    """
    listed = environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        devices = [device.strip() for device in listed.split(",")]
        bad = next((place for place, device in enumerate(devices) if device in ("", "-1")), len(devices))
        return devices[:bad]
    uuids = re.findall(r"\(UUID: ((?:GPU|MIG)-[^)]+)\)", _output("nvidia-smi", "-L"))
    slices = [uuid for uuid in uuids if uuid.startswith("MIG-")]
    return slices or uuids


def _inode(descriptor: int) -> str:
    status = os.fstat(descriptor)
    return f"{status.st_dev}:{status.st_ino}"


def _remove_stale(folder: Path, before: float) -> None:
    """Remove files of workers that died more than a day ago, whose leases have long expired."""
    for path in sorted(folder.glob("*.lock"))[:_MAX_STALE]:
        try:
            if path.stat().st_mtime < before and holder_is_dead(path, _path_inode(path), boot_id()):
                path.unlink()
        except FileNotFoundError:
            continue


def _path_inode(path: Path) -> str:
    status = path.stat()
    return f"{status.st_dev}:{status.st_ino}"


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
