"""A trial that goes on from another one's checkpoint: read as what it is, and never taken for its own (FALLBACK)."""

from __future__ import annotations

import pytest

from sweeper.ids import ConfigHash
from sweeper.ledger.promotions import exploit_trial, newest_checkpoint
from sweeper.model.config_hash import hash_text
from sweeper.model.search import Decision, DecisionKind, Proposal
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.trial import NewTrial
from tests.simulation.child import advance, expected_value

from .bench import STEPS
from .searching import RUNGS, MakeBench, SearchBench, at, go_on, step_of

pytestmark = pytest.mark.slow
RUNG = 5
EXPLORED = '{"x": 99}'


def two_paused(bench: SearchBench) -> None:
    """Trials 0 and 1, both paused at a rung."""
    bench.lead(at(RUNG, "pause"))
    bench.worker("first")
    for number in (0, 1):
        bench.run_to(TrialState.PAUSED, number=number)
    bench.choose = go_on


def exploit(bench: SearchBench, *, heir: int = 1, source: int = 0) -> bool:
    """Let the heir go on from where the source is, with a config that neither had."""
    checkpoint = newest_checkpoint(bench.database, bench.sweep.sweep_id, source)
    assert checkpoint is not None
    trial = bench.trial(heir)
    decision = Decision(
        trial_id=trial.trial_id, number=heir, lineage=trial.lineage, kind=DecisionKind.EXPLOIT, step=RUNG,
        action="go_on",
    )  # fmt: skip
    new = NewTrial(config_hash=hash_text(EXPLORED), config_text=EXPLORED, overrides=("x=99",), params={"x": 99})
    return exploit_trial(
        bench.database, bench.sweep.sweep_id, bench.leader, bench.fence, heir=trial.trial_id,
        source_checkpoint_id=checkpoint, new=new, proposal=Proposal(), decision=decision,
    )  # fmt: skip


def heirs_value(bench: SearchBench, *, from_step: int) -> int:
    """The source's training up to the checkpoint, the heir's own from there."""
    total = expected_value(bench.trial(0).config_hash, from_step)
    for step in range(from_step + 1, STEPS + 1):
        total = advance(total, step, hash_text(EXPLORED))
    return total


def damage(bench: SearchBench, number: int) -> str:
    head = bench.trial(number).head
    assert head is not None
    data = bench.store.objects[head.manifest_key]
    bench.store.objects[head.manifest_key] = data[:-1] + bytes([data[-1] ^ 1])
    return head.manifest_key


def test_an_heir_trains_its_own_config_from_the_sources_state(make_bench: MakeBench) -> None:
    """RESUME: the child is told that it inherits, and which config is its own."""
    bench = make_bench(RUNGS, trials_=2)
    two_paused(bench)
    source = bench.trial(0).head
    assert source is not None
    assert exploit(bench)
    bench.run_to(TrialState.COMPLETED, number=1)
    start = bench.starts[-1]
    assert start.restore is not None
    assert (start.inherited, start.restore["step"]) == (True, source.step)
    assert start.config_hash == hash_text(EXPLORED) != bench.trial(1).config_hash
    assert bench.trial(1).result == heirs_value(bench, from_step=source.step)


def test_an_heir_that_is_evicted_resumes_from_its_own_checkpoint(make_bench: MakeBench) -> None:
    bench = make_bench(RUNGS, trials_=2)
    two_paused(bench)
    source = bench.trial(0).head
    assert source is not None
    assert exploit(bench)
    bench.run(60, until=lambda: len(bench.children) == 3 and step_of(bench) >= source.step + 2)
    bench.evict(bench.world.processes[0])
    bench.run(30)
    bench.worker("second")
    bench.run_to(TrialState.COMPLETED, number=1)
    assert [start.inherited for start in bench.starts[2:]] == [True, False]
    assert bench.trial(1).result == heirs_value(bench, from_step=source.step)


def test_an_heir_whose_first_own_checkpoint_is_bad_inherits_once_more(make_bench: MakeBench) -> None:
    """FALLBACK."""
    bench = make_bench(RUNGS, trials_=2)
    two_paused(bench)
    source = bench.trial(0).head
    assert source is not None
    assert exploit(bench)
    bench.run(60, until=lambda: len(bench.children) == 3 and bench.children[-1].step >= source.step + 1)
    bench.evict(bench.world.processes[0])
    bench.run(30)
    for checkpoint in bench.checkpoints(1):
        if checkpoint.step > source.step or checkpoint.manifest_key != source.manifest_key:
            bench.store.objects[checkpoint.manifest_key] = b"{}"
    bench.worker("second")
    bench.run_to(TrialState.COMPLETED, number=1)
    assert [start.inherited for start in bench.starts[2:]] == [True, True]
    assert bench.trial(1).result == heirs_value(bench, from_step=source.step)


def test_a_bad_inheritance_is_set_aside_and_the_heir_begins_from_zero_and_says_so(make_bench: MakeBench) -> None:
    """FALLBACK: what the heir had trained before belongs to another lineage."""
    bench = make_bench(RUNGS, trials_=2)
    two_paused(bench)
    assert exploit(bench)
    damage(bench, 1)
    bench.run_to(TrialState.COMPLETED, number=1)
    start = bench.starts[-1]
    assert (start.inherited, start.restore) == (False, None)
    assert bench.trial(1).result == expected_value(hash_text(EXPLORED), STEPS)
    last = bench.attempts(1)[-1]
    assert (last.outcome, last.first_step) == (AttemptOutcome.COMPLETED, 0)
    named = f"the checkpoint inherited from trial {bench.trial(0).config_hash[:12]} could not be used"
    assert last.reason is not None
    assert named in last.reason
    assert bench.reports(1) == list(range(1, STEPS + 1))


def test_a_missing_inheritance_is_not_replaced_by_a_manifest_of_the_heirs_past(make_bench: MakeBench) -> None:
    """FALLBACK: the store still holds what the heir trained in its earlier lineage."""
    bench = make_bench(RUNGS, trials_=2)
    two_paused(bench)
    past = bench.trial(1).head
    assert past is not None
    assert exploit(bench)
    head = bench.trial(1).head
    assert head is not None
    assert head.config_hash == ConfigHash(bench.trial(0).config_hash)
    del bench.store.objects[head.manifest_key]
    bench.run_to(TrialState.COMPLETED, number=1)
    assert past.manifest_key in bench.store.objects
    assert bench.starts[-1].restore is None
    assert bench.trial(1).result == expected_value(hash_text(EXPLORED), STEPS)
