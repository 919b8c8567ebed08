"""The mirror: a sweep's trials as an Optuna study in the database, for people and their tools to look at.

What cannot be brought in line by changing entries (a finished one whose trial is open again) asks for the whole study
to be written anew.

Everything here runs in the background and may fail in any way that a database, Optuna or whoever altered its tables
can think of; the callers bear all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import RDBStorage

from sweeper.clock import Clock
from sweeper.ids import ConfigHash, RandomHex, SweepId
from sweeper.model.mirror import AskedPoint, FreshReports, MirrorAck, MirrorChange, MirrorTrial, PointAnswer
from sweeper.model.search import SearchSpec
from sweeper.search.mirror_entry import HASH, LINEAGE, STATE, StepTooLarge
from sweeper.search.mirror_study import MARK, Access, MirroredStudy, find_study, make_study, mark_of, open_storage
from sweeper.search.mirror_writing import SUPERSEDED, OutOfLine, StudyWriter

__all__ = ["Mirror", "MirrorBatch", "MirrorWritten", "OutOfLine", "StudyChanged"]

BATCH_S: Final = 1.0
"""After this long the rest of a batch is left for the next one: what began meanwhile goes first there."""
FEW: Final = 12
"""Trials that are added one by one in about half a second."""
MOST_STRAYS: Final = 200
"""Entries that are looked through one by one; with more it is quicker to write the study anew."""


class StudyChanged(Exception):
    """The study is gone, or was written anew by somebody: make contact again. Nothing is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorBatch:
    """What is to be written."""

    trials: Sequence[MirrorTrial] = ()
    many: Sequence[MirrorTrial] = ()
    """Trials without an entry, which are added at once."""
    fresh: Sequence[FreshReports] = ()
    at_once: bool = False
    """Whether it is too much for one call after another."""
    answers: Sequence[PointAnswer] = ()
    claims: bool = False
    """Whether points that people enqueued are taken."""
    abandons: bool = False
    """Whether the search is over, so that points which were not tried never will be."""


@dataclass(slots=True, kw_only=True)
class MirrorWritten:
    """What was written, also of a batch that failed on its way."""

    acks: list[MirrorAck] = field(default_factory=list)
    points: tuple[AskedPoint, ...] = ()
    """For the ledger; each is given until it has an answer."""
    trouble: Exception | None = None


class Mirror:
    """A sweep's mirrored study. Calls follow one another; each may come from another thread."""

    def __init__(
        self, access: Access, *, sweep_id: SweepId, name: str, spec: SearchSpec, clock: Clock, random_hex: RandomHex
    ) -> None:
        """Remember what to show and where; nothing is contacted."""
        self._access, self._sweep_id, self._name, self._spec = access, sweep_id, name, spec
        self._clock, self._random_hex = clock, random_hex
        self._storage: RDBStorage | None = None
        self._writer: StudyWriter | None = None

    def contact(self) -> MirroredStudy:
        """Find the study, or make it; what was remembered of its entries is forgotten."""
        self._writer = None
        try:
            storage = self._storage = self._storage or open_storage(self._access)
            with _session(storage):
                study = self._find(storage)
                if study is None:
                    with self._access.lock(unless=lambda: self._find(storage) is not None):
                        study = self._find(storage) or make_study(
                            storage, self._sweep_id, self._name, self._spec.directions, self._random_hex
                        )
                self._writer = StudyWriter(storage, study, self._spec)
        except BaseException:
            self.close()  # the next contact begins with new connections
            raise
        return study

    def strays(self, last_optuna_trial_id: int | None) -> dict[tuple[ConfigHash, int], int]:
        """Find entries of ours that the ledger does not know, by hash and lineage: those after the last it knows.

        Raises:
            OutOfLine: there are too many, or a trial has several.
        """
        storage, writer = self._of_contact()
        with _session(storage):
            found: dict[tuple[ConfigHash, int], int] = {}
            first = 0 if last_optuna_trial_id is None else _number_of(storage, last_optuna_trial_id) + 1
            for number in range(first, first + MOST_STRAYS):
                try:
                    optuna_trial_id = storage.get_trial_id_from_study_id_trial_number(writer.study.study_id, number)
                except KeyError:
                    return found
                attrs = storage.get_trial(optuna_trial_id).user_attrs
                if HASH not in attrs or attrs.get(STATE) == SUPERSEDED:
                    continue
                key = (ConfigHash(str(attrs[HASH])), int(attrs.get(LINEAGE, 0)))
                if key in found:
                    raise OutOfLine("a trial has two entries")
                found[key] = optuna_trial_id
        raise OutOfLine("the ledger knows nothing of the study's entries")

    def write(self, batch: MirrorBatch) -> MirrorWritten:
        """Write a batch, as far as time and the study allow; what is not acknowledged comes again."""
        written = MirrorWritten()
        try:
            storage, writer = self._of_contact()
            with _session(storage):
                try:
                    self._check_mark()
                    self._write(writer, batch, written)
                except KeyError as error:  # the study went while it was written, or else one of its entries
                    self._check_mark()
                    raise OutOfLine("an entry is gone from the study") from error
        except StepTooLarge as error:
            written.trouble = OutOfLine(str(error))
        except UpdateFinishedTrialError:
            written.trouble = OutOfLine("somebody finished an entry of a trial that goes on")
        except Exception as error:  # any at all: see the module; what was written counts
            written.trouble = error
        return written

    def close(self) -> None:
        """Let go of the database; a later contact opens it again."""
        storage, self._storage, self._writer = self._storage, None, None
        if storage is not None:
            storage.remove_session()
            storage.engine.dispose()
        self._access.close()

    def _find(self, storage: RDBStorage) -> MirroredStudy | None:
        return find_study(storage, self._sweep_id, self._name, self._spec.directions)

    def _of_contact(self) -> tuple[RDBStorage, StudyWriter]:
        if self._storage is None or self._writer is None:
            raise StudyChanged("no contact was made")
        return self._storage, self._writer

    def _check_mark(self) -> None:
        storage, writer = self._of_contact()
        if mark_of(storage, writer.study.study_id) != writer.study.mark:
            raise StudyChanged("the study was written anew, or deleted")

    def _write(self, writer: StudyWriter, batch: MirrorBatch, written: MirrorWritten) -> None:
        give_up_s = self._clock.monotonic_s() + BATCH_S
        trials, fresh = batch.trials, batch.fresh
        if batch.at_once:
            trials, fresh = self._write_at_once(writer, batch, written)
        for trial in trials:
            written.acks.append(writer.show(trial))
            if self._clock.monotonic_s() > give_up_s:
                break
        for one in fresh:
            ack = writer.show_reports(one)
            written.acks += [] if ack is None else [ack]
            if self._clock.monotonic_s() > give_up_s:
                break
        for answer in batch.answers:
            writer.answer(answer)
        if batch.claims:
            writer.claim()
        if batch.abandons:
            writer.abandon()
        written.points = writer.points

    def _write_at_once(
        self, writer: StudyWriter, batch: MirrorBatch, written: MirrorWritten
    ) -> tuple[Sequence[MirrorTrial], Sequence[FreshReports]]:
        """Write new entries and changes of known ones in one transaction; give what is left for single calls."""
        rows = writer.rows(batch.many)
        changes: list[tuple[MirrorTrial | FreshReports, MirrorChange]] = []
        left = []
        for trial in batch.trials:
            change = writer.change(trial)
            if change is None:
                left.append(trial)
            else:
                changes.append((trial, change))
        for fresh in batch.fresh:
            change = writer.change_of_reports(fresh)
            if change is not None:
                changes.append((fresh, change))
        study = writer.study
        ids = self._access.write_at_once(
            study.study_id,
            mark_key=MARK,
            mark=study.mark,
            entries=rows,
            changes=[change for _, change in changes],
        )
        if ids is None:  # tables that we do not know: one by one, as many as time allows
            return [*batch.trials, *batch.many], batch.fresh
        written.acks += [writer.added(trial, id_) for trial, id_ in zip(batch.many, ids, strict=True)]
        written.acks += [writer.changed(what, change) for what, change in changes]
        return left, ()


@contextmanager
def _session(storage: RDBStorage) -> Iterator[None]:
    """Optuna keeps a session for each thread; ours are many, one for each piece of work."""
    try:
        yield
    finally:
        storage.remove_session()


def _number_of(storage: RDBStorage, optuna_trial_id: int) -> int:
    try:
        return storage.get_trial(optuna_trial_id).number
    except KeyError:
        raise OutOfLine("an entry is gone from the study") from None
