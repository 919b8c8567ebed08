"""Reports that did not wait for the server's disk, and a server that forgets them: no history has a hole (TRUTH)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from sweeper.checkpoint.outcomes import read_outcome
from sweeper.ledger.database import Database
from sweeper.ledger.reads import reports_of
from sweeper.model.messages import Reported, Stopped, ToWorker
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.waits import ExitStatus, Notice
from sweeper.settings import CheckpointSettings
from tests.simulation.child import expected_value

from .bench import STEPS, Bench
from .searching import ReportingChild, quick, reporting, steps_of


class Forgetful(Database):
    """Loses every report that did not wait for its disk, at once, as a crash right after it would."""

    forgotten = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.saved: dict[int, list[int]] = {}
        """The reports that there were when the checkpoint of a step was committed."""
        self.waited_for: list[list[int]] = []
        """The reports that were written for good, by statement."""

    def run(self, statement: sa.Executable, parameters: Mapping[str, Any] = {}) -> Sequence[sa.Row[Any]]:
        if "manifest_key" in parameters:
            reports = reports_of(self, parameters["trial_id"])
            self.saved[parameters["step"]] = [report.step for report in reports if report.step <= parameters["step"]]
        rows = super().run(statement, parameters)
        if "steps" in parameters and "synchronous_commit" in str(statement) and rows:
            gone = sa.text("DELETE FROM sweeper.reports WHERE trial_id = :id AND step = ANY(:steps) RETURNING step")
            gone = gone.bindparams(sa.bindparam("steps", type_=sa.ARRAY(sa.BigInteger)))
            given = {"id": parameters["trial_id"], "steps": parameters["steps"]}
            self.forgotten += len(super().run(gone, given))
        elif "steps" in parameters:
            self.waited_for.append(parameters["steps"])
        return rows


@pytest.fixture
def forgetful(bench: Bench, ledger_url: str) -> Forgetful:
    bench.database.close()
    bench.database = database = Forgetful(ledger_url, "bench", now=bench.world.database_now)
    return database


def test_a_trial_that_completes_has_all_its_reports(bench: Bench, forgetful: Forgetful) -> None:
    bench.make_child = reporting()
    bench.worker()
    bench.run(200, until=lambda: bench.trial().state is TrialState.COMPLETED)
    assert forgetful.forgotten > 2
    assert steps_of(bench) == list(range(1, STEPS + 1))
    key = bench.trial().outcome_key
    assert key is not None
    assert list(read_outcome(bench.store, key).read_reports()) == reports_of(bench.database, bench.trial().trial_id)


def test_a_result_is_told_in_one_statement_with_the_reports_that_are_left(bench: Bench, forgetful: Forgetful) -> None:
    bench.set(checkpoint=CheckpointSettings(every_s=1000.0))
    bench.make_child = quick(steps=4)
    bench.worker()
    bench.run(200, until=lambda: bench.trial().state is TrialState.COMPLETED)
    assert forgetful.waited_for == [[1, 2, 3, 4]]
    assert steps_of(bench) == [1, 2, 3, 4]


def test_the_first_report_of_a_step_is_the_one_that_stays(bench: Bench, forgetful: Forgetful) -> None:
    """In the outcome object as in the ledger."""

    class Repeating(ReportingChild):
        def _tell(self, message: ToWorker) -> None:
            super()._tell(message)
            if isinstance(message, Reported):
                super()._tell(replace(message, value=message.value + 1.0))

    bench.make_child = lambda process, start, fd: Repeating(process, start, fd, steps=4, padding=0, crash=None)
    bench.worker()
    bench.run(200, until=lambda: bench.trial().state is TrialState.COMPLETED)
    trial = bench.trial()
    totals = [expected_value(trial.config_hash, step) for step in range(1, 5)]
    assert trial.outcome_key is not None
    found = read_outcome(bench.store, trial.outcome_key).read_reports()
    assert [report.value for report in found] == [float(total) for total in totals]
    assert list(found) == reports_of(bench.database, trial.trial_id)


def test_a_result_that_was_taken_away_in_an_outage_of_the_store_has_its_reports(
    bench: Bench, forgetful: Forgetful
) -> None:
    """The outcome object is late, and whoever reconciles writes it from the ledger, which has the reports."""
    bench.set(checkpoint=CheckpointSettings(every_s=1000.0))
    bench.make_child = reporting(steps=4)
    bench.worker()
    bench.run(200, until=lambda: bool(bench.children) and bench.children[0].step == 2)
    bench.weather.store_away_until_s = bench.world.now_s + 2 * bench.settings.outcome_patience_s
    bench.run(500, until=lambda: bench.trial().state is TrialState.COMPLETED)
    assert not bench.trial().outcome_stored
    assert steps_of(bench) == [1, 2, 3, 4]


class GivingUp(ReportingChild):
    """Raises `sweeper.Pruned` after its last step."""

    def _go_on(self) -> None:
        if self.step < self._steps:
            super()._go_on()
            return
        self._tell(Stopped(kind="pruned", step=self.step))
        self._later(0.1, lambda: self._exit(ExitStatus(code=0)))


def test_a_trial_that_pruned_itself_keeps_its_reports_when_the_ledger_answers_only_at_a_deadline(bench: Bench) -> None:
    """The pause between two tries is longer than what is left, so the first to be heard is the end."""
    bench.set(checkpoint=CheckpointSettings(every_s=1000.0))
    bench.make_child = lambda process, start, fd: GivingUp(process, start, fd, steps=STEPS, padding=0, crash=None)
    process = bench.worker()
    bench.run(200, until=lambda: bool(bench.children) and bench.children[0].step == STEPS - 4)
    bench.weather.database_away_until_s = bench.world.now_s + 1e6
    bench.run(200, until=lambda: not bench.children[0].lives)
    bench.run(30.0)
    tries = len(bench.world.trace)
    bench.run(20.0, until=lambda: len(bench.world.trace) > tries)
    process.notify(Notice(source="cloud", reason="reclaimed", deadline_s=process.clock.monotonic_s() + 4.0))
    bench.weather.database_away_until_s = bench.world.now_s
    bench.run(60, until=lambda: not process.alive)
    assert bench.trial().state is TrialState.PRUNED
    assert steps_of(bench) == list(range(1, STEPS + 1))
    assert bench.trial().result == float(bench.children[0]._total)


@pytest.mark.parametrize("how", ["error", "signal"])
def test_so_does_one_that_crashes(bench: Bench, forgetful: Forgetful, how: str) -> None:
    bench.make_child = reporting(how, at_step=STEPS - 1)
    bench.worker()
    bench.run(200, until=lambda: bool(bench.attempts()) and bench.attempts()[0].outcome is not None)
    assert bench.attempts()[0].outcome is AttemptOutcome.CRASHED
    assert forgetful.forgotten > 2
    assert steps_of(bench) == list(range(1, STEPS - 1))


def test_so_does_one_that_is_evicted(bench: Bench, forgetful: Forgetful) -> None:
    bench.make_child = reporting()
    process = bench.worker()
    bench.run(200, until=lambda: bool(bench.children) and bench.children[0].step == STEPS - 2)
    bench.evict(process)
    bench.run(200, until=lambda: not process.alive)
    assert bench.attempts()[0].outcome is AttemptOutcome.EVICTED
    assert forgetful.forgotten > 2
    assert steps_of(bench) == list(range(1, bench.children[0].step + 1))


def test_most_reports_of_a_trial_that_goes_on_are_safe(bench: Bench, forgetful: Forgetful) -> None:
    """Nobody has to wait for its end: what is older than a few seconds was waited for."""
    bench.make_child = reporting()
    bench.worker()
    bench.run(200, until=lambda: bool(bench.children) and bench.children[0].step == STEPS - 1)
    step = bench.children[0].step
    bench.run(6.0)
    assert steps_of(bench)[: step - 4] == list(range(1, step - 3))


def test_no_checkpoint_lies_beyond_a_report_that_could_be_lost(bench: Bench, forgetful: Forgetful) -> None:
    """An attempt that goes on from there would never make it again."""

    bench.make_child = quick(steps=120)
    bench.worker()
    bench.run(200, until=lambda: bench.trial().state is TrialState.COMPLETED)
    assert forgetful.forgotten > 2
    assert len(forgetful.saved) > 1
    for step, reports in forgetful.saved.items():
        assert reports == list(range(1, step + 1))


def test_an_outage_after_the_last_word_keeps_nobody_busy(bench: Bench) -> None:
    """What was written in passing is still to be written for good, for as long as that takes."""
    bench.set(checkpoint=CheckpointSettings(every_s=1000.0))
    bench.make_child = reporting()
    process = bench.worker()
    bench.run(200, until=lambda: bool(bench.children) and bench.children[0].step == STEPS - 2)
    began_s, outage_s = bench.world.now_s, 4 * bench.settings.lease.blind_s
    bench.weather.database_away_until_s = began_s + outage_s
    turns, seconds = process._serial, 0
    while bench.world.now_s < began_s + outage_s - 1:
        bench.run(1.0)
        seconds += 1
        assert process._serial - turns < 20 + 5 * seconds
    bench.run(200, until=lambda: bench.trial().state is TrialState.COMPLETED)
    assert steps_of(bench) == list(range(1, STEPS + 1))
