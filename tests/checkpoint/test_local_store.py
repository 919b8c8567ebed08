"""The local store under SIGKILL, on odd file systems, and when the disk says no."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sweeper.checkpoint import local_store
from sweeper.checkpoint.store import ObjectStore, open_store, probe
from sweeper.errors import CheckpointCorrupt, ObjectExists, StoreDenied, StoreUnavailable, UserError
from tests.checkpoint.saves import TRIAL, load

WRITER = """
import sys
from sweeper.checkpoint.store import open_store
store = open_store(sys.argv[1])
for n in range(1_000_000):
    store.create(f"a/{sys.argv[2]}-{n}", bytes([n % 251]) * 3_000_000)
    store.replace("a/pointer", b"%d " % n * 50_000)
    if n == 0:
        print("ready", flush=True)
"""

SAVER = """
import sys
from sweeper.checkpoint.store import open_store
from sweeper.model.staging import SaveFacts
from tests.checkpoint.saves import layout_of, noise, save
store = open_store(sys.argv[1])
for seq in range(1, 1_000_000):
    layout = layout_of([700_000, 3_000, 700_000])
    facts = SaveFacts(seq=seq, step=seq, epoch=0)
    save(store, layout, noise(layout.buffer_bytes, seq), facts=facts, fence=int(sys.argv[2]))
    if seq == 1:
        print("ready", flush=True)
"""


def kill_at_random(script: str, store: ObjectStore, rounds: int, seed: int) -> None:
    """Start a real process, let it write for a moment, SIGKILL it; again and again."""
    moments = random.Random(seed)
    for n in range(rounds):
        process = subprocess.Popen([sys.executable, "-c", script, store.url, str(n)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        with process.stdout as out:
            assert out.readline() == b"ready\n"
            time.sleep(moments.uniform(0, 0.06))  # noqa: TID251 a random instant of a real process
            process.send_signal(signal.SIGKILL)
        process.wait()


def test_a_killed_writer_leaves_whole_objects_only(store: ObjectStore) -> None:
    """CK-03: at whatever instruction it died."""
    kill_at_random(WRITER, store, rounds=8, seed=1)
    keys = [key for key in store.list("a/") if key != "a/pointer"]
    assert len(keys) >= 8
    for key in keys:
        data = store.read(key)
        assert len(data) == 3_000_000
        assert data == data[:1] * 3_000_000
    pointer = store.read("a/pointer").split()
    assert len(pointer) == 50_000
    assert len(set(pointer)) == 1


def test_a_killed_writer_of_new_objects_leaves_no_litter(store: ObjectStore, tmp_path: Path) -> None:
    """Data without a name is taken back by the kernel."""
    kill_at_random(WRITER.replace("store.replace", "0 and store.replace"), store, rounds=4, seed=2)
    on_disk = sorted(
        str(path.relative_to(tmp_path / "store")) for path in (tmp_path / "store").rglob("*") if path.is_file()
    )
    assert on_disk == store.list("a/")


def test_whatever_a_killed_saver_left_is_valid_or_not_a_checkpoint(store: ObjectStore) -> None:
    """CK-03: each manifest that exists reads back; packs without a manifest are nothing."""
    from sweeper.checkpoint.reader import newest_valid_manifest

    kill_at_random(SAVER, store, rounds=6, seed=3)
    newest = newest_valid_manifest(store, lineage=0, **TRIAL)
    assert newest is not None
    load(store, newest)
    manifests = [key for key in store.list("sweeps/") if key.endswith("manifest.json")]
    assert len(manifests) >= 6


def test_a_file_system_without_unnamed_files_serves_as_well(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_store, "_open_unnamed", lambda folder: None)
    store.create("a/b", b"x")
    with pytest.raises(ObjectExists):
        store.create("a/b", b"y")
    store.create("a/b", b"x")
    assert store.list("a/") == ["a/b"]


def test_temporary_names_are_no_objects(store: ObjectStore, tmp_path: Path) -> None:
    store.create("a/b", b"x")
    (tmp_path / "store" / "a" / ".tmp-left-by-a-kill").write_bytes(b"half")
    assert store.list("a/") == ["a/b"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.ESTALE])
def test_a_full_or_failing_disk_is_unavailable_and_shows_nothing(
    store: ObjectStore, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(local_store, "_flush", fail)
    with pytest.raises(StoreUnavailable, match=errno.errorcode[code]):
        store.create("a/b", b"x")
    with pytest.raises(StoreUnavailable):
        store.replace("a/c", b"x")
    assert store.list("a/") == []


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.EPERM])
def test_a_folder_without_permission_is_denied(store: ObjectStore, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(local_store, "_flush", fail)
    with pytest.raises(StoreDenied, match=errno.errorcode[code]):
        store.create("a/b", b"x")
    with pytest.raises(UserError, match="does not allow writing"):
        probe(store)


def test_an_object_is_created_while_another_empties_its_folder(store: ObjectStore) -> None:
    """Deleting takes empty folders away; a writer that meets this makes them again."""
    import threading

    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            store.create("a/b/c/churn", b"x")
            store.delete(["a/b/c/churn"])

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for n in range(300):
            store.create(f"a/b/c/{n}", b"x")
            store.delete([f"a/b/c/{n}"])
    finally:
        stop.set()
        thread.join()
    assert store.list("a/") == []


def test_a_folder_in_place_of_a_manifest_is_corrupt_not_a_crash(store: ObjectStore, tmp_path: Path) -> None:
    from tests.checkpoint.saves import small_save

    ref = small_save(store)
    path = tmp_path / "store" / ref.manifest_key
    path.unlink()
    path.mkdir()
    with pytest.raises(CheckpointCorrupt):
        load(open_store(store.url), ref)
