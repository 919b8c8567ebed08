"""Python's cyclic garbage collector rests while a long history is read."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Switch the collector off for a moment and on again, where it was on.

    Making hundreds of thousands of objects that all stay makes it search them again and again: a third of the time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
