"""Rungs: paused trials, who goes on from where, and what becomes of those that nobody promotes.

The rules are `sweeper.model.rungs`, fed from rows alone; here they meet the ledger. A choice that met a trial in
another state than it thought changes nothing, and is made again from what is seen then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from sweeper.coordinator.deciding import REPORTS_A_TURN
from sweeper.coordinator.parts import SearchPlan
from sweeper.coordinator.proposing import Chooser
from sweeper.coordinator.records import Records
from sweeper.errors import UserError
from sweeper.ids import TrialId
from sweeper.ledger.decisions import record_decisions, undecided_reports
from sweeper.ledger.promotions import exploit_trial, newest_checkpoint, promote_trial, prune_paused
from sweeper.model.rungs import Scheduler, exploit_params, exploit_source, scheduler_from
from sweeper.model.search import Decision, DecisionKind, Numbered, Proposal
from sweeper.model.tagged import to_tagged
from sweeper.model.trial import NewTrial

log = logging.getLogger("sweeper.coordinator")

RUNG_KINDS = (DecisionKind.RUNG, DecisionKind.PROMOTE, DecisionKind.EXPLOIT)
PROMOTED_PRIORITY = 1
"""Above new trials: what was begun is brought to its end first."""


class Rungs:
    """A scheduler on the ledger."""

    def __init__(
        self, chooser: Chooser, plan: SearchPlan, records: Records, *, seed: int, note: Callable[[str], None]
    ) -> None:
        self._chooser = chooser
        self._plan = plan
        self._records = records
        self._seed = seed
        self._note = note
        self._scheduler: Scheduler | None = None

    @property
    def _rules(self) -> Scheduler:
        assert self._scheduler is not None, "loaded before it is asked"
        return self._scheduler

    def load(self, rows: Iterable[Numbered], decisions: Iterable[Decision]) -> None:
        """Build the rules' memory anew from rows."""
        self._scheduler = scheduler_from(self._plan.spec, seed=self._seed)
        for row in rows:
            self.add(row)
        for decision in decisions:
            if decision.kind in RUNG_KINDS:
                self._rules.feed(decision)

    def add(self, row: Numbered) -> None:
        """A number was given."""
        if row.trial_id is not None and not row.is_alias:
            self._rules.feed_params(row.number, row.proposal.params)

    def decide(self, fence: int, of: Sequence[TrialId] | None = None) -> bool:
        """Decide on the reports that nobody has decided on; say whether there were any. `of` as a `Decider` has it."""
        chooser = self._chooser
        found = undecided_reports(
            chooser.database, chooser.sweep_id, kind=DecisionKind.RUNG, limit=REPORTS_A_TURN, of=of
        )
        decisions: list[Decision] = []
        stopped = set()
        for trial_id, number, lineage, report in found:
            if trial_id in stopped:
                continue
            decision = self._rules.on_report(
                trial_id=trial_id,
                number=number,
                lineage=lineage,
                step=report.step,
                value=report.value,
                standing=self._records.standing,
            )
            decisions.append(decision)
            if decision.action != "go_on" and of is None:  # one that has ended was at its later rungs all the same
                stopped.add(trial_id)
                log.debug("rung trial=%d step=%d %s", number, report.step, decision.action)
        if decisions:
            record_decisions(chooser.database, chooser.sweep_id, chooser.coordinator_id, fence, decisions)
        return bool(decisions)

    def move(self, fence: int, *, closing: bool) -> int | None:
        """Let a paused trial go on, if it is any one's turn; give its number."""
        move = self._rules.next_move(self._records.standing, closing=closing)
        if move is None:
            return None
        if move.kind is DecisionKind.EXPLOIT:
            made, move = self._exploit(move, fence)
        else:
            made = self._promote(move, fence)
        if made:
            self._rules.feed(move)
            log.debug("%s trial=%d step=%d", move.kind, move.number, move.step)
        return move.number

    def prune_left_over(self, fence: int) -> Sequence[int]:
        """End what nobody will promote any more, with the value of its last rung; give the numbers."""
        chooser, numbers = self._chooser, []
        for left in self._rules.left_over(self._records.standing):
            prune_paused(
                chooser.database,
                chooser.sweep_id,
                chooser.coordinator_id,
                fence,
                left.trial_id,
                result=to_tagged(left.value),
                reason=left.reason,
                step=left.step,
            )
            numbers.append(left.number)
        return numbers

    def _promote(self, move: Decision, fence: int) -> bool:
        chooser = self._chooser
        return promote_trial(
            chooser.database, chooser.sweep_id, chooser.coordinator_id, fence, move, priority=PROMOTED_PRIORITY
        )

    def _exploit(self, move: Decision, fence: int) -> tuple[bool, Decision]:
        """Let a trial go on from a better one's checkpoint; where that cannot be, from its own."""
        chooser = self._chooser
        source = newest_checkpoint(chooser.database, chooser.sweep_id, exploit_source(move))
        new = None if source is None else self._composed(move)
        if source is None or new is None:
            instead = self._rules.go_on_instead(move)
            return self._promote(instead, fence), instead
        made = exploit_trial(
            chooser.database,
            chooser.sweep_id,
            chooser.coordinator_id,
            fence,
            heir=move.trial_id,
            source_checkpoint_id=source,
            new=new,
            proposal=Proposal(params=exploit_params(move)),
            decision=move,
        )
        return made, move

    def _composed(self, move: Decision) -> NewTrial | None:
        try:
            return self._plan.compose(move.number, exploit_params(move))
        except UserError as error:
            self._note(f"Trial {move.number} keeps its parameters: {error.message}")
            return None
