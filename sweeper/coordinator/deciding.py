"""Pruning: the pruner is asked about each report once, in the order of steps, and the answer is a row."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from sweeper.coordinator.feeding import Feed
from sweeper.coordinator.proposing import Chooser
from sweeper.ids import TrialId
from sweeper.ledger.decisions import record_decisions, reports_by_trial, undecided_reports
from sweeper.model.search import Decision, DecisionKind
from sweeper.model.trial import Json, Report

log = logging.getLogger("sweeper.coordinator")

REPORTS_A_TURN = 500
GO_ON, PRUNE = "go_on", "prune"


class Decider:
    """Decides on reports. What it rests on is in the study; what it decided is in the ledger, and only then marked."""

    def __init__(self, chooser: Chooser, feed: Feed) -> None:
        self._chooser = chooser
        self._feed = feed

    def decide(self, fence: int, of: Sequence[TrialId] | None = None) -> bool:
        """Decide on the reports that nobody has decided on; say whether there were any.

        Args:
            fence: of the sweep's lease.
            of: trials that have ended before anybody could decide on their reports, which count all the same for
                those that come after them; None: what is open.

        Raises:
            CoordinatorLost: another coordinator chooses; the study is ahead of the ledger.
            LedgerUnavailable: the study may be ahead of the ledger.
        """
        chooser = self._chooser
        found = undecided_reports(
            chooser.database, chooser.sweep_id, kind=DecisionKind.REPORT, limit=REPORTS_A_TURN, of=of
        )
        if not found:
            return False
        reports = reports_by_trial(chooser.database, list({trial_id for trial_id, *_ in found}))
        study_attrs: dict[str, Json] = {}
        decisions = self._asked(found, reports, study_attrs)
        record_decisions(
            chooser.database, chooser.sweep_id, chooser.coordinator_id, fence, decisions, study_attrs=study_attrs
        )
        for decision in decisions:
            if decision.action == PRUNE:
                log.debug("pruned trial=%d step=%d", decision.number, decision.step)
        return True

    def _asked(
        self,
        found: Sequence[tuple[TrialId, int, int, Report]],
        reports: Mapping[TrialId, tuple[Report, ...]],
        study_attrs: dict[str, Json],
    ) -> list[Decision]:
        """Ask about each report as if it were the trial's last; after a `prune` the trial has no more."""
        decisions: list[Decision] = []
        pruned: set[TrialId] = set()
        for trial_id, number, lineage, report in in_step_order(found):
            if trial_id in pruned:
                continue
            history = [seen for seen in reports.get(trial_id, ()) if seen.step < report.step]
            verdict = self._feed.optimizer.prune(number, [*history, report], finished_to=self._feed.finished_to(number))
            self._feed.optimizer.mark(number, verdict.attrs, verdict.study_attrs)
            study_attrs |= verdict.study_attrs
            if verdict.prune:
                pruned.add(trial_id)
            decisions.append(
                Decision(
                    trial_id=trial_id,
                    number=number,
                    lineage=lineage,
                    kind=DecisionKind.REPORT,
                    step=report.step,
                    action=PRUNE if verdict.prune else GO_ON,
                    value=report.value,
                    facts=verdict.attrs,
                )
            )
        return decisions


def in_step_order(
    found: Sequence[tuple[TrialId, int, int, Report]],
) -> list[tuple[TrialId, int, int, Report]]:
    """Keep whose turn it is, but let each trial's reports come by step: a rollback can bring a lower one later."""
    waiting: dict[TrialId, list[tuple[TrialId, int, int, Report]]] = {}
    for item in found:
        waiting.setdefault(item[0], []).append(item)
    for items in waiting.values():
        items.sort(key=lambda item: item[3].step, reverse=True)
    return [waiting[item[0]].pop() for item in found]
