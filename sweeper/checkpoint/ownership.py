"""Which ledger owns a sweep's name in this store, and how far that ledger had come.

The ownership log of a name is a folder of create-only entries 1, 2, 3 …; the highest owns. So two ledgers that use one
store under one name meet here, before either trains what the other has finished.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sweeper.checkpoint.keys import highwater_key, name_entry_key, name_prefix, parse_name_entry, sweep_key
from sweeper.checkpoint.objects import ObjectStore
from sweeper.checkpoint.sealed import seal, unseal
from sweeper.errors import CheckpointCorrupt, ObjectExists, ObjectMissing, StoreUnavailable, UserError
from sweeper.ids import LedgerId, SweepId
from sweeper.model.trial import Json

_RACES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """An entry of a name's ownership log."""

    n: int
    sweep_id: SweepId
    ledger_id: LedgerId


def owner_of(store: ObjectStore, name: str) -> Owner | None:
    """Give the entry that owns a name; None when no ledger has used it in this store.

    Raises:
        CheckpointCorrupt: the deciding entry is damaged; people must look.
        StoreUnavailable, StoreDenied: cannot tell.
    """
    entries = [n for key in store.list(name_prefix(name)) if (n := parse_name_entry(key)) is not None]
    if not entries:
        return None
    n = max(entries)
    content = unseal(store.read(name_entry_key(name, n)))
    if not isinstance(content, dict):
        raise CheckpointCorrupt(f"entry {n} of the ownership log of {name!r} is not one")
    sweep_id, ledger_id = content.get("sweep_id"), content.get("ledger_id")
    if not isinstance(sweep_id, str) or not isinstance(ledger_id, str):
        raise CheckpointCorrupt(f"entry {n} of the ownership log of {name!r} is not one")
    return Owner(n=n, sweep_id=SweepId(sweep_id), ledger_id=LedgerId(ledger_id))


def claim_name(store: ObjectStore, *, name: str, sweep_id: SweepId, ledger_id: LedgerId) -> None:
    """See that this ledger owns the name in this store, entering it when nobody does; safe when many do it at once.

    Raises:
        UserError: another ledger owns the name; says what it has there and how to take it over.
        StoreUnavailable, StoreDenied: see `ObjectStore`.
    """
    for _ in range(_RACES):
        owner = owner_of(store, name)
        if owner is not None and owner.ledger_id != ledger_id:
            raise _owned_by_another(store, name, owner)
        if owner is not None and owner.sweep_id == sweep_id:
            return
        if _enter(store, name, owner, sweep_id, ledger_id):
            return
    raise StoreUnavailable(f"the ownership log of {name!r} changes all the time")


def take_over_name(store: ObjectStore, *, name: str, sweep_id: SweepId, ledger_id: LedgerId) -> None:
    """Make this ledger the owner of the name, whoever was: after `--take-over`, or once the old owner was long silent.

    Raises:
        StoreUnavailable, StoreDenied: see `ObjectStore`.
    """
    for _ in range(_RACES):
        owner = owner_of(store, name)
        if owner is not None and (owner.sweep_id, owner.ledger_id) == (sweep_id, ledger_id):
            return
        if _enter(store, name, owner, sweep_id, ledger_id):
            return
    raise StoreUnavailable(f"the ownership log of {name!r} changes all the time")


def write_sweep_file(store: ObjectStore, sweep: Mapping[str, Json]) -> None:
    """Store the copy of a sweep's row (with its `sweep_id`) from which a lost ledger is rebuilt."""
    store.replace(sweep_key(SweepId(str(sweep["sweep_id"]))), seal(dict(sweep)))


def read_sweep_file(store: ObjectStore, sweep_id: SweepId) -> dict[str, Json] | None:
    """Give the copy of a sweep's row; None when there is none.

    Raises:
        CheckpointCorrupt: it is damaged.
    """
    return _read_mapping(store, sweep_key(sweep_id))


def write_highwater(store: ObjectStore, sweep_id: SweepId, facts: Mapping[str, Json]) -> None:
    """Store how far the sweep's ledger has come (next number, finals, grants); the coordinator repeats this."""
    store.replace(highwater_key(sweep_id), seal(dict(facts)))


def read_highwater(store: ObjectStore, sweep_id: SweepId) -> dict[str, Json] | None:
    """Give what `write_highwater` stored last; None when there is none.

    Raises:
        CheckpointCorrupt: it is damaged.
    """
    return _read_mapping(store, highwater_key(sweep_id))


def _read_mapping(store: ObjectStore, key: str) -> dict[str, Json] | None:
    try:
        content = unseal(store.read(key))
    except ObjectMissing:
        return None
    if not isinstance(content, dict):
        raise CheckpointCorrupt(f"{key} holds no mapping")
    return content


def _enter(store: ObjectStore, name: str, owner: Owner | None, sweep_id: SweepId, ledger_id: LedgerId) -> bool:
    """Append an entry behind `owner`'s; False when another was quicker."""
    n = 1 if owner is None else owner.n + 1
    try:
        store.create(name_entry_key(name, n), seal({"sweep_id": sweep_id, "ledger_id": ledger_id}))
    except ObjectExists:
        return False
    return True


def _owned_by_another(store: ObjectStore, name: str, owner: Owner) -> UserError:
    try:
        known = read_highwater(store, owner.sweep_id)
    except CheckpointCorrupt:
        known = None
    there = ", ".join(f"{key}: {value}" for key, value in (known or {}).items() if isinstance(value, int | str))
    return UserError(
        f"Sweep {name!r} in the store {store.url} belongs to another database (ledger {owner.ledger_id[:8]}, "
        f"sweep {owner.sweep_id[:8]}{'; ' + there if there else ''}).",
        remedy=f"Use that database (SWEEPER_DATABASE_URL), another name, or `sweeper rebuild {name} --take-over`.",
    )
