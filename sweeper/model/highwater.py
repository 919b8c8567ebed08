"""A sweep's high-water mark: how far its ledger had come, as the store remembers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from sweeper.model.trial import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWater:
    """How far a ledger has come with a sweep. `next_number` and `newest_lease` prove a loss; the rest is for people."""

    ledger_id: str
    next_number: int
    finals: int
    grants: int
    """Sum of the trials' fences."""
    newest_lease: str | None
    """Lease id of the newest grant; None before the first."""

    def as_mapping(self, *, written_at: str) -> dict[str, Json]:
        """The form that the store keeps."""
        return {**asdict(self), "written_at": written_at}

    @classmethod
    def from_mapping(cls, mark: Mapping[str, Json]) -> HighWater | None:
        """Read it back; None when this is no mark that we know how to read."""
        try:
            return cls(
                ledger_id=str(mark["ledger_id"]),
                next_number=int(mark["next_number"]),  # type: ignore[arg-type]  # anything else raises
                finals=int(mark["finals"]),  # type: ignore[arg-type]
                grants=int(mark["grants"]),  # type: ignore[arg-type]
                newest_lease=None if mark["newest_lease"] is None else str(mark["newest_lease"]),
            )
        except (KeyError, TypeError, ValueError):
            return None
