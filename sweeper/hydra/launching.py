"""One command's launch calls: jobs in, trials through the ledger, Hydra's results out, in order."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

from hydra.core.utils import JobReturn

from sweeper.cli.progress import open_progress
from sweeper.coordinator.program import CoordinatorEnd
from sweeper.hydra.answering import INTERRUPTED, answering, leave
from sweeper.hydra.command import Command, begin_output
from sweeper.hydra.directories import pin_sweep_dir
from sweeper.hydra.jobs import Job, check_directories, check_secrets, compose_jobs, distinct
from sweeper.hydra.results import job_return
from sweeper.ids import ConfigHash
from sweeper.launch.telling import FailureLog, nothing_to_run, what_failed
from sweeper.ledger.reads import trials as read_trials
from sweeper.model.trial import Sweep, Trial
from sweeper.wiring import ask_for, begin_asking, begin_sweep, coordinate

log = logging.getLogger("sweeper.launcher")
_AGAIN = "run the same command again to go on from there"


class Launch:
    """A command that is set up: called once for each batch of jobs its sweeper makes."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._backends = command.backends
        weakref.finalize(self, command.close)

    def __call__(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
        """Run the jobs; one result per job, in order.

        Raises:
            SystemExit: 2 for bad input, before any row; 75 when the command was told to leave.
            JobCompositionError: a job cannot be composed (Hydra prints it).
        """
        with answering():
            try:
                return self._launch(job_overrides, initial_job_idx)
            except KeyboardInterrupt:
                leave(f"interrupted; {_AGAIN}", INTERRUPTED)

    def _launch(self, job_overrides: Sequence[Sequence[str]], first_index: int) -> list[JobReturn]:
        command, prepared, config = self._command, self._command.prepared, self._command.prepared.config
        begin_output(config)
        jobs = compose_jobs(prepared.loader, config, job_overrides, first_index, prepared.settings.identity)
        check_secrets(jobs, prepared.settings.places)
        wanted = distinct(jobs)
        known = command.known()
        sweep_dir = Path(known.sweep_dir if known else str(config.hydra.sweep.dir))
        check_directories(wanted, sweep_dir, lambda: command.existing(known))
        sweep = begin_sweep(self._backends, command.spec(sweep_dir))
        sweep_dir = Path(sweep.sweep_dir)
        pin_sweep_dir(config, sweep_dir)
        sweep_dir.mkdir(parents=True, exist_ok=True)
        log.info("sweep %r: %s", sweep.name, _summary(jobs, wanted))
        trials, end = self._run(sweep, wanted)
        if end.kind == "evicted":
            leave(f"sweep {sweep.name!r} was interrupted ({end.reason}): {_counts(end)}; {_AGAIN}", INTERRUPTED)
        if end.kind == "workers_failed":
            leave(f"sweep {sweep.name!r} stopped: {end.reason}; {_counts(end)}; {_AGAIN}", 1)
        return [job_return(job, trials[job.config_hash], sweep_dir) for job in jobs]

    def _run(self, sweep: Sweep, wanted: Sequence[Job]) -> tuple[Mapping[ConfigHash, Trial], CoordinatorEnd]:
        """Ask for the trials, coordinate until they are final or the command has to leave, and read them again."""
        backends = self._backends
        with contextlib.closing(begin_asking(backends, sweep)) as asking:
            asked = ask_for(backends, sweep, asking, [job.new_trial for job in wanted])
            numbers = [trial.number for trial in asked]
            sink = FailureLog(
                open_progress(),
                lambda number: next(iter(read_trials(backends.database, sweep.sweep_id, [number])), None),
            )
            try:
                if all(trial.state.final for trial in asked):
                    sink.note(nothing_to_run(sweep.name, asked))
                end = coordinate(
                    backends,
                    sweep,
                    asking,
                    self._command.prepared.settings.coordinator,
                    start_workers=self._command.start_worker,
                    progress=sink,
                )
                found = read_trials(backends.database, sweep.sweep_id, numbers)
                if advice := what_failed(sweep.name, found):
                    sink.note(advice)
            finally:
                sink.close()
        return {trial.config_hash: trial for trial in found}, end


def _summary(jobs: Sequence[Job], wanted: Sequence[Job]) -> str:
    merged = len(jobs) - len(wanted)
    same = f", {merged} of them merged because their configs are the same" if merged else ""
    return f"{len(jobs)} jobs{same}"


def _counts(end: CoordinatorEnd) -> str:
    return ", ".join(f"{count} {state.value}" for state, count in end.counts.items() if count) or "nothing was trained"
