"""Rows of the ledger as entries of the study: the one way in which entries are made, warm or rebuilt (SAME)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, assert_never

from optuna.trial import TrialState as EntryState

from sweeper.model.objective import Fault, objective_values
from sweeper.model.search import Numbered, Proposal, SearchSpec
from sweeper.model.space import choice_text
from sweeper.model.states import TrialState
from sweeper.model.trial import Report
from sweeper.search.attributes import CONSTRAINTS, AttributeRules
from sweeper.search.axes import Axis, Code
from sweeper.search.constraints import constraint_values
from sweeper.search.entries import Entry
from sweeper.search.layouts import AxisCache, Layout, Layouts


class Standing(NamedTuple):
    """How a number stands, as the study shows it."""

    state: EntryState
    values: Sequence[float] | None = None
    reports: dict[int, float] = {}  # noqa: RUF012 - a tuple's default, which nobody changes
    """Values by step."""
    constraints: Sequence[float] | None = None


class Placed(NamedTuple):
    """A proposal's parameters in terms of the current space."""

    layout: Layout
    codes: tuple[Code, ...]
    """One for each of the layout's axes."""


RUNNING = Standing(EntryState.RUNNING)
FAILED = Standing(EntryState.FAIL)


class EntryMaker:
    """Makes entries of one search's rows.

    History is given with the current distributions: a sampler finds the joint space only where they are all equal. A
    proposal whose values no longer fit becomes a failed entry without parameters, which no sampler learns from.
    """

    def __init__(self, spec: SearchSpec, axes: tuple[Axis, ...], rules: AttributeRules) -> None:
        self._spec = spec
        self._axes = axes
        self._rules = rules
        self._cache = AxisCache()
        self._layouts = Layouts()
        self._whole = self._layouts.layout(axes)
        self.nothing = self._layouts.layout(())

    def standing(self, row: Numbered) -> Standing:
        """Say how a row stands. Paused trials count as pruned: as running ones they would repel the constant liar from
        the best configs that there are."""
        match row.state:
            case TrialState.PENDING | TrialState.RUNNING:
                return RUNNING
            case TrialState.COMPLETED:
                values = objective_values(row.result, len(self._spec.directions))
                return FAILED if isinstance(values, Fault) else self._ended(EntryState.COMPLETE, values, row.reports)
            case TrialState.PRUNED | TrialState.PAUSED:
                last = row.reports[-1].value if row.reports else math.nan
                value = None if math.isnan(last) else (last,)  # as `Study.tell` does
                return self._ended(EntryState.PRUNED, value, row.reports)
            case TrialState.FAILED | TrialState.CANCELLED | None:
                return FAILED
            case _:
                assert_never(row.state)

    def placed(self, proposal: Proposal) -> Placed | None:
        """Find a proposal's parameters in the current space; None where one no longer fits."""
        params = proposal.params
        layout = self._whole
        if proposal.extra or len(params) != len(self._axes):
            layout = self._layout(proposal)
        try:
            codes = tuple([code(params[name]) for name, code in layout.coders])
        except KeyError:
            return None
        return None if None in codes else Placed(layout, codes)  # type: ignore[arg-type]  # none of them is None

    def known_as(self, placed: Placed) -> Hashable:
        """Give what a config is remembered by: its codes, or names and values where not all parameters are there."""
        if placed.layout is self._whole:
            return placed.codes
        pairs = zip(placed.layout.axes, placed.codes, strict=True)
        return tuple((axis.name, choice_text(axis.stored(code))) for axis, code in pairs)

    def entry(
        self,
        number: int,
        proposal: Proposal,
        placed: Placed | None,
        standing: Standing,
        marks: Mapping[str, Any] | None,
    ) -> Entry:  # Any: what a pruner wrote
        """Make a number's entry."""
        if placed is None:
            return Entry(number, EntryState.FAIL, self.nothing)
        layout = placed.layout
        attrs = self._rules.fed(proposal.attrs) if proposal.attrs else {}
        if marks:
            attrs.update(marks)
        if standing.constraints is not None:
            attrs[CONSTRAINTS] = list(standing.constraints)
        return Entry(
            number,
            standing.state,
            layout,
            {name: external(code) for (name, external), code in zip(layout.externals, placed.codes, strict=True)},
            system_attrs=attrs,
            values=standing.values,
            intermediate_values=standing.reports,
        )

    def _layout(self, proposal: Proposal) -> Layout:
        extra = [self._cache.axis(name, dimension) for name, dimension in proposal.extra.items()]
        return self._layouts.layout(axis for axis in (*self._axes, *extra) if axis.name in proposal.params)

    def _ended(self, state: EntryState, values: Sequence[float] | None, reports: Sequence[Report]) -> Standing:
        constraints = constraint_values(self._spec.constraints, reports) if self._spec.constraints else None
        if not reports:
            return Standing(state, values, constraints=constraints)
        return Standing(state, values, {report.step: report.value for report in reports}, constraints)


def standing_of(entry: Entry) -> Standing:
    """Say how an entry stands, for others that point at the same trial."""
    return Standing(entry.state, entry.values, entry.intermediate_values, entry.system_attrs.get(CONSTRAINTS))
