"""An outcome object is enough to know how a trial ended (ONCE)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweeper.checkpoint.outcomes import find_outcomes, read_config, read_outcome, write_config, write_outcome
from sweeper.checkpoint.sealed import object_hash, seal
from sweeper.checkpoint.store import ObjectStore
from sweeper.errors import CheckpointCorrupt, ObjectExists, ObjectMissing
from sweeper.ids import ConfigHash, LeaseId
from sweeper.model.outcome import Outcome
from sweeper.model.states import TrialState
from tests.checkpoint.saves import CONFIG, LEASE, SWEEP, TRIAL, small_save

OUTCOME = Outcome(
    sweep_id=SWEEP,
    config_hash=CONFIG,
    number=3,
    lineage=0,
    fence=2,
    lease_id=LEASE,
    state=TrialState.COMPLETED,
    reason="returned",
    value={"$float": "-0.0"},
    step=100,
    params={"lr": 0.1},
    reports=((1, 10, 0.5, {}), (2, 20, {"$float": "nan"}, {"acc": 1.0})),
)


def test_an_outcome_comes_back_as_it_was(store: ObjectStore) -> None:
    key, digest = write_outcome(store, OUTCOME)
    assert read_outcome(store, key) == OUTCOME
    assert object_hash(store.read(key)) == digest
    assert find_outcomes(store, **TRIAL) == [(key, digest, OUTCOME)]


def test_writing_it_twice_is_success_and_writing_another_is_not(store: ObjectStore) -> None:
    assert write_outcome(store, OUTCOME) == write_outcome(store, OUTCOME)
    with pytest.raises(ObjectExists):
        write_outcome(store, replace(OUTCOME, value=1.0))


def test_outcomes_of_every_attempt_are_found_among_checkpoints(store: ObjectStore) -> None:
    small_save(store)
    write_config(store, SWEEP, CONFIG, 0, "lr: 0.1")
    second = replace(OUTCOME, fence=10, lease_id=LeaseId("0" * 32), state=TrialState.FAILED, lineage=1)
    for outcome in (OUTCOME, second):
        write_outcome(store, outcome)
    assert {outcome.fence for _, _, outcome in find_outcomes(store, **TRIAL)} == {2, 10}
    assert find_outcomes(store, SWEEP, ConfigHash("0" * 64)) == []


def test_a_damaged_outcome_is_no_evidence(store: ObjectStore) -> None:
    key, _ = write_outcome(store, OUTCOME)
    good = store.read(key)
    for place in range(0, len(good), 5):
        bad = bytearray(good)
        bad[place] ^= 1
        store.replace(key, bytes(bad))
        assert find_outcomes(store, **TRIAL) == []
        with pytest.raises(CheckpointCorrupt):
            read_outcome(store, key)


@pytest.mark.parametrize(
    "content", [None, [], {}, {"schema": 1}, {"schema": 2}, "text", {"schema": 1, "state": "running"}]
)
def test_a_sealed_object_that_is_not_an_outcome_is_no_evidence(store: ObjectStore, content) -> None:
    key, _ = write_outcome(store, OUTCOME)
    store.replace(key, seal(content))
    assert find_outcomes(store, **TRIAL) == []


def test_an_outcome_under_another_attempts_key_is_no_evidence(store: ObjectStore) -> None:
    key, _ = write_outcome(store, OUTCOME)
    store.create(key.replace("/2-", "/3-"), store.read(key))
    assert [found[0] for found in find_outcomes(store, **TRIAL)] == [key]


def test_a_missing_outcome_is_missing(store: ObjectStore) -> None:
    key, _ = write_outcome(store, OUTCOME)
    store.delete([key])
    with pytest.raises(ObjectMissing):
        read_outcome(store, key)


def test_a_config_text_is_written_once_per_lineage(store: ObjectStore) -> None:
    text = 'name: "größe \\ud800"\n'
    write_config(store, SWEEP, CONFIG, 0, text)
    write_config(store, SWEEP, CONFIG, 0, text)
    write_config(store, SWEEP, CONFIG, 1, "other")
    assert read_config(store, SWEEP, CONFIG, 0) == text
    with pytest.raises(ObjectExists):
        write_config(store, SWEEP, CONFIG, 0, "changed")
