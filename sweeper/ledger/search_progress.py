"""What a watcher is shown of a search beside its trials; for looks from outside, once in a while."""

from __future__ import annotations

from sweeper.ids import SweepId, TrialNumber
from sweeper.ledger.mirroring import mirror_lag
from sweeper.ledger.sql import statement
from sweeper.ledger.statements import Statements
from sweeper.model.best import keeps_constraints
from sweeper.model.objective import objective_values
from sweeper.model.progress import SearchProgress
from sweeper.model.search import Direction, SearchSpec
from sweeper.model.tagged import from_tagged

_SEARCH = statement("""
SELECT s.search, c.next_number, (
    SELECT count(*) FROM sweeper.numbers n JOIN sweeper.trials t ON t.trial_id = n.trial_id
    WHERE n.sweep_id = s.sweep_id AND t.number <> n.number
) AS repeats
FROM sweeper.sweeps s JOIN sweeper.coordinators c ON c.sweep_id = s.sweep_id
WHERE s.sweep_id = :sweep_id AND s.search IS NOT NULL
""")

_RESULTS = statement("""
SELECT t.number, t.result, CASE WHEN :constrained THEN (
    SELECT r.metrics FROM sweeper.reports r WHERE r.trial_id = t.trial_id ORDER BY r.step DESC LIMIT 1
) END AS metrics
FROM sweeper.trials t
WHERE t.sweep_id = :sweep_id AND t.state = 'completed' ORDER BY t.number
""")


def search_progress(db: Statements, sweep_id: SweepId) -> SearchProgress | None:
    """How far the sweep's search is; None for a plain grid."""
    rows = db.run(_SEARCH, {"sweep_id": sweep_id})
    if not rows:
        return None
    spec = SearchSpec.from_json(rows[0].search)
    return SearchProgress(
        proposed=rows[0].next_number,
        n_trials=spec.n_trials,
        repeats=rows[0].repeats,
        best=_best(db, sweep_id, spec) if len(spec.directions) == 1 else None,
        mirror_lag=mirror_lag(db, sweep_id),
    )


def _best(db: Statements, sweep_id: SweepId, spec: SearchSpec) -> tuple[TrialNumber, float] | None:
    """The first of the best feasible ones; values are told apart in Python, which knows what counts as one."""
    best: tuple[TrialNumber, float] | None = None
    sign = 1.0 if spec.directions[0] is Direction.MINIMIZE else -1.0
    for row in db.run(_RESULTS, {"sweep_id": sweep_id, "constrained": bool(spec.constraints)}):
        values = objective_values(row.result, 1)
        feasible = not spec.constraints or keeps_constraints(spec.constraints, from_tagged(row.metrics or {}))
        if feasible and isinstance(values, tuple) and (best is None or sign * values[0] < sign * best[1]):
            best = TrialNumber(row.number), values[0]
    return best
