"""A store in a folder: atomic, create-only, and without litter when a writer is killed.

A new object is written to a file without a name (`O_TMPFILE`), its data flushed, and then given its name by `linkat`,
which fails when the name is taken. So a SIGKILL at any instruction leaves no object, or the whole one, and the kernel
takes back what had no name. Where the file system has no `O_TMPFILE`, a private temporary name serves, which a kill
leaves behind.

The data is flushed before it gets a name (a power cut cannot leave a whole-looking object full of holes); the folder is
not (a power cut may lose the name, which reads as a missing object and falls back to the checkpoint before it).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sweeper.checkpoint.failures import translate
from sweeper.checkpoint.keys import require_safe
from sweeper.checkpoint.root_url import Root
from sweeper.errors import ObjectExists, ObjectMissing, StoreUnavailable, UserError
from sweeper.ids import system_random_hex

_TEMPORARY = ".tmp-"
_FOLDER_RACES = 100
"""How often a folder may vanish under us (its last object was deleted) before we give up."""
_flush = getattr(os, "fdatasync", os.fsync)
_NO_UNNAMED_FILES = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT})


class LocalStore:
    """Objects as files below one folder, which is made when the store is opened."""

    def __init__(self, root: Root) -> None:
        self._root = root.path
        self._url = root.url
        try:
            Path(self._root).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"The store's folder {self._root} cannot be made: {error.strerror}.",
                remedy="Choose a folder that you may write to (SWEEPER_STORE_URL or SWEEPER_HOME).",
            ) from error

    @property
    def url(self) -> str:
        """`file://` and the absolute path."""
        return self._url

    def create(self, key: str, data: bytes | memoryview) -> None:
        """See `ObjectStore.create`."""
        path = self._path(key)
        with self._errors(f"creating {key}"):
            try:
                self._in_folder(path, lambda: _link_new(path, data))
            except FileExistsError:
                if _slurp(path) != data:
                    raise ObjectExists(f"creating {key}: other bytes are there") from None

    def replace(self, key: str, data: bytes | memoryview) -> None:
        """See `ObjectStore.replace`."""
        path = self._path(key)
        with self._errors(f"replacing {key}"):
            self._in_folder(path, lambda: _rename_over(path, data))

    def read(self, key: str) -> bytes:
        """See `ObjectStore.read`."""
        with self._errors(f"reading {key}"):
            return _slurp(self._path(key))

    def read_range(self, key: str, offset: int, size: int) -> bytes:
        """See `ObjectStore.read_range`."""
        with self._errors(f"reading {key}"), Path(self._path(key)).open("rb", buffering=0) as file:
            file.seek(offset)
            return _read_up_to(file.fileno(), size)

    def size(self, key: str) -> int:
        """See `ObjectStore.size`."""
        with self._errors(f"looking at {key}"):
            status = os.stat(self._path(key))  # noqa: PTH116 the key may be a folder of other keys
            if not stat.S_ISREG(status.st_mode):
                raise ObjectMissing(f"looking at {key}: no such object")
            return status.st_size

    def list(self, prefix: str) -> list[str]:
        """See `ObjectStore.list`."""
        folder = self._path(prefix.removesuffix("/"))
        with self._errors(f"listing {prefix}"):
            found = [os.path.relpath(path, self._root) for path in _files_below(folder)]
            if not found:
                self._require_root(f"listing {prefix}")
            return sorted(found)

    def delete(self, keys: Iterable[str]) -> None:
        """See `ObjectStore.delete`; folders that become empty go as well."""
        for key in keys:
            with self._errors(f"deleting {key}"), contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(key))  # noqa: PTH108
            self._prune_folders(Path(self._path(key)).parent)

    def _prune_folders(self, folder: Path) -> None:
        root = Path(self._root)
        while folder != root:
            try:
                folder.rmdir()
            except OSError:  # not empty, or already gone: someone else's folder now
                return
            folder = folder.parent

    def _in_folder(self, path: str, write: Callable[[], None]) -> None:
        """Run `write`, making the path's folder when it is not there; deleters may take it away again meanwhile."""
        for _ in range(_FOLDER_RACES):
            with contextlib.suppress(FileNotFoundError):
                return write()
            self._require_root(f"writing {path}")
            # Also "exists": it did when the call looked, and was gone when the call looked what it is.
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                Path(path).parent.mkdir(parents=True, exist_ok=True)
        raise StoreUnavailable(f"the folder of {path} vanishes as often as it is made")

    def _path(self, key: str) -> str:
        return f"{self._root}/{require_safe(key)}"

    def _require_root(self, doing: str) -> None:
        if not Path(self._root).is_dir():
            raise StoreUnavailable(f"{doing}: the store's folder {self._root} is gone (not mounted?)")

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            ours = translate(error, doing)
            if ours is None:
                raise
            if isinstance(ours, ObjectMissing):
                self._require_root(doing)
            raise ours from error


def _link_new(path: str, data: bytes | memoryview) -> None:
    folder = os.path.dirname(path)  # noqa: PTH120
    here = os.open(folder, os.O_RDONLY)
    try:
        unnamed = _open_unnamed(folder)
        if unnamed is None:
            _link_named(path, data)
            return
        try:
            _write_all(unnamed, data)
            # A directory descriptor makes Python call linkat, and following the link makes it name the open file.
            os.link(f"/proc/self/fd/{unnamed}", path, src_dir_fd=here, follow_symlinks=True)
        finally:
            os.close(unnamed)
    finally:
        os.close(here)


def _open_unnamed(folder: str) -> int | None:
    if not hasattr(os, "O_TMPFILE") or not Path("/proc/self/fd").exists():
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o666)
    except OSError as error:
        if error.errno in _NO_UNNAMED_FILES and Path(folder).is_dir():
            return None
        raise


def _link_named(path: str, data: bytes | memoryview) -> None:
    with _named_temporary(path, data) as temporary:
        os.link(temporary, path)


def _rename_over(path: str, data: bytes | memoryview) -> None:
    with _named_temporary(path, data) as temporary:
        os.replace(temporary, path)  # noqa: PTH105


@contextmanager
def _named_temporary(path: str, data: bytes | memoryview) -> Iterator[str]:
    temporary = f"{os.path.dirname(path)}/{_TEMPORARY}{system_random_hex()}"  # noqa: PTH120
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        try:
            _write_all(descriptor, data)
        finally:
            os.close(descriptor)
        yield temporary
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)  # noqa: PTH108


def _write_all(descriptor: int, data: bytes | memoryview) -> None:
    view = memoryview(data).cast("B")
    written = 0
    while written < len(view):
        written += os.write(descriptor, view[written : written + (1 << 30)])
    _flush(descriptor)


def _slurp(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return _read_up_to(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def _read_up_to(descriptor: int, size: int) -> bytes:
    first = os.read(descriptor, min(size, 1 << 30))
    pieces, got = [first], len(first)
    while got < size and pieces[-1]:
        pieces.append(os.read(descriptor, min(size - got, 1 << 30)))
        got += len(pieces[-1])
    return b"".join(pieces) if len(pieces) > 1 else first


def _files_below(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            found = [(entry.path, entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return
    for path, name, is_folder in found:
        if is_folder:
            yield from _files_below(path)
        elif not name.startswith(_TEMPORARY):
            yield path
