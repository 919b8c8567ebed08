"""A worker's life on a real ledger, under virtual time."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import sqlalchemy as sa

from sweeper.checkpoint.outcomes import read_outcome, write_outcome
from sweeper.ledger.commands import cancel_trials
from sweeper.ledger.highwater import note_rollback
from sweeper.ledger.leases import release_trial
from sweeper.ledger.reads import reports_of
from sweeper.model.messages import Finished, Start, Stop, ToWorker
from sweeper.model.outcome import Outcome
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.waits import ExitStatus
from sweeper.settings import CheckpointSettings
from tests.simulation.child import SimChild, expected_value
from tests.simulation.world import Process

from .bench import STEPS, Bench, crashing_child, plain_child


def _value(bench: Bench, number: int = 0) -> int:
    return expected_value(bench.trial(number).config_hash, STEPS)


def test_a_trial_is_trained_once_and_its_outcome_lies_in_the_store(bench: Bench) -> None:
    """ONCE: outcome object and row say the same."""
    bench.worker()
    bench.run(60)
    trial = bench.trial()
    assert (trial.state, trial.result, trial.outcome_stored) == (TrialState.COMPLETED, _value(bench), True)
    assert trial.outcome_key is not None
    assert read_outcome(bench.store, trial.outcome_key).value == _value(bench)
    assert [a.outcome for a in bench.attempts()] == [AttemptOutcome.COMPLETED]


def test_a_child_that_dies_without_a_word_has_crashed_whatever_its_status(bench: Bench) -> None:
    """FAIR: it is a crash; its reason names the signal; the trial is tried again and ends right."""
    bench.make_child = crashing_child("signal", 3)
    bench.worker()
    bench.run(60, until=lambda: len(bench.children) == 1 and not bench.children[0].lives)
    bench.make_child = plain_child
    bench.run(120)
    first, second = bench.attempts()
    assert (first.outcome, first.reason, first.exit_code) == (
        AttemptOutcome.CRASHED, "killed by signal SIGSEGV", -11,
    )  # fmt: skip
    assert second.outcome is AttemptOutcome.COMPLETED
    assert (bench.trial().crashes, bench.trial().result) == (1, _value(bench))


def test_a_save_sealed_before_the_childs_death_is_still_committed(bench: Bench) -> None:
    """RESUME: the next attempt goes on from what the dead child had sealed."""

    class DiesAfterSealing(SimChild):
        def _save(self) -> None:
            super()._save()
            self._crash = "signal"
            self._die()

    def make(process: Process, start: Start, restore_fd: int | None) -> SimChild:
        return DiesAfterSealing(process, start, restore_fd, steps=STEPS, padding=0, crash=None)

    bench.make_child = make
    bench.worker()
    bench.run(60, until=lambda: len(bench.children) == 1 and not bench.children[0].lives)
    step = bench.children[0].step
    bench.make_child = plain_child
    bench.run(120)
    assert bench.starts[1].restore is not None
    assert bench.starts[1].restore["step"] == step > 0
    assert bench.trial().result == _value(bench)


@pytest.mark.parametrize("look", range(1, 9))
def test_a_child_that_exits_between_two_looks_is_noticed_at_once(bench: Bench, look: int) -> None:
    """A worker that missed it would wake for its next heartbeat only, and its trial would end so much later."""

    class Leaving(SimChild):
        """Has told its last; its process ends just before the worker's n-th look from then on."""

        looks = 0
        finished_s = -1.0

        def receive(self) -> list[ToWorker]:
            messages = super().receive()
            if any(isinstance(message, Finished) for message in messages):
                self.finished_s = self._world.now_s
            return messages

        @property
        def exited(self) -> ExitStatus | None:
            if self.finished_s >= 0 and self._status is None:
                self.looks += 1
                if self.looks == look:
                    self._status = ExitStatus(code=0)
            return super().exited

    def leaving(process: Process, start: Start, restore_fd: int | None) -> SimChild:
        return Leaving(process, start, restore_fd, steps=STEPS, padding=0, crash=None)

    bench.make_child = leaving
    bench.worker()
    bench.run(100, until=lambda: bench.trial().state is TrialState.COMPLETED)
    (child,) = bench.children
    assert bench.trial().state is TrialState.COMPLETED
    assert bench.world.now_s - child.finished_s < 2.0, "stores and commits included"  # type: ignore[attr-defined]


def test_a_notice_saves_gives_the_trial_back_and_ends_with_75(bench: Bench) -> None:
    """RESUME, FAIR: nothing is lost, no crash is counted, no lease is left behind."""
    process = bench.worker()
    bench.run(60, until=lambda: bool(bench.children) and bench.children[0].step >= 2)
    bench.evict(process)
    bench.run(60)
    assert process.result.status == 75
    trial, child = bench.trial(), bench.children[0]
    assert (trial.state, trial.crashes, trial.lease_id) == (TrialState.PENDING, 0, None)
    assert bench.attempts()[0].outcome is AttemptOutcome.EVICTED
    assert bench.attempts()[0].reason == "signal: SIGTERM"
    assert trial.head is not None
    assert trial.head.step == child.step
    bench.worker("later")
    bench.run(60)
    assert bench.starts[-1].restore is not None
    assert bench.trial().result == _value(bench)


def test_a_function_that_returns_during_the_drain_completes(bench: Bench) -> None:
    """FAIR: the last step's result is not thrown away."""
    process = bench.worker()
    bench.run(60, until=lambda: bool(bench.children) and bench.children[0].step == STEPS - 1)
    bench.evict(process)
    bench.run(60)
    assert process.result.status == 75
    assert bench.trial().state is TrialState.COMPLETED


def test_a_second_notice_changes_nothing_but_the_deadline(bench: Bench) -> None:
    """PR-06: SIGTERM twice, one second apart; the save is whole."""
    process = bench.worker()
    bench.run(60, until=lambda: bool(bench.children) and bench.children[0].step >= 2)
    bench.evict(process)
    bench.run(1)
    bench.evict(process)
    bench.run(60)
    stops = [m for m in bench.children[0]._inbox if isinstance(m, Stop)]
    assert len(stops) <= 1
    assert bench.attempts()[0].outcome is AttemptOutcome.EVICTED
    head = bench.trial().head
    assert head is not None
    assert head.step == bench.children[0].step


def test_a_worker_told_to_leave_between_leases_leaves_none_behind(bench: Bench) -> None:
    """PR-06: the notice is already there when the worker starts."""
    process = bench.worker()
    bench.evict(process)
    bench.run(30)
    assert process.result.status == 75
    assert bench.trial().state in (TrialState.PENDING,)


def test_an_earlier_outcome_is_adopted_and_nothing_is_trained(bench: Bench) -> None:
    """ONCE: the object was written, then the worker died before the row."""
    grant = bench.lease()
    outcome = Outcome(
        sweep_id=grant.sweep_id, config_hash=grant.config_hash, number=0, lineage=grant.lineage,
        fence=grant.lease.fence, lease_id=grant.lease.lease_id, state=TrialState.COMPLETED, reason="returned",
        value=123, step=9,
    )  # fmt: skip
    key, _ = write_outcome(bench.store, outcome)
    failed = replace(outcome, state=TrialState.FAILED, fence=7, value=None)
    write_outcome(bench.store, failed)
    release_trial(bench.database, grant.lease, outcome=AttemptOutcome.EVICTED, reason="gone")
    bench.worker()
    bench.run(30)
    assert bench.starts == []
    assert (bench.trial().state, bench.trial().result) == (TrialState.COMPLETED, 123)
    assert bench.attempts()[-1].adopted_from == key


def test_what_is_adopted_brings_its_reports_along(bench: Bench) -> None:
    """TRUTH: the grant deletes reports from beyond the head, for training that then does not happen."""
    reports = ((3, 3, 0.5, {"loss": 0.25}), (6, 6, {"$float": "nan"}, {}))
    grant = bench.lease()
    outcome = Outcome(
        sweep_id=grant.sweep_id, config_hash=grant.config_hash, number=0, lineage=grant.lineage,
        fence=grant.lease.fence, lease_id=grant.lease.lease_id, state=TrialState.COMPLETED, reason="returned",
        value=123, step=9, reports=reports,
    )  # fmt: skip
    write_outcome(bench.store, outcome)
    release_trial(bench.database, grant.lease, outcome=AttemptOutcome.EVICTED, reason="gone")
    bench.worker()
    bench.run(30)
    first, second = reports_of(bench.database, bench.trial().trial_id)
    assert (first.step, first.at_step, first.value, first.metrics) == (3, 3, 0.5, {"loss": 0.25})
    assert math.isnan(second.value)
    assert bench.trial().step == 9


def test_the_outcome_object_tells_which_parameters_led_to_it(bench: Bench) -> None:
    """ONCE: the store alone is enough to know what ran."""
    bench.worker()
    bench.run(60)
    key = bench.trial().outcome_key
    assert key is not None
    assert read_outcome(bench.store, key).params == {"x": 0}


def test_after_a_rollback_a_first_grant_adopts_what_had_finished(bench: Bench) -> None:
    """ONCE: the ledger was put back to before the trial had ever run; its outcome object is enough to know."""
    bench.worker("first")
    bench.run(60)
    value = bench.trial().result
    bench.forget()
    note_rollback(bench.database, bench.sweep.sweep_id, seen_fence=1)
    bench.worker("second")
    bench.run(60)
    assert len(bench.starts) == 1, "trained once"
    assert (bench.trial().state, bench.trial().result, bench.trial().fence) == (TrialState.COMPLETED, value, 2)


def test_after_a_rollback_a_trial_goes_on_from_the_newest_manifest_of_that_time(bench: Bench) -> None:
    """RESUME: rows of checkpoints were lost; only manifests of fences up to the highest seen count."""
    process = bench.worker("first")
    bench.run(60, until=lambda: len(bench.checkpoints()) >= 2)
    bench.evict(process)
    bench.run(60)
    head = bench.trial().head
    assert head is not None
    bench.forget()
    note_rollback(bench.database, bench.sweep.sweep_id, seen_fence=1)
    bench.worker("second")
    bench.run(100)
    restore = bench.starts[-1].restore
    assert restore is not None
    assert restore["step"] == head.step
    assert bench.attempts()[-1].first_step == head.step
    assert bench.trial().result == _value(bench)


def test_a_worker_whose_grant_the_ledger_never_heard_of_notes_the_loss(bench: Bench) -> None:
    """ONCE: a failover lost the last seconds; whoever is granted something from now on looks in the store first."""
    bench.make_child = lambda process, start, fd: SimChild(process, start, fd, steps=1000, padding=0, crash=None)
    process = bench.worker("first")
    bench.run(60, until=lambda: len(bench.checkpoints()) >= 1)
    bench.forget()
    bench.run(40, until=lambda: len(bench.children) == 2)
    assert not bench.children[0].lives
    assert [start.fence for start in bench.starts] == [1, 2], "above the one that was lost"
    assert bench.starts[1].restore is not None
    assert process.alive


def test_a_grant_that_comes_during_the_drain_starts_no_child(bench: Bench) -> None:
    """PR-06: the ledger was away, a notice came, then the reply: the trial is given back unharmed."""
    bench.weather.database_away_until_s = bench.world.now_s + 1e9
    process = bench.worker()
    bench.run(1)
    bench.evict(process)
    bench.run(1)
    bench.weather.database_away_until_s = 0.0
    bench.run(30)
    assert process.result.status == 75
    assert bench.starts == []
    assert bench.trial().state is TrialState.PENDING


def test_an_outcome_of_another_lineage_is_no_evidence(bench: Bench) -> None:
    """ONCE: history that was cut is void; the trial trains."""
    grant = bench.lease()
    outcome = Outcome(
        sweep_id=grant.sweep_id, config_hash=grant.config_hash, number=0, lineage=grant.lineage + 1,
        fence=grant.lease.fence, lease_id=grant.lease.lease_id, state=TrialState.COMPLETED, reason="returned",
        value=123, step=9,
    )  # fmt: skip
    write_outcome(bench.store, outcome)
    release_trial(bench.database, grant.lease, outcome=AttemptOutcome.EVICTED, reason="gone")
    bench.worker()
    bench.run(60)
    assert bench.trial().result == _value(bench)


def test_a_lost_lease_ends_the_child_and_writes_nothing_more(bench: Bench) -> None:
    """FENCE: cancelled by command; the next heartbeat is refused."""
    bench.make_child = lambda process, start, fd: SimChild(process, start, fd, steps=1000, padding=0, crash=None)
    process = bench.worker()
    bench.run(60, until=lambda: len(bench.checkpoints()) >= 1)
    cancel_trials(bench.database, bench.sweep.sweep_id, [0])
    objects = dict(bench.store.objects)
    checkpoints = bench.checkpoints()
    bench.run(60)
    assert not bench.children[0].lives
    assert bench.trial().state is TrialState.CANCELLED
    assert [c.manifest_key for c in bench.checkpoints()] == [c.manifest_key for c in checkpoints]
    assert all(bench.store.objects[key] == data for key, data in objects.items()), "deletes nothing"
    assert process.alive, "and goes on with other trials"


def test_a_store_that_is_away_at_the_finish_does_not_hold_the_result_for_ever(bench: Bench) -> None:
    """ONCE: after a minute the row is committed without the object."""
    bench.set(checkpoint=replace(bench.settings.checkpoint, every_s=1000.0))
    bench.worker()
    bench.run(60, until=lambda: bool(bench.children) and bench.children[0].step >= STEPS - 1)
    bench.weather.store_away_until_s = bench.world.now_s + 1000
    bench.run(40)
    assert bench.trial().state is TrialState.RUNNING
    bench.run(90)
    trial = bench.trial()
    assert (trial.state, trial.outcome_stored, trial.result) == (TrialState.COMPLETED, False, _value(bench))


def test_a_store_that_does_not_answer_a_restore_is_nobodys_crash(busy_bench: Bench) -> None:
    """FAIR: environment, not crashed; nothing is leased until a probe passes, then everything completes."""
    bench = busy_bench
    process = bench.worker("first")
    bench.run(60, until=lambda: len(bench.checkpoints()) >= 1)
    bench.evict(process)
    bench.run(60)
    bench.weather.store_away_until_s = bench.world.now_s + 300
    bench.worker("second")
    bench.run(290)
    assert [a.outcome for a in bench.attempts()] == [AttemptOutcome.EVICTED, AttemptOutcome.ENVIRONMENT]
    assert bench.attempts(1) == [], "no other trial was burnt"
    bench.run(400)
    assert {bench.trial(n).state for n in range(3)} == {TrialState.COMPLETED}
    assert {bench.trial(n).crashes for n in range(3)} == {0}


def test_two_startup_crashes_on_different_trials_close_the_worker(busy_bench: Bench) -> None:
    """FAIR: a sick machine would fail the whole sweep alone."""
    bench = busy_bench
    bench.make_child = crashing_child("signal", 0)
    process = bench.worker()
    bench.run(60)
    assert process.result.status == 70
    assert sum(bench.trial(n).crashes for n in range(3)) == 2


def test_startup_crashes_of_one_trial_fail_that_trial_alone(bench: Bench) -> None:
    """FAIR: the third crash fails it; the worker goes on."""
    bench.make_child = crashing_child("signal", 0)
    process = bench.worker()
    bench.run(200)
    assert process.alive
    assert (bench.trial().state, bench.trial().crashes) == (TrialState.FAILED, 3)


def test_a_hang_is_ended_as_a_crash_that_says_so(bench: Bench) -> None:
    """No safe point for the configured time."""
    bench.set(hang_s=30.0)
    bench.make_child = crashing_child("hang", 2)
    bench.worker()
    bench.run(100, until=lambda: any(a.outcome for a in bench.attempts()))
    assert bench.attempts()[0].outcome is AttemptOutcome.CRASHED
    assert bench.attempts()[0].reason == "hang: no safe point for 30 s"


def test_an_outage_of_the_ledger_is_trained_through(bench: Bench) -> None:
    """BLIND: the child goes on; what was made meanwhile is committed afterwards."""
    bench.make_child = lambda process, start, fd: SimChild(process, start, fd, steps=40, padding=0, crash=None)
    bench.worker()
    bench.run(60, until=lambda: len(bench.checkpoints()) >= 1)
    bench.weather.database_away_until_s = bench.world.now_s + 90
    bench.run(200)
    assert bench.trial().result == expected_value(bench.trial().config_hash, 40)
    assert [a.outcome for a in bench.attempts()] == [AttemptOutcome.COMPLETED]


def test_a_worker_that_was_blind_too_long_saves_and_stops_its_child(bench: Bench) -> None:
    """BLIND: after blind_s the child is stopped; what it staged is kept and committed when the ledger is back."""
    bench.make_child = lambda process, start, fd: SimChild(process, start, fd, steps=1000, padding=0, crash=None)
    bench.worker()
    bench.run(60, until=lambda: len(bench.checkpoints()) >= 1)
    before = bench.trial().head
    assert before is not None
    bench.weather.database_away_until_s = bench.world.now_s + 300
    bench.run(250)
    child = bench.children[0]
    assert not child.lives
    bench.run(60)
    head = bench.trial().head
    assert bench.attempts()[0].outcome is AttemptOutcome.EVICTED
    assert head is not None
    assert head.step > before.step


def test_a_damaged_head_is_set_aside_for_the_previous_one(bench: Bench) -> None:
    """FALLBACK: one flipped byte; the trial resumes from the checkpoint before and ends right."""
    process = bench.worker("first")
    bench.run(60, until=lambda: len(bench.checkpoints()) >= 2)
    bench.evict(process)
    bench.run(60)
    head = bench.trial().head
    assert head is not None
    data = bench.store.objects[head.manifest_key]
    bench.store.objects[head.manifest_key] = data[:-1] + bytes([data[-1] ^ 1])
    bench.worker("second")
    bench.run(100)
    restore = bench.starts[1].restore
    assert restore is not None
    assert 0 < restore["step"] < head.step
    assert bench.trial().result == _value(bench)


def test_a_missing_head_is_looked_for_in_the_store_before_falling_back(bench: Bench) -> None:
    """FALLBACK: a newer valid manifest without a row (the ledger lost it) is adopted."""
    process = bench.worker("first")
    bench.run(60, until=lambda: len(bench.checkpoints()) >= 2)
    bench.evict(process)
    bench.run(60)
    newest = bench.trial().head
    assert newest is not None
    older = bench.checkpoints()[0]
    del bench.store.objects[newest.manifest_key]
    bench.worker("second")
    bench.run(100)
    restore = bench.starts[1].restore
    assert restore is not None
    assert restore["step"] >= older.step
    assert bench.trial().result == _value(bench)


def test_a_child_that_must_be_looked_at_is_looked_at_then(bench: Bench) -> None:
    """The limit of its start runs out between two heartbeats: what follows must not wait for the next of them."""

    class Starting(SimChild):
        """Says nothing, and is to be looked at 20 s after its start, by its own clock (others drift)."""

        looked_s: list[float]

        @property
        def look_again_s(self) -> float:
            now_s = self._process.clock.monotonic_s()
            self.due_s = getattr(self, "due_s", now_s + 20.0)
            return self.due_s if now_s < self.due_s else float("inf")

        def receive(self) -> list[ToWorker]:
            self.looked_s = [*getattr(self, "looked_s", ()), self._world.now_s]
            return super().receive()

        def _begin(self) -> None:
            return

    def starting(process: Process, start: Start, restore_fd: int | None) -> SimChild:
        return Starting(process, start, restore_fd, steps=STEPS, padding=0, crash=None)

    bench.make_child = starting
    bench.worker()
    bench.run(29)
    (child,) = bench.children
    assert any(19.0 <= look_s < 22.0 for look_s in child.looked_s), child.looked_s  # type: ignore[attr-defined]


def test_a_lost_lease_keeps_nobody_busy_while_its_child_dies(bench: Bench) -> None:
    """The upload that was under way is done, and nobody collects it."""

    class Dying(SimChild):
        killed = False

        def kill(self) -> None:
            if not self.killed:
                self.killed = True
                self._world.after(20.0, super().kill)

    bench.set(checkpoint=CheckpointSettings(every_s=1.0))
    bench.make_child = lambda process, start, fd: Dying(process, start, fd, steps=STEPS, padding=0, crash=None)
    process = bench.worker()
    bench.run(60, until=lambda: bool(bench.children) and bench.children[0]._in_flight is not None)
    lost = "UPDATE sweeper.trials SET state = 'pending', lease_id = NULL, worker_id = NULL, lease_expires_at = NULL"
    bench.database.run(sa.text(lost))
    (child,) = bench.children
    bench.run(60, until=lambda: child.killed)  # type: ignore[attr-defined]
    turns = process._serial
    bench.run(15.0, until=lambda: process._serial - turns > 1000)
    assert process._serial - turns < 100
