"""Two ledgers on one store cannot both own a name."""

from __future__ import annotations

import threading

import pytest

from sweeper.checkpoint.keys import name_entry_key
from sweeper.checkpoint.ownership import (
    claim_name,
    owner_of,
    read_highwater,
    read_sweep_file,
    take_over_name,
    write_highwater,
    write_sweep_file,
)
from sweeper.checkpoint.store import ObjectStore
from sweeper.errors import CheckpointCorrupt, UserError
from sweeper.ids import LedgerId, SweepId

pytest_plugins = ["tests.s3_server"]

NAME = "größe / lr=0.1 *[x]"
OURS, THEIRS = LedgerId("a" * 32), LedgerId("b" * 32)
FIRST, SECOND = SweepId("1" * 32), SweepId("2" * 32)


def test_the_first_ledger_owns_the_name_and_may_claim_it_again(store: ObjectStore) -> None:
    assert owner_of(store, NAME) is None
    for _ in range(2):
        claim_name(store, name=NAME, sweep_id=FIRST, ledger_id=OURS)
    owner = owner_of(store, NAME)
    assert owner is not None
    assert (owner.n, owner.sweep_id, owner.ledger_id) == (1, FIRST, OURS)


def test_another_ledger_is_refused_with_what_is_there_and_the_way_out(store: ObjectStore) -> None:
    claim_name(store, name=NAME, sweep_id=FIRST, ledger_id=OURS)
    write_highwater(store, FIRST, {"finals": 17})
    with pytest.raises(UserError) as caught:
        claim_name(store, name=NAME, sweep_id=SECOND, ledger_id=THEIRS)
    assert "--take-over" in str(caught.value)
    assert "finals: 17" in str(caught.value)


def test_a_new_sweep_of_the_same_ledger_takes_the_name(store: ObjectStore) -> None:
    claim_name(store, name=NAME, sweep_id=FIRST, ledger_id=OURS)
    claim_name(store, name=NAME, sweep_id=SECOND, ledger_id=OURS)
    owner = owner_of(store, NAME)
    assert owner is not None
    assert owner.sweep_id == SECOND


def test_the_highest_entry_owns_by_number_not_by_name(store: ObjectStore) -> None:
    for n in range(1, 13):
        ledger = OURS if n % 2 else THEIRS
        take_over_name(store, name=NAME, sweep_id=FIRST, ledger_id=ledger)
    owner = owner_of(store, NAME)
    assert owner is not None
    assert (owner.n, owner.ledger_id) == (12, THEIRS)
    with pytest.raises(UserError):
        claim_name(store, name=NAME, sweep_id=FIRST, ledger_id=OURS)


def test_of_ten_ledgers_that_claim_at_once_one_owns(any_store: ObjectStore) -> None:
    refused: list[str] = []

    def claim(n: int) -> None:
        try:
            claim_name(any_store, name=NAME, sweep_id=FIRST, ledger_id=LedgerId(f"{n:032x}"))
        except UserError:
            refused.append(f"{n:032x}")

    threads = [threading.Thread(target=claim, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    owner = owner_of(any_store, NAME)
    assert owner is not None
    assert sorted([*refused, owner.ledger_id]) == [f"{n:032x}" for n in range(10)]


def test_a_damaged_entry_is_not_taken_for_a_free_name(store: ObjectStore) -> None:
    claim_name(store, name=NAME, sweep_id=FIRST, ledger_id=OURS)
    store.replace(name_entry_key(NAME, 1), b"{}")
    with pytest.raises(CheckpointCorrupt):
        claim_name(store, name=NAME, sweep_id=SECOND, ledger_id=THEIRS)


def test_no_user_text_is_in_a_key(store: ObjectStore) -> None:
    claim_name(store, name="secret-project", sweep_id=FIRST, ledger_id=OURS)
    assert not any("secret" in key for key in store.list("sweeps/"))


def test_sweep_file_and_high_water_mark_are_rewritten(store: ObjectStore) -> None:
    assert read_highwater(store, FIRST) is None
    assert read_sweep_file(store, FIRST) is None
    for number in (5, 123456):
        write_highwater(store, FIRST, {"next_number": number})
        write_sweep_file(store, {"sweep_id": FIRST, "name": NAME, "seed": number})
    assert read_highwater(store, FIRST) == {"next_number": 123456}
    assert read_sweep_file(store, FIRST) == {"sweep_id": FIRST, "name": NAME, "seed": 123456}
