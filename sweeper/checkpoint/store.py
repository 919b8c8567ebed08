"""Opening a store by its URL."""

from __future__ import annotations

from sweeper.checkpoint.local_store import LocalStore
from sweeper.checkpoint.objects import ObjectStore
from sweeper.checkpoint.probe import probe
from sweeper.checkpoint.remote_store import RemoteStore
from sweeper.checkpoint.root_url import parse_root

__all__ = ["ObjectStore", "open_store", "probe"]


def open_store(url: str, *, timeout_s: float = 60.0) -> ObjectStore:
    """Open `file://`, `s3://`, `memory://` or any other fsspec URL; nothing on a network is contacted yet.

    A local folder is made if it is absent. The store may be used from several threads and, opened before a fork, in
    the child: each process makes its own client.

    Args:
        url: root of everything; without credentials. `probe` tells whether it works.
        timeout_s: bound on one remote call, beyond the time for its bytes.

    Raises:
        UserError: the URL cannot be used safely (see `root_url`), or its package is not installed.
    """
    root = parse_root(url.strip())
    if root.scheme == "file":
        return LocalStore(root)
    return RemoteStore(root, timeout_s=timeout_s)
