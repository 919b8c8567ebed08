"""Whether a command's sweep is the one in the ledger: two searches are never mixed under one name (CLEAR, OP-06)."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping

from sweeper.errors import UserError
from sweeper.model.search import SearchSpec
from sweeper.model.space_changes import SearchChanges, search_changes
from sweeper.model.trial import Json, Sweep, SweepSpec

_NO_CHANGES = SearchChanges()


def check_name(name: str) -> None:
    """Refuse a text that cannot be a sweep's name.

    Raises:
        UserError: empty, too long, or with control characters.
    """
    if not 1 <= len(name) <= 200 or any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        shown = name if len(name) <= 60 else f"{name[:60]}…"
        raise UserError(
            f"sweep name {shown!r} cannot be one",
            remedy="a sweep name has 1 to 200 characters and no control characters",
        )


def check_same(spec: SweepSpec, known: Sweep) -> None:
    """Refuse to mix two sweeps under one name, naming every difference.

    `identity.version` may change: that is what it is for, and every hash changes with it.

    Raises:
        UserError: they differ in what cannot change.
    """
    pairs: dict[str, tuple[Json, Json]] = {
        "task": (known.task, spec.task),
        "seed": (known.seed, spec.seed),
        "store": (known.store_url, spec.store_url),
    }
    identity = as_stored(spec.identity)
    rules = [rule for rule in dict.fromkeys([*known.identity, *identity]) if rule != "version"]
    pairs |= {f"identity.{rule}": (known.identity.get(rule), identity.get(rule)) for rule in rules}
    differences = [f"{key}: {was!r}, now {now!r}" for key, (was, now) in pairs.items() if was != now]
    if (known.search is None) != (spec.search is None):
        was, now = (_kind(search) for search in (known.search, spec.search))
        differences.append(f"it was {was} and is now {now}")
    differences += _changes(known, spec).refusals
    if differences:
        raise UserError(
            f"sweep {spec.name!r} exists and differs: {'; '.join(differences)}",
            remedy="give this sweep another name, where it has this one from (hydra.launcher.name, "
            "hydra.sweeper.study_name, or name), or the same settings as before",
        )


def search_notices(known: Sweep | None, spec: SweepSpec) -> tuple[str, ...]:
    """Say what a person should know of how this search differs from the sweep that it goes on with."""
    return () if known is None else _changes(known, spec).notices


def as_stored(mapping: Mapping[str, Json]) -> dict[str, Json]:
    """Give a mapping as it comes back from the ledger."""
    stored: dict[str, Json] = json.loads(json.dumps(dict(mapping), allow_nan=False))
    return stored


def _changes(known: Sweep, spec: SweepSpec) -> SearchChanges:
    if known.search is None or spec.search is None:
        return _NO_CHANGES
    return search_changes(SearchSpec.from_json(known.search), SearchSpec.from_json(as_stored(spec.search)))


def _kind(search: Mapping[str, Json] | None) -> str:
    return "a plain grid" if search is None else "a search"
