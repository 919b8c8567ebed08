"""The outcome object: what a final state leaves in the store, enough to know it without the database (ONCE)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sweeper.ids import ConfigHash, LeaseId, SweepId
from sweeper.model.states import TrialState
from sweeper.model.tagged import from_tagged
from sweeper.model.trial import Json, Report

OUTCOME_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A trial's end. `value` is tagged JSON; `reports` rows are `[step, at_step, value as tagged JSON, metrics]`."""

    sweep_id: SweepId
    config_hash: ConfigHash
    number: int
    lineage: int
    fence: int
    lease_id: LeaseId
    state: TrialState
    reason: str
    value: Json
    step: int
    params: Mapping[str, Json] = field(default_factory=dict)
    reports: tuple[tuple[Json, ...], ...] = ()
    schema: int = OUTCOME_SCHEMA

    def read_reports(self) -> tuple[Report, ...]:
        """The reports, as the ledger takes them.

        Raises:
            ValueError: a row that is no report.
        """
        try:
            return tuple(
                Report(
                    step=_whole(step),
                    at_step=_whole(at_step),
                    value=float(from_tagged(value)),
                    metrics={str(key): float(number) for key, number in from_tagged(metrics).items()},
                )
                for step, at_step, value, metrics in self.reports
            )
        except (TypeError, AttributeError) as error:
            raise ValueError(f"not a row of a report: {error}") from error

    def to_bytes(self) -> bytes:
        """Canonical JSON: sorted keys, no spaces, no NaN or Infinity."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Outcome:
        """Parse strictly.

        Raises:
            ValueError: not an outcome of a schema we know.
        """
        try:
            raw: dict[str, Any] = json.loads(data)
            if raw["schema"] != OUTCOME_SCHEMA:
                raise ValueError(f"outcome schema {raw['schema']!r} is not {OUTCOME_SCHEMA}")
            raw["state"] = TrialState(raw["state"])
            raw["reports"] = tuple(tuple(row) for row in raw["reports"])
            outcome = cls(**raw)
        except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"not an outcome object: {error}") from error
        if not outcome.state.final:
            raise ValueError(f"outcome state {outcome.state} is not final")
        outcome.read_reports()
        return outcome


def _whole(number: Json) -> int:
    if not isinstance(number, int):
        raise TypeError(f"{number!r:.40} is not a step")
    return number
