"""A checkpoint being resumed from: its place in training, and private copies of what it holds, as often as needed."""

from __future__ import annotations

from typing import Any, Final

from sweeper.errors import CheckpointCorrupt
from sweeper.trial.progress import Progress
from sweeper.trial.registered import Registered
from sweeper.trial.rng import Snapshot
from sweeper.trial.staging import Restored

FORMAT: Final = 1


class SavedRun:
    """The save of an earlier attempt, or of another trial of whose training this one is the heir."""

    def __init__(self, restored: Restored, *, inherited: bool = False) -> None:
        self._restored = restored
        self._inherited = inherited
        decoder = restored.decoder()
        if decoder.value("format") != FORMAT:
            raise CheckpointCorrupt(f"the checkpoint's format is {decoder.value('format')!r}, not {FORMAT}")
        place = decoder.value("place")
        self.phase: int = place["phase"]
        """Which `epochs()` loop of the script it was, from 1; an implicit epoch counts as one."""
        self.implicit: bool = place["implicit"]
        self.epoch: int = place["epoch"]
        self.handed_out: int | None = place["handed_out"]
        """Batches handed out in the primary loop; None at an epoch's end."""
        self.kind: str | None = place["kind"]
        """What the primary loop was: `batches` or `steps`."""
        self.loop: Any = decoder.value("loop")
        self.loaders: Any = decoder.value("loaders")
        self.provenance: Any = decoder.value("provenance")

    @property
    def where(self) -> str:
        """The place, for messages."""
        if self.kind is None:
            return f"the loop of run.epochs(...) before epoch {self.epoch}"
        within = "outside any epoch" if self.implicit else f"in epoch {self.epoch}"
        return f"a run.{self.kind}(...) {within}"

    def random(self, where: str) -> Snapshot:
        """Random state at the `epoch`'s start, the `loop`'s start, or `here` at the save point."""
        return Snapshot.from_value(self._restored.decoder().value("random", where))

    def load(self, registered: Registered, progress: Progress) -> None:
        """Load registered objects and counters from fresh copies.

        Raises:
            StateMismatch: they do not fit the live objects.
        """
        decoder = self._restored.decoder()
        registered.load(decoder, "registered", inherited=self._inherited)
        progress.load(decoder.value("progress"))
