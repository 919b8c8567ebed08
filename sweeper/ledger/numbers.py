"""From columns of JSON to the numbers of a search and their reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, repeat
from operator import attrgetter, itemgetter
from typing import Any, Final

import sqlalchemy as sa

from sweeper.ids import TrialId
from sweeper.ledger.bulk import many
from sweeper.model.search import Numbered, Proposal
from sweeper.model.space import Space, dimension_from_json
from sweeper.model.states import ObjectiveFault, TrialState
from sweeper.model.tagged import from_tagged
from sweeper.model.trial import Json, Report

_first = itemgetter(0)
_STATES: Final[dict[str | None, TrialState | None]] = {None: None, **{state.value: state for state in TrialState}}
_FAULTS: Final[dict[str | None, ObjectiveFault | None]] = {
    None: None,
    **{fault.value: fault for fault in ObjectiveFault},
}
_NOTHING: Final[Mapping[str, Any]] = {}


def read_numbers(row: sa.Row[Any]) -> list[Numbered]:
    """Read columns `numbers` and `reports`; by number, whatever order they came in.

    Raises:
        ValueError: a proposal that is none.
    """
    numbers, trial_ids, first_numbers, states, lineages, results, faults, proposals = row.numbers
    if numbers is None:
        return []
    reports = read_reports(row.reports)
    found = many(
        Numbered,
        len(numbers),
        number=numbers,
        proposal=_proposals(proposals),
        trial_id=trial_ids,
        first_number=first_numbers,
        state=map(_STATES.__getitem__, states),
        lineage=lineages,
        result=results,
        fault=map(_FAULTS.__getitem__, faults),
        reports=map(reports.get, trial_ids, repeat(())),
    )
    found.sort(key=attrgetter("number"))
    return found


def read_reports(columns: Sequence[Sequence[Any] | None]) -> dict[TrialId, tuple[Report, ...]]:
    """Read columns trial_id, step, at_step, value, metrics; each trial's reports by step.

    A value that is no JSON number comes as text.
    """
    trial_ids, steps, at_steps, values, metrics = (column or () for column in columns)
    made = many(
        Report,
        len(trial_ids),
        step=steps,
        at_step=at_steps,
        value=map(float, values),
        metrics=[_metrics(tagged) for tagged in metrics],
    )
    ordered = sorted(zip(trial_ids, steps, made, strict=True))  # no two reports of a trial have one step
    return {TrialId(trial_id): tuple(report for _, _, report in group) for trial_id, group in groupby(ordered, _first)}


def _metrics(tagged: Json) -> Mapping[str, float]:
    metrics: Mapping[str, float] = from_tagged(tagged) if tagged else _NOTHING
    return metrics


def _proposals(stored: Sequence[Mapping[str, Any]]) -> list[Proposal]:
    """As `Proposal.from_json`, of many."""
    try:
        return many(
            Proposal,
            len(stored),
            params=map(itemgetter("p"), stored),
            extra=[_space(one["x"]) if "x" in one else _NOTHING for one in stored],
            attrs=[one.get("a", _NOTHING) for one in stored],
            enqueued=[one.get("q") for one in stored],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a proposal: {error}") from error


def _space(pairs: Sequence[Any]) -> Space:
    return {name: dimension_from_json(found) for name, found in pairs}
