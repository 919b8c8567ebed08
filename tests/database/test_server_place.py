"""Where an embedded server may live, and under which user."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

import pytest

import sweeper
from sweeper.errors import UserError
from sweeper.ledger import server_place
from sweeper.ledger.server_place import NETWORK_FILE_SYSTEMS, ServerPlace, ServerRecord, file_system_of

MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:40 / /net/home rw,relatime shared:1 - nfs4 server:/home rw,vers=4.2
31 30 0:41 / /net/home/scratch\\040disk rw - xfs /dev/sdb rw
32 22 0:42 / /bucket rw - fuse.s3fs s3fs rw
33 22 0:43 / /netx rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/x", "ext4"),
        ("/net/home/me/.sweeper", "nfs4"),
        ("/net/home/scratch disk/me", "xfs"),
        ("/bucket/x", "fuse.s3fs"),
        ("/netx", "tmpfs"),
    ],
)
def test_the_longest_mount_point_decides(path: str, kind: str) -> None:
    assert file_system_of(Path(path), MOUNTS) == kind
    assert (kind in NETWORK_FILE_SYSTEMS) == kind.startswith(("nfs", "fuse"))


def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_place, "file_system_of", lambda _: "nfs4")
    with pytest.raises(UserError, match=r"nfs4(.|\n)*SWEEPER_DATABASE_URL"):
        ServerPlace(folder=tmp_path / "postgres").prepare()


@pytest.mark.parametrize(
    ("host", "boot_id", "ours"),
    [("me", "b1", True), ("me", "b2", True), ("container", "b1", True), ("other", "b2", False), ("other", "", False)],
)
def test_a_machine_is_known_by_its_name_or_its_running_kernel(
    tmp_path: Path, host: str, boot_id: str, ours: bool
) -> None:
    record = ServerRecord(
        host=host, boot_id=boot_id, port=1, data_dir="", socket_dir="", command=(), run_as=None, idle_s=1.0
    )
    place = ServerPlace(folder=tmp_path)
    with nullcontext() if ours else pytest.raises(UserError, match=host):
        server_place.refuse_other_machine(place, record, ("me", "b1"))


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    place = ServerPlace(folder=tmp_path)
    record = ServerRecord(
        host="h", boot_id="b", port=1, data_dir="d", socket_dir="s", command=("a", "b"), run_as=(1, 2), idle_s=1.5
    )
    assert place.read_record() is None
    place.write_record(record)
    assert place.read_record() == record


USE = """
import sys
from pathlib import Path
from sweeper.ledger.embedded import ensure_server, server_status, stop_server
home = Path(sys.argv[1])
import psycopg
with psycopg.connect(ensure_server(home)) as connection:
    assert connection.execute("SELECT 1").fetchone() == (1,)
assert (home / "postgres/data").stat().st_uid == (home / "postgres").stat().st_uid
assert stop_server(home) and not server_status(home).running
"""


@pytest.mark.slow
def test_a_normal_user_needs_nobody_else() -> None:
    if os.geteuid() != 0:
        pytest.skip("run by a normal user: every other test shows this")
    nobody = pwd.getpwnam("nobody")
    python = _interpreter_for(nobody.pw_uid)
    with tempfile.TemporaryDirectory(prefix="home-") as home:
        os.chown(home, nobody.pw_uid, nobody.pw_gid)
        paths = [str(Path(sweeper.__file__).parents[1]), str(Path(pytest.__file__).parents[1])]
        done = subprocess.run(
            [python, "-B", "-c", USE, home],
            user=nobody.pw_uid,
            group=nobody.pw_gid,
            extra_groups=[],
            cwd="/",
            env={"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")


def _interpreter_for(user: int) -> str:
    """An interpreter of our version that another user may run (root's own often lies in a closed folder)."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, shutil.which(version, path="/usr/bin:/usr/local/bin")):
        if candidate is None:
            continue
        command = [candidate, "-c", "import ctypes"]
        try:
            subprocess.run(command, user=user, cwd="/", check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return candidate
    pytest.skip("this interpreter lies where no other user can run it, and the system has no other of its version")
