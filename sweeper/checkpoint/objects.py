"""What the rest of sweeper may ask of an object store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class ObjectStore(Protocol):
    """A flat map from keys to bytes; keys are made in `sweeper.checkpoint.keys` and are relative to the store's root.

    Every method may raise `StoreUnavailable` (repeat it with the same arguments) or `StoreDenied` (people must act).
    An object is never seen half-written. Implementations are usable from several threads, and in a forked child.
    """

    @property
    def url(self) -> str:
        """The root, without credentials; `open_store(store.url)` opens the same store."""
        ...

    def create(self, key: str, data: bytes | memoryview) -> None:
        """Write an object that must not exist yet.

        Finding the same bytes there already is success: the reply to an earlier try was lost.

        Raises:
            ObjectExists: other bytes lie under this key.
        """
        ...

    def replace(self, key: str, data: bytes | memoryview) -> None:
        """Write an object whether or not it exists; readers see the old bytes or the new ones."""
        ...

    def read(self, key: str) -> bytes:
        """Give the whole object.

        Raises:
            ObjectMissing: there is none, and the store is sure.
        """
        ...

    def read_range(self, key: str, offset: int, size: int) -> bytes:
        """Give `size` bytes from `offset`, fewer where the object ends earlier.

        Raises:
            ObjectMissing: there is no such object, and the store is sure.
        """
        ...

    def size(self, key: str) -> int:
        """Give the object's length in bytes.

        Raises:
            ObjectMissing: there is none, and the store is sure.
        """
        ...

    def list(self, prefix: str) -> list[str]:
        """Give all keys below `prefix` (which ends in `/`), fresh from the store, sorted as text."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; those already gone are no error."""
        ...
