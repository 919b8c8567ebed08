"""Loaders whose generators and samplers go on from loop to loop, followed so that a resumed run finds them unchanged.

In a fresh process such a loader is found only when its first loop opens, and by then the script may have set it for
this loop (`generator.manual_seed(epoch)`, `sampler.set_epoch(epoch)`), which must not be undone. So it is noted whether
the script ever changes it between loops, and what it was when it was first opened: state is put back only into a loader
that the script leaves alone.
"""

from __future__ import annotations

import hashlib
import mmap
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweeper.trial.loader import LoaderSource
from sweeper.trial.samplers import OwnState
from sweeper.trial.values import encode


@dataclass(slots=True, kw_only=True)
class _Known:
    loader: weakref.ref[Any]
    own: OwnState
    first: str
    """Digest of its state when it was first opened in this trial."""
    closed: str | None = None
    """Digest at the end of its last loop; None when that was left early."""
    opens: int = 0
    set_by_script: bool = False
    unsure: bool = False
    """Put back on the word of one loop; the next opening will tell whether that was right."""


class KnownLoaders:
    """The loaders with state of their own that this run has opened, by what they look like and their order."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._pending: dict[str, Any] = {}

    def restore(self, value: Mapping[str, Any]) -> None:
        """Keep saved states for loaders that will be opened."""
        self._pending = dict(value)

    def opens(self, source: LoaderSource, *, placed: bool) -> tuple[str, ...]:
        """A loop over this loader opens. `placed`: its position was saved, and its state is put back with that.

        Gives reasons why this trial is not exact, if it turns out so.
        """
        key = self._key(source)
        digest = value_digest(source.own.capture())
        pending = self._pending.pop(key, None)
        wrong: tuple[str, ...] = ()
        known = self._known.get(key)
        if known is None:
            known = _Known(loader=weakref.ref(source.loader), own=source.own, first=digest)
        known.own = source.own
        if pending is not None:
            known.first, known.opens, known.set_by_script = pending["first"], pending["opens"], pending["set_by_script"]
            if not placed:
                known.set_by_script |= digest != known.first
                if not known.set_by_script:
                    source.own.put_back(pending["now"])
                    known.unsure = known.opens == 1
        elif known.closed is not None:
            known.set_by_script |= digest != known.closed
            if known.unsure and known.set_by_script:
                wrong = (f"a loader that the script sets before each loop was put back: {key}",)
            known.unsure = False
        known.closed = None
        known.opens += 1
        self._known[key] = known
        return wrong

    def closes(self, source: LoaderSource) -> None:
        """A loop over this loader was exhausted."""
        known = self._known.get(self._key(source))
        if known is not None:
            known.closed = value_digest(source.own.capture())

    def to_value(self) -> dict[str, Any]:
        """Give what `restore` takes; saved states of loaders not opened yet in this process are passed on."""
        live = {
            key: {"first": known.first, "opens": known.opens, "set_by_script": known.set_by_script,
                  "now": known.own.capture()}
            for key, known in self._known.items() if known.loader() is not None
        }  # fmt: skip
        return self._pending | live

    def doubts(self, current: OwnState | None) -> list[str]:
        """Reasons for not being exact: one loop is not enough to tell whether the script sets a loader each time."""
        return [
            f"a loader with random state of its own has run only once so far: {key}"
            for key, known in self._known.items()
            if known.unsure or (
                known.own is not current and known.opens == 1 and not known.set_by_script
                and known.loader() is not None and value_digest(known.own.capture()) != known.first
            )
        ]  # fmt: skip

    def _key(self, source: LoaderSource) -> str:
        for key, known in self._known.items():
            if known.loader() is source.loader:
                return key
        taken = {key for key, known in self._known.items() if known.loader() is not None}
        number = 0
        while f"{source.signature}#{number}" in taken:
            number += 1
        return f"{source.signature}#{number}"


def value_digest(value: object) -> str:
    """Give a digest of everything in a value, the same in every process."""
    encoded = encode(value)
    digest = hashlib.blake2b(encoded.layout.to_bytes(), digest_size=16)
    if encoded.layout.buffer_bytes:
        with mmap.mmap(-1, encoded.layout.buffer_bytes) as buffer:
            _copy_and_update(encoded, buffer, digest)
    return digest.hexdigest()


def _copy_and_update(encoded: Any, buffer: mmap.mmap, digest: Any) -> None:
    encoded.copy_into(buffer)
    for entry in encoded.layout.tensors:
        digest.update(buffer[entry.offset : entry.offset + entry.size_bytes])
