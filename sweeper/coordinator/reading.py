"""Numbers as a search needs them read: with the reports of completed trials where somebody looks at those."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sweeper.ids import SweepId
from sweeper.ledger import proposals
from sweeper.ledger.decisions import reports_by_trial
from sweeper.ledger.statements import Statements
from sweeper.model.search import Numbered
from sweeper.model.states import TrialState


class Reader:
    """Reads one sweep's numbers."""

    def __init__(self, database: Statements, sweep_id: SweepId, *, with_reports: bool) -> None:
        self._database = database
        self._sweep_id = sweep_id
        self._with_reports = with_reports

    def history(self, first: int = 0) -> list[Numbered]:
        """Give every number from `first` on as it stands, in order."""
        return self._completed(proposals.history(self._database, self._sweep_id, first=first))

    def numbered(self, numbers: Sequence[int]) -> list[Numbered]:
        """Give those numbers as they stand, in order."""
        return self._completed(proposals.numbered(self._database, self._sweep_id, numbers))

    def _completed(self, rows: list[Numbered]) -> list[Numbered]:
        """The ledger gives reports of pruned and paused trials by itself: a sampler always wants those."""
        if not self._with_reports:
            return rows
        wanted = [row.trial_id for row in rows if row.trial_id is not None and row.state is TrialState.COMPLETED]
        reports = reports_by_trial(self._database, wanted)
        return [replace(row, reports=reports[row.trial_id]) if row.trial_id in reports else row for row in rows]
