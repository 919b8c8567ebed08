"""What S3 and the network may do to us, against a real S3 protocol server."""

from __future__ import annotations

import configparser
import contextlib
import os
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeper.checkpoint.reader import newest_valid_manifest
from sweeper.checkpoint.remote_store import RemoteStore
from sweeper.checkpoint.root_url import parse_root
from sweeper.checkpoint.store import ObjectStore, open_store, probe
from sweeper.errors import ObjectExists, ObjectMissing, StoreDenied, StoreUnavailable, UserError
from tests.checkpoint.http_faults import LOSE_REPLY, HttpFaults, Request
from tests.checkpoint.saves import TRIAL, layout_of, load, noise, save, small_save
from tests.faults.tcp_proxy import TcpProxy
from tests.s3_server import S3Server

pytestmark = pytest.mark.slow

pytest_plugins = ["tests.s3_server"]


@pytest.fixture
def network(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[TcpProxy]:
    with TcpProxy((s3_server.host, s3_server.port)) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{proxy.port}")
        yield proxy


@pytest.fixture
def faults(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpFaults]:
    with HttpFaults(s3_server.host, s3_server.port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        yield proxy


@pytest.fixture
def s3(s3_store_url: str) -> ObjectStore:
    """Has time for the client's own retries, whose pauses are up to a second, on a busy machine too."""
    return open_store(s3_store_url, timeout_s=20.0)


@pytest.fixture
def hasty(s3_store_url: str) -> ObjectStore:
    """Gives up soon, for tests that wait for it to; connected already, which takes a busy machine as long."""
    store = open_store(s3_store_url, timeout_s=2.0)
    for _ in range(10):
        with contextlib.suppress(StoreUnavailable):
            store.create("warm/up", b"")
            return store
    raise AssertionError("the server never answered in time")


def test_a_create_only_write_whose_reply_was_lost_is_success(faults: HttpFaults, s3: ObjectStore) -> None:
    """The client's own retry is answered "exists"; the bytes there are ours."""
    once = iter([LOSE_REPLY])
    faults.rule = lambda request: next(once, None)
    s3.create("a/lost", b"ours")
    assert [request.method for request in faults.seen] == ["PUT", "PUT", "GET"]
    assert s3.read("a/lost") == b"ours"


def test_a_write_all_of_whose_replies_were_lost_may_be_repeated(network: TcpProxy, hasty: ObjectStore) -> None:
    network.lose_reply()
    with pytest.raises(StoreUnavailable):
        hasty.create("a/lost", b"ours")
    network.pass_on()
    hasty.create("a/lost", b"ours")
    assert hasty.read("a/lost") == b"ours"


def test_a_lost_reply_does_not_hide_anothers_object(faults: HttpFaults, s3: ObjectStore) -> None:
    s3.create("a/lost", b"theirs")
    once = iter([LOSE_REPLY])
    faults.rule = lambda request: next(once, None)
    with pytest.raises(ObjectExists):
        s3.create("a/lost", b"ours")
    assert s3.read("a/lost") == b"theirs"


@pytest.mark.slow
def test_a_network_that_is_deaf_is_unavailable_within_the_timeout_and_heals(
    network: TcpProxy, hasty: ObjectStore
) -> None:
    ref = small_save(hasty)
    network.black_hole()
    for call in (lambda: hasty.create("a/b", b"x"), lambda: load(hasty, ref)):
        with pytest.raises(StoreUnavailable):
            call()
    network.pass_on()
    load(hasty, ref)


def test_a_network_that_is_cut_is_unavailable(network: TcpProxy, hasty: ObjectStore) -> None:
    network.cut()
    with pytest.raises(StoreUnavailable):
        hasty.read("a/b")
    with pytest.raises(UserError, match="did not answer when writing"):
        probe(hasty)


@pytest.mark.slow
@pytest.mark.parametrize(("status", "code"), [(503, "SlowDown"), (500, "InternalError")])
def test_a_store_that_is_overloaded_is_unavailable(
    faults: HttpFaults, hasty: ObjectStore, status: int, code: str
) -> None:
    ref = small_save(hasty)
    faults.rule = lambda request: (status, code)
    for call in (lambda: hasty.create("a/b", b"x"), lambda: newest_valid_manifest(hasty, lineage=0, **TRIAL)):
        with pytest.raises(StoreUnavailable):
            call()
    faults.rule = lambda request: None
    load(hasty, ref)


def test_one_refusal_for_overload_is_retried_by_the_client(faults: HttpFaults, s3: ObjectStore) -> None:
    once = iter([(503, "SlowDown")])
    faults.rule = lambda request: next(once, None)
    s3.create("a/b", b"x")
    assert s3.read("a/b") == b"x"


@pytest.mark.parametrize("code", ["AccessDenied", "SignatureDoesNotMatch"])
def test_refused_credentials_are_denied_and_never_no_checkpoint(faults: HttpFaults, s3: ObjectStore, code: str) -> None:
    ref = small_save(s3)
    faults.rule = lambda request: (403, code)
    for call in (lambda: load(s3, ref), lambda: newest_valid_manifest(s3, lineage=0, **TRIAL)):
        with pytest.raises(StoreDenied):
            call()
    with pytest.raises(UserError, match="does not allow writing") as caught:
        probe(s3)
    assert "AWS_ACCESS_KEY_ID" in str(caught.value)


def test_the_probe_names_the_step_that_failed(faults: HttpFaults, s3: ObjectStore) -> None:
    faults.rule = lambda request: (403, "AccessDenied") if request.method == "DELETE" else None
    with pytest.raises(UserError, match="does not allow deleting"):
        probe(s3)
    faults.rule = lambda request: (403, "AccessDenied") if request.method == "GET" else None
    with pytest.raises(UserError, match="does not allow reading"):
        probe(s3)


def test_no_credential_and_no_text_of_the_server_is_in_a_message(
    faults: HttpFaults, s3: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SAFE: our messages hold our words, the code and the key."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET-IN-ENVIRONMENT")
    faults.rule = lambda request: (403, "AccessDenied")
    with pytest.raises(UserError) as caught:
        probe(s3)
    assert "SECRET" not in str(caught.value) + s3.url
    assert "SECRET-IN-ENVIRONMENT" not in "".join(traceback.format_exception(caught.value))


def test_a_missing_bucket_is_denied_and_never_no_checkpoint(s3_server: S3Server) -> None:
    store = open_store("s3://there-is-no-such-bucket/x")
    for call in (lambda: store.size("a/b"), lambda: store.list("a/")):
        with pytest.raises(StoreDenied):
            call()
    with pytest.raises(UserError, match="NoSuchBucket"):
        probe(store)


def test_no_credentials_at_all_is_denied(s3_store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    with pytest.raises(UserError, match="does not allow writing"):
        probe(open_store(s3_store_url))


def test_renewed_credentials_are_picked_up(
    faults: HttpFaults, s3: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OS-06: a token is refused from now on; a new one is in the file; no save is lost."""
    file = tmp_path / "credentials"

    def write(key: str) -> None:
        config = configparser.ConfigParser()
        config["default"] = {"aws_access_key_id": key, "aws_secret_access_key": "s", "aws_session_token": "t"}
        with file.open("w") as stream:
            config.write(stream)

    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    write("OLDKEY")
    s3.create("a/1", b"x")
    faults.rule = lambda r: (403, "ExpiredToken") if "OLDKEY" in r.headers.get("authorization", "") else None
    write("NEWKEY")
    ref = small_save(s3)
    load(s3, ref)


def test_a_small_state_costs_two_requests(faults: HttpFaults, s3: ObjectStore) -> None:
    """A state of 1 MiB: one pack, one manifest, nothing asked before or after."""
    s3.create("warm/up", b"")
    faults.seen.clear()
    save(s3, layout_of([2**20]), noise(2**20))
    assert [(request.method, request.path.rsplit("/", 1)[1]) for request in faults.seen] == [
        ("PUT", "p0"),
        ("PUT", "manifest.json"),
    ]
    assert all(request.headers.get("if-none-match") == "*" for request in faults.seen)


def test_reading_a_small_state_costs_three_requests(faults: HttpFaults, s3: ObjectStore) -> None:
    ref = save(s3, layout_of([2**20]), noise(2**20))
    faults.seen.clear()
    load(s3, ref)
    assert [request.method for request in faults.seen] == ["GET", "HEAD", "GET"]


@pytest.mark.parametrize("switch", [None, "when_required"])
def test_the_standard_switch_turns_the_newer_checksums_off(
    faults: HttpFaults, s3: ObjectStore, switch: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OS-06: some servers refuse the checksum headers of newer clients."""
    if switch:
        monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", switch)
        monkeypatch.setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", switch)

    def refuse_checksums(request: Request) -> tuple[int, str] | None:
        new = [
            name
            for name in request.headers
            if name.startswith(("x-amz-checksum", "x-amz-sdk-checksum", "x-amz-trailer"))
        ]
        return (400, "InvalidArgument") if new else None

    faults.rule = refuse_checksums
    if switch:
        probe(s3)
    else:
        with pytest.raises(UserError, match="writing"):
            probe(s3)


def test_deletes_need_no_md5_header(faults: HttpFaults, s3: ObjectStore) -> None:
    """OS-06: bulk deletes want a checksum that old servers and new clients disagree about; we send single ones."""
    for key in ("a/1", "a/2"):
        s3.create(key, b"x")
    faults.seen.clear()
    s3.delete(["a/1", "a/2", "a/3"])
    assert [request.method for request in faults.seen] == ["DELETE"] * 3
    assert s3.list("a/") == []


def test_a_store_that_ignores_create_only_is_refused_at_launch(faults: HttpFaults, s3: ObjectStore) -> None:
    class Forgetful(RemoteStore):
        def create(self, key: str, data: bytes | memoryview) -> None:
            self.replace(key, data)

    with pytest.raises(UserError, match="overwrites"):
        probe(Forgetful(parse_root(s3.url)))


@pytest.mark.slow
def test_a_failed_upload_in_parts_leaves_no_object(faults: HttpFaults, hasty: ObjectStore) -> None:
    data = bytes(101 * 2**20)
    faults.rule = lambda r: (503, "SlowDown") if "partNumber=3" in r.path else None
    with pytest.raises(StoreUnavailable):
        hasty.create("a/parts", data)
    with pytest.raises(ObjectMissing):
        hasty.size("a/parts")
    assert any(r.method == "DELETE" and "uploadId" in r.path for r in faults.seen), "the upload was aborted"
    faults.rule = lambda r: None
    hasty.create("a/parts", data)
    with pytest.raises(ObjectExists):
        hasty.create("a/parts", data[:-1])
    assert hasty.size("a/parts") == len(data)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_client_is_not_inherited_through_a_fork(s3: ObjectStore) -> None:
    s3.create("a/parent", b"x")
    pid = os.fork()
    if pid == 0:
        try:
            s3.create("a/child", s3.read("a/parent"))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert s3.list("a/") == ["a/child", "a/parent"]


def test_one_store_serves_many_threads(s3: ObjectStore) -> None:
    threads = [threading.Thread(target=s3.create, args=(f"a/{n}", bytes([n]))) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [s3.read(f"a/{n}") for n in range(16)] == [bytes([n]) for n in range(16)]
