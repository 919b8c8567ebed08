"""What every store promises, whatever is behind it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sweeper.checkpoint.reader import newest_valid_manifest
from sweeper.checkpoint.store import ObjectStore, open_store, probe
from sweeper.errors import ObjectExists, ObjectMissing, UserError
from tests.checkpoint.saves import TRIAL, load, small_save

pytest_plugins = ["tests.s3_server"]


def test_the_probe_passes_and_leaves_nothing(any_store: ObjectStore) -> None:
    probe(any_store)
    assert any_store.list("probe/") == []


def test_an_object_is_created_once(any_store: ObjectStore) -> None:
    any_store.create("a/b", b"first")
    any_store.create("a/b", memoryview(b"first"))
    with pytest.raises(ObjectExists):
        any_store.create("a/b", b"second")
    assert any_store.read("a/b") == b"first"


def test_of_twenty_writers_at_once_one_wins(any_store: ObjectStore) -> None:
    start = threading.Barrier(20)
    lost: list[int] = []

    def write(n: int) -> None:
        start.wait()
        try:
            any_store.create("a/contended", b"%02d" % n * 5000)
        except ObjectExists:
            lost.append(n)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winner = int(any_store.read("a/contended")[:2])
    assert sorted([*lost, winner]) == list(range(20))
    assert any_store.read("a/contended") == b"%02d" % winner * 5000


def test_of_twenty_writers_of_the_same_bytes_all_succeed(any_store: ObjectStore) -> None:
    failed: list[BaseException] = []

    def write() -> None:
        try:
            any_store.create("a/same", b"x" * 10_000)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_ranges_sizes_and_empty_objects(any_store: ObjectStore) -> None:
    any_store.create("a/ten", b"0123456789")
    any_store.create("a/none", b"")
    assert any_store.read_range("a/ten", 2, 3) == b"234"
    assert any_store.read_range("a/ten", 8, 100) == b"89"
    assert any_store.read_range("a/ten", 10, 5) == b""
    assert any_store.read_range("a/none", 0, 5) == b""
    assert any_store.read("a/none") == b""
    assert (any_store.size("a/ten"), any_store.size("a/none")) == (10, 0)


def test_what_is_not_there_is_missing(any_store: ObjectStore) -> None:
    any_store.create("a/b/c", b"x")
    calls: list[Callable[[str], object]] = [any_store.read, any_store.size, lambda key: any_store.read_range(key, 0, 1)]
    for key in ("a/x", "a/b", "a/b/c/d"):
        for call in calls:
            with pytest.raises(ObjectMissing):
                call(key)
    assert any_store.list("nothing/") == []


def test_listing_goes_deep_and_stays_inside_its_folder(any_store: ObjectStore) -> None:
    keys = ["a/b/1", "a/b/c/2", "a/bc/3", "a/4"]
    for key in keys:
        any_store.create(key, b"x")
    assert any_store.list("a/") == sorted(keys)
    assert any_store.list("a/b/") == ["a/b/1", "a/b/c/2"]


def test_deleting_is_repeatable_and_spares_the_rest(any_store: ObjectStore) -> None:
    for key in ("a/b/1", "a/b/2", "a/3"):
        any_store.create(key, b"x")
    any_store.delete(["a/b/1", "a/b/2", "a/b/9"])
    any_store.delete(["a/b/1"])
    assert any_store.list("a/") == ["a/3"]
    any_store.create("a/b/1", b"again")
    assert any_store.read("a/b/1") == b"again"


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "../a", "a/../b", "a//b", "a*", "a?", "[1]", "a b", "ä", ".tmp-1", "A"]
)
def test_a_key_that_was_not_made_by_us_is_a_bug(store: ObjectStore, key: str) -> None:
    for call in (lambda: store.read(key), lambda: store.create(key, b"x"), lambda: store.delete([key])):
        with pytest.raises(ValueError):
            call()


def test_a_second_reader_sees_what_another_wrote_since(any_root: str) -> None:
    """OS-05: B lists, A writes more and rewrites an object with a longer one, B sees all of it without a restart."""
    a, b = open_store(any_root), open_store(any_root)
    old = small_save(a, seq=1, step=10)
    a.replace("a/pointer", b"short")
    assert newest_valid_manifest(b, lineage=0, **TRIAL) == old
    assert b.read("a/pointer") == b"short"
    assert b.size("a/pointer") == 5

    new = small_save(a, seq=2, step=20)
    a.replace("a/pointer", b"much longer than it was")

    assert newest_valid_manifest(b, lineage=0, **TRIAL) == new
    load(b, new)
    assert b.read("a/pointer") == b"much longer than it was"
    assert b.size("a/pointer") == 23


ROOTS = {
    "punctuation and scripts": "lr=0.1,x+y/my sweeps (1)/größe 日本語 🌍",
    "long": "/".join(["d" * 99] * 6),
}


@pytest.mark.parametrize("part", ROOTS.values(), ids=ROOTS)
def test_an_unusual_root_works_byte_for_byte(any_root: str, part: str) -> None:
    """OS-03: write, list, read, download and remove, the same on each backend."""
    store = open_store(f"{any_root}/{part}")
    probe(store)
    ref = small_save(store)
    assert ref.manifest_key in store.list("sweeps/")
    load(store, ref)
    assert open_store(store.url).list("sweeps/") == store.list("sweeps/")
    store.delete(store.list("sweeps/"))
    assert store.list("sweeps/") == []


REFUSED = ["[1,2]", "{a}", "a*", "a?b", "a#b", "a%2Fb", "a//b", "./a", "a/./b", "../a"]
REFUSED += ["a\\b", "a\tb", "a\nb", "a/ b", "a::b", "a\u200bb", "a|b", 'a"b', "a<b>"]


@pytest.mark.parametrize("part", [*REFUSED, "d" * 900, "/".join(["d" * 99] * 9)])
@pytest.mark.parametrize("scheme", ["file:///tmp", "memory://m", "s3://bucket"])
def test_a_root_that_could_be_misread_is_refused_on_every_backend(scheme: str, part: str) -> None:
    """OS-03: refused at once, with one message, and never on one backend only."""
    with pytest.raises(UserError) as caught:
        open_store(f"{scheme}/{part}/x")
    assert "SWEEPER_STORE_URL" in str(caught.value)


NO_STORES = ["", "relative/path", "s3://", "s3:///x", "file://host/x", "file://", "file:///", "no://x/y", "S3://x", "/"]


@pytest.mark.parametrize("url", NO_STORES)
def test_what_is_not_a_store_is_refused(url: str) -> None:
    with pytest.raises(UserError):
        open_store(url)


WITH_CREDENTIALS = ["s3://KEY:HUNTER2@b/x", "s3://HUNTER2@b", "sftp://me:HUNTER2@host/x", "s3://KEY:a/HUNTER2@b"]


@pytest.mark.parametrize("url", [*WITH_CREDENTIALS, "KEY:HUNTER2@b"])
def test_credentials_in_a_url_are_refused_unrepeated(url: str) -> None:
    """SAFE."""
    with pytest.raises(UserError) as caught:
        open_store(url)
    assert "HUNTER2" not in str(caught.value)


def test_a_path_as_python_writes_it_opens_the_same_folder(tmp_path: Path) -> None:
    folder = tmp_path / "mein größter Speicher"
    stores = [
        open_store(url) for url in (folder.as_uri(), f"file://{folder}", str(folder), f"file://localhost{folder}/")
    ]
    stores[0].create("a/b", b"x")
    assert [store.read("a/b") for store in stores] == [b"x"] * 4
    assert {store.url for store in stores} == {folder.as_uri()}


def test_a_folder_that_cannot_be_made_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be made"):
        open_store(f"{tmp_path.as_uri()}/file/store")
