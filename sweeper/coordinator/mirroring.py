"""Keeps a search's mirror current: one piece of work at a time in the background, its ledger statements in the loop.

First contact is made: the study found or made, the ledger's map aligned with it, entries that a crash left without a
place taken in. Then batch follows batch. Whatever fails is told once, and contact is made again after a growing pause;
a study that cannot be brought in line is written anew as a whole.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from sweeper.clock import Clock
from sweeper.coordinator.mirror_reading import Lookout
from sweeper.errors import LedgerUnavailable
from sweeper.ids import ConfigHash
from sweeper.ledger.database import Statements
from sweeper.ledger.enqueued import enqueue
from sweeper.ledger.mirror_map import acknowledge_mirrored, adopt_strays, align_mirror
from sweeper.ledger.mirroring import largest_step
from sweeper.model.search import SearchSpec
from sweeper.model.states import PointSource
from sweeper.model.trial import Sweep
from sweeper.model.waits import Background, Future
from sweeper.search.mirror import FEW, Mirror, MirrorBatch, MirrorWritten, OutOfLine, StudyChanged
from sweeper.search.mirror_entry import divisor_for
from sweeper.search.mirror_study import MirroredStudy

log = logging.getLogger("sweeper.coordinator")

EVERY_S: Final = 1.0
"""Between two looks; with a batch that takes no longer, what is shown is at most two seconds old."""
REST: Final = 1.0
"""Times as long as a batch took is rested before the next one, where there is more to show already."""
LONG_REST: Final = 6.0
"""The same after a batch of trials that end faster than one by one could ever be shown: they need the machine more than
people who look need the last of them."""
RETRY_FIRST_S: Final = 1.0
RETRY_MOST_S: Final = 60.0
MOST_MISSING: Final = 200
"""With more trials than this, a study that shows none is written as a whole."""

Take = Callable[[], None]
"""What follows a piece of work: ledger statements, safe to repeat, and then perhaps the next piece."""


class StudyMirroring:
    """Implements `sweeper.coordinator.parts.Mirroring`."""

    def __init__(
        self,
        mirror: Mirror,
        rebuild: Callable[[], object],
        *,
        database: Statements,
        background: Background,
        clock: Clock,
        sweep: Sweep,
        explain: Callable[[BaseException], str],
        note: Callable[[str], None],
    ) -> None:
        """Do nothing yet.

        Args:
            mirror: the study; used by one piece of work at a time.
            rebuild: writes the whole study anew; run in the background, with connections of its own.
            database: the ledger.
            background: where the work runs.
            clock: for pauses.
            sweep: whose mirror it is.
            explain: says in a line what went wrong, without passwords.
            note: tells people something once.
        """
        self._mirror, self._rebuild, self._db, self._background = mirror, rebuild, database, background
        self._clock, self._sweep, self._explain, self._note = clock, sweep, explain, note
        assert sweep.search is not None, "only a search has a mirror"
        constrained = bool(SearchSpec.from_json(sweep.search).constraints)
        self._lookout = Lookout(database, sweep.sweep_id, constrained=constrained)
        self._future: Future[Any] | None = None  # Any: each piece has its own result
        self._take: Callable[[Any], None] | None = None
        self._finish: Take | None = None
        self._study: MirroredStudy | None = None
        """None until contact is made, and again when it is lost."""
        self._points: tuple[str, ...] = ()
        self._due_s = self._began_s = float("-inf")
        self._failures = 0
        self._was_told = False
        self._named: str | None = None
        """The study's name that was told, where it is not the sweep's."""
        self._lag: int | None = None
        self._was_rebuilt = False
        """Whether the study was written anew and nothing has been written to it since."""
        self._is_last = False
        self._is_complete = False
        """Whether the last batch is written and nothing is left."""

    @property
    def futures(self) -> tuple[Future[Any], ...]:  # Any: as in the protocol
        """See `Mirroring`."""
        return () if self._future is None else (self._future,)

    @property
    def lag(self) -> int | None:
        """See `Mirroring`."""
        return self._lag

    def turn(self, fence: int | None) -> None:
        """See `Mirroring`."""
        self._advance()
        if self._busy or self._clock.monotonic_s() < self._due_s:
            return
        if fence is None:
            self._study = None  # whoever leads writes; after that nothing remembered is true
        elif self._study is None:
            self._begin(self._mirror.contact, self._contacted)
        else:
            try:
                self._begin_batch(self._study)
            except ValueError as error:  # a row that no code of ours has written
                self._failed(error)

    def finish(self, fence: int | None) -> bool:
        """See `Mirroring`. What fails now is not waited for: it was told."""
        if fence is None:
            return True
        if not self._is_last:
            self._is_last, self._is_complete, self._due_s = True, False, float("-inf")
        self.turn(fence)
        return not self._busy and (self._is_complete or self._failures > 0)

    def close(self) -> None:
        """See `Mirroring`."""
        if self._lag and self._is_last:
            self._note(
                f"The Optuna study is {self._lag} trials behind; "
                f"`sweeper rebuild {self._sweep.name} --mirror` brings it up to date."
            )
        if self._future is None or self._future.done():
            self._mirror.close()  # else the work under way is left to itself, and to the end of the process

    @property
    def _busy(self) -> bool:
        return self._future is not None or self._finish is not None

    def _begin(self, work: Callable[[], Any], take: Callable[[Any], None]) -> None:  # Any: each piece has its own
        self._take = take
        self._future = self._background.submit(work)

    def _advance(self) -> None:
        """Take what has finished. LedgerUnavailable: call again; what is left to do is kept."""
        if self._future is not None and self._future.done():
            future, take = self._future, self._take
            self._future = self._take = None
            assert take is not None, "every piece of work has something that follows"
            try:
                result = future.result()
            except Exception as error:  # any at all: a mirror that is broken in whatever way stops no sweep
                self._failed(error)
            else:
                self._finish = partial(take, result)
        if self._finish is not None:
            finish = self._finish
            finish()
            if self._finish is finish:
                self._finish = None

    def _contacted(self, study: MirroredStudy) -> None:
        alignment = align_mirror(self._db, self._sweep.sweep_id, study.mark)
        if divisor_for(largest_step(self._db, self._sweep.sweep_id)) > study.divisor:
            self._write_anew("steps of reports are larger than it can hold")
        elif alignment.last_optuna_trial_id is None and alignment.missing > MOST_MISSING and not self._was_rebuilt:
            self._write_anew(f"{alignment.missing} trials are to be shown and it has none")
        else:
            self._begin(partial(self._mirror.strays, alignment.last_optuna_trial_id), partial(self._aligned, study))

    def _aligned(self, study: MirroredStudy, strays: dict[tuple[ConfigHash, int], int]) -> None:
        if strays and adopt_strays(self._db, self._sweep.sweep_id, study.mark, strays) < len(strays):
            self._write_anew("it has entries that fit no trial")
            return
        self._lookout.forget()
        self._points = ()
        self._study = study
        if study.name != self._sweep.name and study.name != self._named:
            self._named = study.name
            self._note(f"A study named {self._sweep.name!r} is somebody else's; this sweep's is {study.name!r}.")

    def _begin_batch(self, study: MirroredStudy) -> None:
        """Read what is to be shown, and have it written."""
        self._began_s = self._clock.monotonic_s()
        batch = self._lookout.batch(self._points, is_last=self._is_last)
        self._lag = self._lookout.lag
        self._due_s = self._clock.monotonic_s() + EVERY_S
        self._begin(partial(self._mirror.write, batch), partial(self._written, study, batch))

    def _written(self, study: MirroredStudy, batch: MirrorBatch, written: MirrorWritten) -> None:
        acknowledge_mirrored(self._db, study.mark, written.acks)
        if written.points:
            enqueue(
                self._db,
                self._sweep.sweep_id,
                [(point.key, dict(point.point)) for point in written.points],
                source=PointSource.MIRROR,
                mirror_ids=[point.optuna_trial_id for point in written.points],
            )
        self._points = tuple(point.key for point in written.points)
        is_all = self._lookout.take(batch, written)
        if written.trouble is not None:
            self._failed(written.trouble)
            return
        self._lag = self._lookout.lag
        if batch.many or not is_all:  # there is more to do, or there soon will be
            now_s = self._clock.monotonic_s()
            rest = LONG_REST if len(batch.many) > 2 * FEW else REST
            self._due_s = now_s if self._is_last else max(self._due_s, now_s + rest * (now_s - self._began_s))
        if self._was_told:
            self._note("The Optuna study is written again.")
        self._failures, self._was_told, self._was_rebuilt = 0, False, False
        self._is_complete = not batch.claims and self._lag == 0

    def _failed(self, error: Exception) -> None:
        """Make contact again, after a pause unless nothing is wrong with the mirror itself."""
        self._study = None
        if isinstance(error, StudyChanged):
            self._due_s = self._clock.monotonic_s()
            return
        if isinstance(error, OutOfLine) and not self._was_rebuilt:
            self._write_anew(str(error))
            return
        # A database that is away for a moment is told by the coordinator, as its own connections tell.
        if not self._was_told and (self._failures or not isinstance(error, LedgerUnavailable)):
            self._note(f"The Optuna study cannot be written; the sweep goes on. {self._explain(error)}")
            self._was_told = True
        log.warning("mirror not written, later again: %s", self._explain(error))
        delay_s = min(RETRY_FIRST_S * 2.0 ** min(self._failures, 10), RETRY_MOST_S)
        self._failures += 1
        self._was_rebuilt = False
        self._due_s = self._clock.monotonic_s() + delay_s

    def _write_anew(self, reason: str) -> None:
        """Write the study anew; if that was done just now and did not help, it is a failure like any other."""
        if self._was_rebuilt:
            self._failed(OutOfLine(reason))
            return
        log.info("mirror written anew sweep=%s: %s", self._sweep.name, reason)
        self._study = None
        self._begin(self._rebuild, self._written_anew)

    def _written_anew(self, _result: object) -> None:
        self._was_rebuilt = True
        self._due_s = self._clock.monotonic_s()
