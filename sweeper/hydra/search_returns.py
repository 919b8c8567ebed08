"""What a search returns to Hydra: one `JobReturn` for each number, made when somebody looks at it.

A search may have tens of thousands of numbers, Hydra's own main never looks, and each result takes a composition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import overload

from hydra.core.utils import JobReturn, JobRuntime, JobStatus

from sweeper.errors import TrialFailed
from sweeper.hydra.command import Command
from sweeper.hydra.composing import HydraComposer
from sweeper.hydra.jobs import Job
from sweeper.hydra.results import job_return
from sweeper.model.search import Numbered
from sweeper.model.trial import NewTrial, Trial


class Batch(Sequence[JobReturn]):
    """Results of consecutive numbers, each made once."""

    def __init__(self, numbers: range, make: Callable[[int], JobReturn]) -> None:
        self._numbers = numbers
        self._make = make
        self._made: dict[int, JobReturn] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> JobReturn: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[JobReturn]: ...

    def __getitem__(self, index: int | slice) -> JobReturn | Sequence[JobReturn]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        number = self._numbers[index]
        if number not in self._made:
            self._made[number] = self._make(number)
        return self._made[number]

    def __iter__(self) -> Iterator[JobReturn]:
        return (self[at] for at in range(len(self)))


class SearchReturns:
    """Makes the result of a number from the ledger's rows as they were read at the end."""

    def __init__(
        self, command: Command, composer: HydraComposer, rows: Sequence[Numbered], trials: Sequence[Trial]
    ) -> None:
        self._command = command
        self._composer = composer
        self._rows = rows
        self._trials: dict[int, Trial] = {trial.number: trial for trial in trials}

    def batches(self, size: int | None) -> list[Batch]:
        """Give all results in order, so many in a batch; all in one batch by default."""
        count = len(self._rows)
        step = size or max(count, 1)
        return [Batch(range(start, min(start + step, count)), self.of) for start in range(0, count, step)]

    def of(self, number: int) -> JobReturn:
        """Give one number's result; an alias has its trial's, a refused number has failed with the reason."""
        row = self._rows[number]
        if row.first_number is None:
            return self._refused(row)
        trial = self._trials[row.first_number]
        prepared = self._command.prepared
        config = prepared.loader.compose(prepared.config, trial.overrides, position=number)
        new_trial = NewTrial(config_hash=trial.config_hash, config_text="", overrides=trial.overrides)
        job = Job(index=number, overrides=trial.overrides, config=config, new_trial=new_trial)
        return job_return(job, trial, Path(str(prepared.config.hydra.sweep.dir)))

    def _refused(self, row: Numbered) -> JobReturn:
        overrides = self._composer.overrides(row.proposal.params)
        reason = self._composer.reason(row.number, row.proposal.params)
        result = JobReturn(overrides=overrides, task_name=JobRuntime.instance().get("name"))
        result.status = JobStatus.FAILED
        result.return_value = TrialFailed(f"number {row.number} was refused: {reason}")
        return result
