"""A search on a real ledger, with a coordinator that leads it and makes the choices that a test names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sweeper.ids import CoordinatorId, SweepId, TrialId, TrialNumber
from sweeper.ledger.decisions import record_decisions
from sweeper.ledger.promotions import exploit_trial, newest_checkpoint, promote_trial, prune_paused
from sweeper.ledger.proposals import Added, add_numbers, numbered
from sweeper.ledger.requests import register_asker
from sweeper.ledger.results import commit_result, record_reports
from sweeper.ledger.statements import Statements
from sweeper.ledger.sweeps import acquire_coordinator, open_sweep
from sweeper.model.search import (
    Decision,
    DecisionKind,
    NewNumber,
    Numbered,
    Proposal,
    SearchSpec,
    Suggestion,
)
from sweeper.model.space import FloatRange
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.trial import Grant, Json, Lease, Report, SearchStop
from tests.ledger.world import LEASE_S, Clock, World, asker, hex_id, new_trial, spec

SEARCH = SearchSpec(space={"x": FloatRange(low=0.0, high=1.0)}, n_trials=20)


@dataclass
class SearchWorld(World):
    coordinator_id: CoordinatorId = field(default_factory=lambda: CoordinatorId(hex_id()))
    fence: int = 0

    @classmethod
    def begin(cls, db: Statements, clock: Clock, *, search: SearchSpec = SEARCH, name: str = "digits") -> SearchWorld:
        sweep = open_sweep(db, spec(name, search=search.as_json()), new_id=SweepId(hex_id()))
        record = asker()
        register_asker(db, sweep.sweep_id, record)
        world = cls(db, clock, sweep, record.asker_id)
        world.lead()
        return world

    def lead(self) -> None:
        """Take the sweep's coordinator lease, or keep it."""
        fence = acquire_coordinator(self.db, self.sweep_id, self.coordinator_id, lease_s=30)
        assert fence is not None
        self.fence = fence

    def lose_the_lead(self) -> None:
        """Another coordinator takes over."""
        self.clock.advance(31)
        assert acquire_coordinator(self.db, self.sweep_id, CoordinatorId(hex_id()), lease_s=30) is not None

    @property
    def leader(self) -> tuple[SweepId, CoordinatorId, int]:
        return self.sweep_id, self.coordinator_id, self.fence

    def propose(
        self,
        number: int,
        name: str | None = None,
        *,
        db: Statements | None = None,
        refused: str | None = None,
        study_attrs: Mapping[str, Json] | None = None,
        **proposal: Any,
    ) -> Added:
        new = new_number(number, name, refused=refused, study_attrs=study_attrs, **proposal)
        return self.propose_all(new, db=db)[0]

    def propose_all(self, *new: NewNumber, db: Statements | None = None) -> list[Added]:
        """Commit numbers together."""
        return add_numbers(
            db or self.db, self.sweep_id, coordinator_id=self.coordinator_id, fence=self.fence, asker_id=self.asker_id,
            new=new,
        )  # fmt: skip

    def run(self, number: int = 0) -> Grant:
        """Propose the number, and lease its trial."""
        self.propose(number)
        grant = self.lease()
        assert grant.number == number
        return grant

    def report(self, lease: Lease, *steps: int, value: float | None = None, scale: int = 10) -> SearchStop | None:
        """Report at steps; each was made at ten times as many training steps."""
        reports = [
            Report(step=step, at_step=scale * step, value=float(step) if value is None else value) for step in steps
        ]
        return record_reports(self.db, lease, reports, lease_s=LEASE_S)

    def decision(self, grant: Grant, step: int, action: str = "go_on", **changes: Any) -> Decision:
        made = Decision(
            trial_id=grant.lease.trial_id, number=grant.number, lineage=grant.lineage, kind=DecisionKind.REPORT,
            step=step, action=action, value=0.5,
        )  # fmt: skip
        return replace(made, **changes)

    def decide(self, *decisions: Decision, **settings: Any) -> list[Decision]:
        return record_decisions(self.db, *self.leader, decisions, **settings)

    def pause(self, number: int = 0, step: int = 1) -> Grant:
        """Propose and train the number up to a rung, with a checkpoint there, and pause it."""
        grant = self.run(number)
        return self.pause_again(grant, step)

    def pause_again(self, grant: Grant, step: int) -> Grant:
        self.report(grant.lease, step)
        self.save(grant, 1, 10 * step)
        self.decide(self.decision(grant, step, "pause", kind=DecisionKind.RUNG))
        assert self.release(grant.lease, AttemptOutcome.PAUSED) is TrialState.PAUSED
        return grant

    def promote(self, grant: Grant, step: int = 1, *, db: Statements | None = None) -> bool:
        decision = self.decision(grant, step, kind=DecisionKind.PROMOTE)
        return promote_trial(db or self.db, *self.leader, decision, priority=1)

    def prune(self, grant: Grant, *, db: Statements | None = None, **settings: Any) -> bool:
        settings = {"result": 0.5, "reason": "left over", **settings}
        return prune_paused(db or self.db, *self.leader, grant.lease.trial_id, **settings)

    def exploit(
        self, heir: Grant, source: int, *, name: str = "exploited", db: Statements | None = None, step: int = 1,
        checkpoint_id: int | None = None,
    ) -> bool:  # fmt: skip
        if checkpoint_id is None:
            checkpoint_id = newest_checkpoint(self.db, self.sweep_id, source)
            assert checkpoint_id is not None
        return exploit_trial(
            db or self.db, *self.leader, heir=heir.lease.trial_id, source_checkpoint_id=checkpoint_id,
            new=new_trial(name, x=0.9), proposal=Proposal(params={"x": 0.9}),
            decision=self.decision(heir, step, kind=DecisionKind.EXPLOIT),
        )  # fmt: skip

    def commit_pruned(self, lease: Lease, result: Json = 0.5) -> None:
        commit_result(
            self.db, lease, state=TrialState.PRUNED, outcome=AttemptOutcome.PRUNED, result=result, reason="pruned",
            outcome_key="k", outcome_hash="h", outcome_stored=True,
        )  # fmt: skip

    def numbered(self, number: int) -> Numbered:
        (found,) = numbered(self.db, self.sweep_id, [number])
        return found

    def steps(self, trial_id: TrialId) -> list[int]:
        rows = self.sql("SELECT step FROM sweeper.reports WHERE trial_id = :t ORDER BY step", t=trial_id)
        return [row.step for row in rows]


def new_number(
    number: int,
    name: str | None = None,
    *,
    refused: str | None = None,
    study_attrs: Mapping[str, Json] | None = None,
    **proposal: Any,
) -> NewNumber:
    """A proposal that composes to the config of that name, unless it is refused."""
    return NewNumber(
        number=TrialNumber(number),
        suggestion=Suggestion(
            proposal=Proposal(**{"params": {"x": number / 10}, **proposal}), study_attrs=study_attrs or {}
        ),
        trial=None if refused is not None else new_trial(name or f"p{number}", x=number / 10),
        reason=refused,
    )
