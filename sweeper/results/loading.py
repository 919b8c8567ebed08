"""Reading a sweep's results from its ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sweeper.ids import TrialId
from sweeper.ledger import reads
from sweeper.ledger.opening import open_ledger
from sweeper.ledger.proposals import history
from sweeper.ledger.statements import Statements
from sweeper.ledger.sweeps import require_sweep
from sweeper.model.best import keeps_constraints
from sweeper.model.objective import objective_values
from sweeper.model.search import Numbered, SearchSpec
from sweeper.model.states import TrialState
from sweeper.model.tagged import from_tagged
from sweeper.model.trial import Attempt, Json, Report, Sweep, Trial
from sweeper.results.records import SweepResult, TrialResult
from sweeper.settings import resolve_places


def load(name: str, *, database: str | None = None, reports: bool = True) -> SweepResult:
    """Load the trials of a sweep, running or finished, as they stand now.

    Args:
        name: the sweep's name; `sweeper status` lists them.
        database: URL of the ledger; by default `SWEEPER_DATABASE_URL`, else the embedded one.
        reports: whether to load every trial's intermediate values too; a large sweep loads quicker without.

    Raises:
        UserError: no such sweep or no such ledger; the message says what there is.
    """
    with open_ledger(resolve_places(database=database)) as ledger:
        return read_results(ledger, require_sweep(ledger, name), reports=reports)


def read_results(ledger: Statements, sweep: Sweep, *, reports: bool = True) -> SweepResult:
    """Give the results of a sweep from a ledger that is open already; otherwise as `load`."""
    spec = None if sweep.search is None else SearchSpec.from_json(sweep.search)
    numbers = [] if spec is None else history(ledger, sweep.sweep_id)
    attempts = reads.attempts(ledger, sweep.sweep_id)
    constrained = spec is not None and bool(spec.constraints)
    found = reads.reports(ledger, sweep.sweep_id) if reports or constrained else {}
    own = {row.number: row for row in numbers if row.trial_id is not None and not row.is_alias}
    aliases = _aliases(numbers)
    return SweepResult(
        name=sweep.name,
        state=sweep.state,
        directions=() if spec is None else spec.directions,
        trials=tuple(
            _result(
                trial,
                spec=spec,
                row=own.get(trial.number),
                attempts=attempts.get(trial.trial_id, []),
                reports=found.get(trial.trial_id, []),
                keep_reports=reports,
                aliases=aliases.get(trial.trial_id, ()),
            )
            for trial in reads.trials(ledger, sweep.sweep_id)
        ),
        unreported=() if spec is None else _unreported(spec, found),
    )


def _unreported(spec: SearchSpec, reports: Mapping[TrialId, Sequence[Report]]) -> tuple[str, ...]:
    if not spec.constraints:
        return ()
    told = {name for made in reports.values() for report in made for name in report.metrics}
    return tuple(dict.fromkeys(one.metric for one in spec.constraints if one.metric not in told))


def _result(
    trial: Trial,
    *,
    spec: SearchSpec | None,
    row: Numbered | None,
    attempts: Sequence[Attempt],
    reports: Sequence[Report],
    keep_reports: bool,
    aliases: tuple[int, ...],
) -> TrialResult:
    ended: datetime | None = attempts[-1].ended_at if attempts and trial.state.final else None
    metrics = reports[-1].metrics if reports else {}
    has_result = trial.state in (TrialState.COMPLETED, TrialState.PRUNED)
    return TrialResult(
        number=trial.number,
        config_hash=trial.config_hash,
        state=trial.state,
        values=_values(trial, spec) if has_result else None,
        returned=from_tagged(trial.result) if has_result else None,
        params=_plain(trial.params if row is None else row.proposal.params),
        overrides=trial.overrides,
        reports=tuple(reports) if keep_reports else (),
        attempts=len(attempts),
        error=trial.error,
        step=trial.step,
        started_at=attempts[0].started_at if attempts else None,
        finished_at=ended,
        aliases=aliases,
        feasible=spec is None or keeps_constraints(spec.constraints, metrics),
    )


def _values(trial: Trial, spec: SearchSpec | None) -> tuple[float, ...] | None:
    """A pruned trial without a result of its own counts by its last report."""
    result: Json | float = trial.result
    if result is None and trial.state is TrialState.PRUNED:
        result = trial.last_value
    if spec is None:
        counted = len(plain) if isinstance(plain := from_tagged(result), list | tuple) else 1
    else:
        counted = len(spec.directions)
    values = objective_values(result, max(counted, 1))
    return values if isinstance(values, tuple) else None


def _aliases(numbers: Sequence[Numbered]) -> Mapping[TrialId, tuple[int, ...]]:
    found: dict[TrialId, tuple[int, ...]] = {}
    for row in numbers:
        if row.trial_id is not None and row.is_alias:
            found[row.trial_id] = (*found.get(row.trial_id, ()), row.number)
    return found


def _plain(params: Mapping[str, Json]) -> dict[str, Any]:  # Any: a parameter may be any plain value
    return {name: from_tagged(value) for name, value in params.items()}
