"""Paused trials go on, go on as another's heir, or end; what a rung or an heir needs is never collected."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweeper.errors import CoordinatorLost
from sweeper.ledger.checkpoints import (
    collectable_checkpoints,
    forget_checkpoints,
    mark_suspect,
    retire_checkpoints,
)
from sweeper.ledger.commands import cancel_open, cancel_trials, retry_trials
from sweeper.ledger.decisions import decisions, undecided_reports
from sweeper.ledger.pins import pin_head, unpin
from sweeper.ledger.promotions import newest_checkpoint
from sweeper.ledger.reads import checkpoints_of
from sweeper.ledger.results import outcome_gaps
from sweeper.model.search import DecisionKind
from sweeper.model.states import AttemptOutcome, CheckpointState, PinReason, TrialState
from sweeper.model.trial import CheckpointRef
from tests.ledger.search_world import SearchWorld
from tests.ledger.world import new_trial

PROMOTE, EXPLOIT = DecisionKind.PROMOTE, DecisionKind.EXPLOIT


def made(search: SearchWorld, kind: DecisionKind) -> list[tuple[int, int, int]]:
    """Number, lineage and step of each decision."""
    return [(one.number, one.lineage, one.step) for one in decisions(search.db, search.sweep_id, kinds=[kind])]


def pins(search: SearchWorld) -> list[tuple[int, str]]:
    """Who needs what is pinned, by number, and why."""
    rows = search.sql(
        "SELECT t.number, p.reason FROM sweeper.pins p JOIN sweeper.trials t ON t.trial_id = p.trial_id ORDER BY 1, 2"
    )
    return [(row.number, row.reason) for row in rows]


def states(search: SearchWorld, number: int) -> list[tuple[int, str]]:
    """Step and state of the checkpoints that a trial made."""
    return [(ref.step, ref.state.value) for ref in checkpoints_of(search.db, search.trial(number).trial_id)]


def test_a_promoted_trial_goes_on_before_new_ones_from_where_it_paused(search: SearchWorld) -> None:
    grant = search.pause(0)
    head = search.trial(0).head
    search.propose(1)
    assert search.promote(grant)
    again = search.lease()
    assert (again.number, again.head, again.lineage) == (0, head, 0)
    assert made(search, PROMOTE) == [(0, 0, 1)]


def test_a_promotion_happens_once(search: SearchWorld) -> None:
    """A replay is answered as the first time; a trial that is not paused is left alone."""
    grant = search.pause(0)
    assert search.promote(grant)
    version = search.row().version
    assert search.promote(grant)
    assert search.row().version == version
    assert not search.promote(grant, step=2)
    assert made(search, PROMOTE) == [(0, 0, 1)]


def test_a_trial_of_another_lineage_is_not_promoted(search: SearchWorld) -> None:
    grant = search.pause(0)
    assert not search.promote(replace(grant, lineage=1))
    assert search.trial().state is TrialState.PAUSED


def test_a_trial_pauses_and_is_promoted_at_one_rung_after_the_other(search: SearchWorld) -> None:
    grant = search.pause(0, step=1)
    for step in (3, 9):
        assert search.promote(grant, step)
        again = search.lease()
        assert again.stop is None
        grant = search.pause_again(again, step)
    assert search.steps(grant.lease.trial_id) == [1, 3, 9]
    assert search.trial().crashes == 0


def test_a_paused_trial_that_nobody_promotes_ends_with_the_value_of_its_rung(search: SearchWorld) -> None:
    """Its outcome object is written by whoever reconciles (ONCE)."""
    grant = search.run()
    search.report(grant.lease, 1, 2)
    search.save(grant, 1, 20)
    search.decide(search.decision(grant, 1, "pause", kind=DecisionKind.RUNG))
    search.release(grant.lease, AttemptOutcome.PAUSED)
    assert search.prune(grant, result=1.0, step=1)
    assert search.prune(grant, result=1.0, step=1), "a replay"
    row = search.numbered(0)
    assert (row.state, row.result) == (TrialState.PRUNED, 1.0)
    assert [report.step for report in row.reports] == [1]
    (gap,) = outcome_gaps(search.db, search.sweep_id, limit=9)
    assert (gap.state, gap.value, gap.reason) == (TrialState.PRUNED, 1.0, "left over")


def test_a_trial_that_is_not_paused_is_not_pruned_so(search: SearchWorld) -> None:
    grant = search.run()
    assert not search.prune(grant)
    search.complete(grant.lease)
    assert not search.prune(grant)
    assert search.trial().state is TrialState.COMPLETED


def test_a_coordinator_that_was_replaced_moves_nobody(search: SearchWorld) -> None:
    """FENCE."""
    search.pause(0)
    heir = search.pause(1)
    search.lose_the_lead()
    before = search.sql("SELECT t::text FROM sweeper.trials t ORDER BY 1")
    for move in (
        lambda: search.promote(heir),
        lambda: search.prune(heir),
        lambda: search.exploit(heir, 0),
        lambda: cancel_open(search.db, *search.leader, reason="reached"),
    ):
        with pytest.raises(CoordinatorLost):
            move()
    assert search.sql("SELECT t::text FROM sweeper.trials t ORDER BY 1") == before
    assert made(search, PROMOTE) == made(search, EXPLOIT) == []
    assert pins(search) == []


def test_an_heir_goes_on_from_the_better_trials_checkpoint_with_its_own_parameters(search: SearchWorld) -> None:
    """A fenced, recorded inheritance: the number and the hash stay, the lineage is new (PBT)."""
    source = search.pause(0, step=2)
    heir = search.pause(1, step=1)
    assert search.exploit(heir, 0, name="better")
    grant = search.lease()
    assert (grant.number, grant.lineage, grant.config_hash) == (1, 1, heir.config_hash)
    assert (grant.config_text, grant.params) == (new_trial("better").config_text, {"x": 0.9})
    assert grant.head is not None
    assert (grant.head.step, grant.head.config_hash) == (20, source.config_hash)
    assert search.trial(0).head == CheckpointRef(
        **{name: getattr(grant.head, name) for name in grant.head.__slots__ if name != "config_hash"}
    ), "its own for the trial that made it"
    assert grant.threads is None, "the first attempt of this lineage"
    assert made(search, EXPLOIT) == [(1, 0, 1)]
    assert pins(search) == [(1, "heir")]


def test_an_inheritance_happens_once(search: SearchWorld) -> None:
    search.pause(0)
    heir = search.pause(1)
    assert search.exploit(heir, 0)
    before = search.sql("SELECT t::text FROM sweeper.trials t ORDER BY 1")
    assert search.exploit(heir, 0), "a replay"
    assert not search.exploit(heir, 0, step=2), "it is not paused any more"
    assert search.sql("SELECT t::text FROM sweeper.trials t ORDER BY 1") == before
    assert len(search.sql("SELECT 1 FROM sweeper.configs")) == 3


def test_what_is_not_live_is_not_inherited(search: SearchWorld) -> None:
    source = search.pause(0)
    heir = search.pause(1)
    checkpoint_id = newest_checkpoint(search.db, search.sweep_id, 0)
    assert checkpoint_id is not None
    for state in ("'retired', retired_at = 'epoch'", "'suspect', retired_at = NULL"):
        search.sql(f"UPDATE sweeper.checkpoints SET state = {state} WHERE checkpoint_id = {checkpoint_id}")
        assert newest_checkpoint(search.db, search.sweep_id, source.number) is None
        assert not search.exploit(heir, 0, checkpoint_id=checkpoint_id)
    assert search.trial(1).lineage == 0
    other = SearchWorld.begin(search.db, search.clock, name="other")
    foreign = newest_checkpoint(other.db, other.sweep_id, other.pause(0).number)
    assert foreign is not None
    assert not search.exploit(heir, 0, checkpoint_id=foreign)


def test_counters_begin_anew_with_the_inheritance(search: SearchWorld) -> None:
    """FAIR: limits are per lineage."""
    search.pause(0)
    heir = search.pause(1)
    search.sql("UPDATE sweeper.trials SET crashes = 2, no_progress = 2, crash_host = 'h1', crashed_at = 'epoch'")
    assert search.exploit(heir, 0)
    trial = search.trial(1)
    assert (trial.crashes, trial.no_progress, search.row(1).crash_host) == (0, 0, None)


def test_an_heirs_earlier_reports_are_kept_up_to_its_new_head_and_not_decided_again(search: SearchWorld) -> None:
    search.pause(0, step=2)
    grant = search.run(1)
    search.report(grant.lease, 1, 2, 3, 4)
    search.save(grant, 1, 40)
    search.decide(search.decision(grant, 4, "pause", kind=DecisionKind.RUNG))
    search.release(grant.lease, AttemptOutcome.PAUSED)
    assert search.exploit(grant, 0)
    assert search.steps(grant.lease.trial_id) == [1, 2]
    heir = search.lease()
    assert search.steps(grant.lease.trial_id) == [1, 2], "an heir's grant deletes what lies beyond its head"
    search.report(heir.lease, 2, 3)
    found = undecided_reports(search.db, search.sweep_id, kind=DecisionKind.RUNG, limit=9)
    assert [(number, lineage, report.step) for _, number, lineage, report in found] == [(1, 1, 2), (1, 1, 3)]


def test_what_an_heir_needs_is_neither_retired_nor_collected(search: SearchWorld) -> None:
    paused = search.pause(0)
    search.promote(paused)
    source = search.lease()
    heir = search.pause(1)
    assert search.exploit(heir, 0)
    for seq in range(2, 6):
        search.save(source, seq, 100 * seq)
    assert [ref.step for ref in retire_checkpoints(search.db, source.lease, keep=1)] == [200, 300, 400]
    assert states(search, 0)[0] == (10, "live")
    search.complete(source.lease)
    search.sql("UPDATE sweeper.checkpoints SET state = 'retired', retired_at = 'epoch'")
    collectable = collectable_checkpoints(search.db, search.sweep_id, older_than_s=0, limit=99)
    assert [ref.step for ref in collectable] == [10, 200, 300, 400], "the heir's own, and the source's later ones"
    assert {ref.manifest_key.split("/")[1] for ref in collectable if ref.step == 10} == {heir.config_hash}
    forget_checkpoints(search.db, checkpoints_of(search.db, source.lease.trial_id))
    assert [step for step, _ in states(search, 0)] == [10, 500]


def test_an_heir_lets_go_of_what_it_inherited_once_it_has_enough_of_its_own(search: SearchWorld) -> None:
    search.pause(0)
    heir = search.pause(1)
    assert search.exploit(heir, 0)
    cancel_trials(search.db, search.sweep_id, [0])
    search.sql("UPDATE sweeper.trials SET head_id = NULL, head_step = NULL WHERE number = 0")
    grant = search.lease()
    search.save(grant, 1, 20)
    retire_checkpoints(search.db, grant.lease, keep=2)
    assert pins(search) == [(1, "heir")]
    search.save(grant, 2, 30)
    retire_checkpoints(search.db, grant.lease, keep=2)
    assert pins(search) == []
    assert states(search, 0) == [(10, "retired")], "nobody else would retire it: its own trial has ended"


def test_an_heir_whose_first_checkpoint_is_bad_falls_back_on_what_it_inherited(search: SearchWorld) -> None:
    """FALLBACK."""
    source = search.pause(0, step=2)
    heir = search.pause(1)
    assert search.exploit(heir, 0)
    grant = search.lease()
    own = search.save(grant, 1, 30)
    assert grant.head is not None
    previous = mark_suspect(search.db, grant.lease, own, evidence="bad digest")
    assert previous == grant.head
    assert previous.config_hash == source.config_hash
    assert mark_suspect(search.db, grant.lease, previous, evidence="bad digest") is None
    assert states(search, 0) == [(20, "suspect")]
    assert search.trial(1).head is None


def test_an_heir_that_is_run_again_from_zero_has_its_first_parameters(search: SearchWorld) -> None:
    """The config that its hash names; what it inherited is let go."""
    search.pause(0)
    heir = search.pause(1)
    assert search.exploit(heir, 0)
    search.complete(search.lease().lease)
    retry_trials(search.db, search.sweep_id, [1], from_zero=True)
    grant = search.lease()
    assert (grant.lineage, grant.config_text, grant.head) == (2, heir.config_text, None)
    assert search.numbered(1).proposal.params == {"x": 0.1}
    assert pins(search) == []


def test_an_heir_that_failed_is_retried_from_its_inheritance(search: SearchWorld) -> None:
    search.pause(0)
    heir = search.pause(1)
    assert search.exploit(heir, 0)
    grant = search.lease()
    search.sql("UPDATE sweeper.trials SET crashes = 50 WHERE number = 1")
    search.release(grant.lease, AttemptOutcome.CRASHED)
    assert retry_trials(search.db, search.sweep_id, None, from_zero=False)
    search.clock.advance(1000)
    assert search.lease().head == grant.head


def test_an_heir_of_an_heir_needs_only_the_newest(search: SearchWorld) -> None:
    search.pause(0)
    heir = search.pause(1)
    assert search.exploit(heir, 0)
    grant = search.lease()
    search.pause_again(grant, 5)
    search.pause(2, step=7)
    assert search.exploit(grant, 2, step=5)
    assert pins(search) == [(1, "heir")]
    assert search.trial(1).lineage == 2
    assert states(search, 1) == [(10, "retired"), (50, "retired")], "of lineages that are over"
    assert search.lease().head is not None


def test_a_source_that_is_run_again_from_zero_keeps_what_its_heir_needs(search: SearchWorld) -> None:
    search.pause(0)
    heir = search.pause(1)
    assert search.exploit(heir, 0)
    cancel_trials(search.db, search.sweep_id, [0])
    retry_trials(search.db, search.sweep_id, [0], from_zero=True)
    assert states(search, 0) == [(10, "live")]
    assert search.lease().head is not None


def test_a_rungs_checkpoint_is_kept_while_it_is_pinned(search: SearchWorld) -> None:
    grant = search.pause(0)
    assert pin_head(search.db, grant.lease.trial_id, PinReason.RUNG)
    assert pin_head(search.db, grant.lease.trial_id, PinReason.RUNG), "a replay"
    search.promote(grant)
    again = search.lease()
    for seq in (1, 2, 3):
        search.save(again, seq, 100 * seq)
    retire_checkpoints(search.db, again.lease, keep=1)
    assert states(search, 0) == [(10, "live"), (100, "retired"), (200, "retired"), (300, "live")]
    unpin(search.db, grant.lease.trial_id, PinReason.RUNG)
    retire_checkpoints(search.db, again.lease, keep=1)
    assert states(search, 0)[0] == (10, "retired")


def test_what_was_pinned_for_a_trial_that_ended_is_retired_with_the_pin(search: SearchWorld) -> None:
    grant = search.pause(0)
    pin_head(search.db, grant.lease.trial_id, PinReason.RUNG)
    search.promote(grant)
    again = search.lease()
    search.save(again, 1, 100)
    search.complete(again.lease)
    unpin(search.db, grant.lease.trial_id, PinReason.RUNG)
    assert states(search, 0) == [(10, "retired"), (100, "live")]


def test_an_heirs_pin_cannot_be_given_up_while_it_begins_there(search: SearchWorld) -> None:
    search.pause(0)
    heir = search.pause(1)
    assert search.exploit(heir, 0)
    unpin(search.db, heir.lease.trial_id, PinReason.HEIR)
    assert pins(search) == [(1, "heir")]


def test_a_trial_without_a_checkpoint_has_nothing_to_pin(search: SearchWorld) -> None:
    grant = search.run()
    assert not pin_head(search.db, grant.lease.trial_id, PinReason.RUNG)
    assert newest_checkpoint(search.db, search.sweep_id, 0) is None


def test_a_sweep_with_heirs_can_be_deleted(search: SearchWorld) -> None:
    search.pause(0)
    heir = search.pause(1)
    assert search.exploit(heir, 0)
    search.sql("DELETE FROM sweeper.sweeps")
    for table in ("trials", "checkpoints", "pins", "decisions", "configs"):
        assert search.sql(f"SELECT 1 FROM sweeper.{table}") == []


def test_an_end_by_target_cancels_whatever_is_open(search: SearchWorld) -> None:
    search.pause(0)
    running = search.run(1)
    search.complete(search.run(2).lease)
    search.propose(3)
    assert cancel_open(search.db, *search.leader, reason="the target was reached") == 3
    assert cancel_open(search.db, *search.leader, reason="the target was reached") == 0
    assert [search.numbered(number).state for number in range(4)] == [
        TrialState.CANCELLED, TrialState.CANCELLED, TrialState.COMPLETED, TrialState.CANCELLED,
    ]  # fmt: skip
    assert search.row(1).reason == "the target was reached"
    assert search.attempts(1)[0].outcome is AttemptOutcome.CANCELLED
    assert running.number == 1
    assert CheckpointState(states(search, 0)[0][1]) is CheckpointState.LIVE
