"""A store behind any fsspec file system but the local one: S3 and what speaks it, memory, and the rest.

Only calls that take paths literally are used (`pipe_file`, `cat_file`, `info`, `find`, `rm_file`): the plural ones
understand patterns, and a stream left by an exception publishes a truncated object. Listings are never cached. The
client is made at the first call of each process; one that came through a fork is set aside untouched.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import fsspec
import fsspec.asyn
import fsspec.config

from sweeper.checkpoint.failures import translate
from sweeper.checkpoint.keys import require_safe
from sweeper.checkpoint.root_url import Root
from sweeper.errors import ObjectExists, ObjectMissing, StoreDenied, StoreUnavailable, SweeperError, UserError

_SLOWEST_BYTES_PER_S = 2**20
"""A call may take its timeout plus its bytes at this rate."""
_S3_CONNECT_S = 5.0
_inherited: list[object] = []
"""Clients that came through a fork: finalizing one here would wait for an event loop that only the parent has."""


class _Connection:
    """One process's client."""

    def __init__(self, root: Root, timeout_s: float) -> None:
        self.pid = os.getpid()
        self.fs: Any = _file_system(root, timeout_s)  # Any: fsspec is untyped
        self.root = str(self.fs._strip_protocol(root.url)).rstrip("/")
        self.one_at_a_time = threading.Lock()

    def call(self, method: str, *args: object, timeout_s: float, **kwargs: object) -> Any:  # Any: fsspec is untyped
        if self.fs.async_impl:
            coroutine = getattr(self.fs, f"_{method}")
            return fsspec.asyn.sync(self.fs.loop, coroutine, *args, timeout=timeout_s, **kwargs)
        with self.one_at_a_time:  # create-only is a look and then a write in memory://
            return getattr(self.fs, method)(*args, **kwargs)


class RemoteStore:
    """Objects behind an fsspec file system.

    Args:
        root: a checked URL.
        timeout_s: what one call may take beyond the time for its bytes, retries inside the client included. File
            systems that fsspec drives synchronously (`memory`, `sftp`) have only their own timeouts.
    """

    def __init__(self, root: Root, *, timeout_s: float = 60.0) -> None:
        self._root = root
        self._timeout_s = timeout_s
        self._connection: _Connection | None = None
        _require_known(root.scheme)

    @property
    def url(self) -> str:
        """The root as it was given, without a trailing slash."""
        return self._root.url

    def create(self, key: str, data: bytes | memoryview) -> None:
        """See `ObjectStore.create`."""
        try:
            self._write(f"creating {key}", key, data, mode="create")
        except ObjectExists:
            self._settle_conflict(key, data)

    def replace(self, key: str, data: bytes | memoryview) -> None:
        """See `ObjectStore.replace`."""
        self._write(f"replacing {key}", key, data, mode="overwrite")

    def read(self, key: str) -> bytes:
        """See `ObjectStore.read`."""
        return bytes(self._call(f"reading {key}", "cat_file", key))

    def read_range(self, key: str, offset: int, size: int) -> bytes:
        """See `ObjectStore.read_range`."""
        if size <= 0:
            return b""
        try:
            return bytes(self._call(f"reading {key}", "cat_file", key, transfer=size, start=offset, end=offset + size))
        except StoreDenied:
            # A range that starts behind the end is refused (416), which also is what an emptied object says.
            if self.size(key) <= offset:
                return b""
            raise

    def size(self, key: str) -> int:
        """See `ObjectStore.size`."""
        info = self._call(f"looking at {key}", "info", key)
        if info.get("type") != "file":
            raise ObjectMissing(f"looking at {key}: no such object")
        return int(info["size"])

    def list(self, prefix: str) -> list[str]:
        """See `ObjectStore.list`."""
        try:
            found = self._call(f"listing {prefix}", "find", prefix.removesuffix("/"))
        except ObjectMissing:
            return []
        below = f"{self._connected().root}/"
        return sorted(name.removeprefix(below) for name in found if name.startswith(below + prefix))

    def delete(self, keys: Iterable[str]) -> None:
        """See `ObjectStore.delete`; one request each, which needs no checksum header that some servers refuse."""
        for key in keys:
            try:
                self._call(f"deleting {key}", "rm_file", key)
            except ObjectMissing:
                continue

    def _write(self, doing: str, key: str, data: bytes | memoryview, *, mode: str) -> None:
        payload = data if isinstance(data, bytes) else bytes(data)
        self._call(doing, "pipe_file", key, payload, transfer=len(payload), mode=mode)

    def _settle_conflict(self, key: str, data: bytes | memoryview) -> None:
        """Decide what "exists already" means: our own earlier try, whose reply was lost, or another's object."""
        try:
            there = self.read(key)
        except ObjectMissing:
            raise StoreUnavailable(f"creating {key}: another writer is at it") from None
        if there != data:
            raise ObjectExists(f"creating {key}: other bytes are there")

    def _call(self, doing: str, method: str, key: str, *args: object, transfer: int = 0, **kwargs: object) -> Any:
        """Do one call; when the door is shut, once more with credentials looked up anew (tokens expire)."""
        require_safe(key)
        timeout_s = self._timeout_s + transfer / _SLOWEST_BYTES_PER_S
        try:
            return self._try(doing, method, key, *args, timeout_s=timeout_s, **kwargs)
        except StoreDenied:
            if self._root.scheme == "memory":
                raise
        self._connection = None
        return self._try(doing, method, key, *args, timeout_s=timeout_s, **kwargs)

    def _try(self, doing: str, method: str, key: str, *args: object, timeout_s: float, **kwargs: object) -> Any:
        try:
            connection = self._connected()
            return connection.call(method, f"{connection.root}/{key}", *args, timeout_s=timeout_s, **kwargs)
        except SweeperError:
            raise
        except Exception as error:  # whatever a client library raises; bugs pass through below
            ours = translate(error, doing)
            if ours is None:
                raise
            raise ours from error

    def _connected(self) -> _Connection:
        connection = self._connection
        if connection is not None and connection.pid != os.getpid():
            _inherited.append(connection)
            connection = None
        if connection is None:
            connection = self._connection = _Connection(self._root, self._timeout_s)
        return connection


def _require_known(scheme: str) -> None:
    try:
        fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        extra = "pip install 'sweeper[s3]'" if scheme == "s3" else f"Install the fsspec package for {scheme}://."
        raise UserError(f"The store {scheme}://… needs a package that is not installed.", remedy=extra) from error
    except ValueError as error:
        raise UserError(
            f"fsspec knows no file system called {scheme!r}.",
            remedy="Use file://, s3://, gs://, abfs:// or another of its list.",
        ) from error


def _file_system(root: Root, timeout_s: float) -> Any:  # Any: fsspec is untyped
    options: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
    if root.scheme == "s3":
        options |= _s3_options(fsspec.config.conf.get("s3", {}), os.environ, timeout_s)
    kind = fsspec.get_filesystem_class(root.scheme)
    return kind(**kind._get_kwargs_from_urls(root.url), **options)


def _s3_options(configured: Mapping[str, Any], environ: Mapping[str, str], timeout_s: float) -> dict[str, Any]:
    """Timeouts and few retries inside the client, under what the user configured for fsspec.

    Endpoint, region, credentials and checksums (`AWS_REQUEST_CHECKSUM_CALCULATION` and
    `AWS_RESPONSE_CHECKSUM_VALIDATION`, `when_required` for servers that refuse the newer ones) come from the
    standard AWS variables and files, which botocore reads itself.
    """
    for endpoint in (
        configured.get("endpoint_url"),
        environ.get("AWS_ENDPOINT_URL_S3"),
        environ.get("AWS_ENDPOINT_URL"),
    ):
        if endpoint and "@" in urlsplit(str(endpoint)).netloc:
            raise UserError(
                "The S3 endpoint's URL holds credentials.", remedy="Give them as AWS_ACCESS_KEY_ID and the like."
            )
    config = {
        "connect_timeout": min(_S3_CONNECT_S, timeout_s),
        "read_timeout": max(timeout_s / 2, 1.0),
        "retries": {"max_attempts": 2, "mode": "standard"},
    }
    return {"max_concurrency": 1, "config_kwargs": config | dict(configured.get("config_kwargs", {}))}
