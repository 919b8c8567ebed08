"""The life lock and what is known about this machine."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sweeper.errors import UserError
from sweeper.ids import WorkerId, system_random_hex
from sweeper.trial.host import (
    LifeLock,
    boot_id,
    holder_is_dead,
    is_local_file_system,
    threads_for_trial,
    visible_gpus,
)


def new_lock(home: Path) -> LifeLock:
    return LifeLock.acquire(home, WorkerId(system_random_hex()))


def test_a_lock_outlives_its_owner_as_long_as_a_copy_is_open(tmp_path: Path) -> None:
    lock = new_lock(tmp_path)
    copy = os.dup(lock.fileno())
    path, inode = lock.path, lock.inode
    os.close(lock.fileno())
    assert not holder_is_dead(path, inode, boot_id())
    os.close(copy)
    assert holder_is_dead(path, inode, boot_id())
    assert holder_is_dead(path, inode, boot_id()), "judging leaves no trace"


def test_a_proof_needs_the_same_boot_and_the_same_file(tmp_path: Path) -> None:
    lock = new_lock(tmp_path)
    path, inode = lock.path, lock.inode
    os.close(lock.fileno())
    assert not holder_is_dead(path, inode, "another boot")
    assert not holder_is_dead(path, "1:2", boot_id())
    assert not holder_is_dead(tmp_path / "missing", inode, boot_id())


def test_a_clean_end_removes_the_file_and_a_new_lock_removes_old_dead_ones(tmp_path: Path) -> None:
    clean, dead, held = new_lock(tmp_path), new_lock(tmp_path), new_lock(tmp_path)
    clean.close()
    clean.close()
    assert not clean.path.exists()
    os.close(dead.fileno())
    for lock in (dead, held):
        os.utime(lock.path, (0, 0))
    fresh = new_lock(tmp_path)
    assert {path.name for path in (tmp_path / "locks").iterdir()} == {held.path.name, fresh.path.name}
    assert stat.S_IMODE(fresh.path.stat().st_mode) == 0o600
    for lock in (held, fresh):
        lock.close()


def test_a_home_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "locks").write_text("a file")
    with pytest.raises(UserError, match=r"(?s)cannot lock .*SWEEPER_HOME"):
        new_lock(tmp_path)


def test_pseudo_file_systems_are_not_local() -> None:
    assert not is_local_file_system(Path("/proc/self/stat"))


@pytest.mark.parametrize(
    ("workers", "cores", "threads"), [(1, 8, 7), (2, 8, 3), (4, 2, 1), (1, 1, 1), (0, 4, 3), (3, 16, 5)]
)
def test_threads_leave_one_core_for_the_workers(workers: int, cores: int, threads: int) -> None:
    assert threads_for_trial(workers, cores) == threads


@pytest.mark.parametrize(
    ("listed", "devices"),
    [("0,1", ["0", "1"]), ("", []), ("-1", []), ("0,-1,2", ["0"]), ("GPU-a, MIG-b", ["GPU-a", "MIG-b"])],
)
def test_given_gpus_are_taken_as_cuda_takes_them(listed: str, devices: list[str]) -> None:
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": listed}) == devices


@pytest.mark.parametrize(
    ("said", "devices"),
    [
        ("GPU 0: NVIDIA A (UUID: GPU-1)\nGPU 1: NVIDIA A (UUID: GPU-2)", ["GPU-1", "GPU-2"]),
        (
            "GPU 0: A (UUID: GPU-1)\n  MIG 1g.5gb Device 0: (UUID: MIG-7)\n  MIG 1g.5gb Device 1: (UUID: MIG-8)",
            ["MIG-7", "MIG-8"],
        ),
    ],
)
def test_the_drivers_tool_is_asked_otherwise(
    said: str, devices: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert visible_gpus({}) == devices
