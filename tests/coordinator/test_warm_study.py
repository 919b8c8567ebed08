"""A warm study is the one that rows give, whatever people order meanwhile, and every search comes to its end."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from sweeper.coordinator.feeding import Feed
from sweeper.errors import LeaseLost
from sweeper.ids import TrialId
from sweeper.ledger.commands import cancel_trials, retry_trials
from sweeper.ledger.decisions import decided, decisions
from sweeper.ledger.leases import renew_lease
from sweeper.ledger.results import commit_result
from sweeper.ledger.searches import study_attrs
from sweeper.model.search import DecisionKind
from sweeper.model.space import Choices, FloatRange, Space
from sweeper.model.states import AttemptOutcome, SearchStopKind, TrialState
from sweeper.model.trial import Grant, Json, SearchStop
from sweeper.search.optimizer import Optimizer
from tests.coordinator.searches import RANDOM, TPE, Search, squares
from tests.ledger.world import HEARTBEAT_S, LEASE_S

SMALL: Space = {"c": Choices(values=("a", "b", "c")), "x": FloatRange(low=-5.0, high=5.0, step=2.5)}
"""So small that many numbers are aliases."""
HALVING: Mapping[str, Json] = {"_target_": "successive_halving", "min_resource": 1, "reduction_factor": 2}
ASHA: Mapping[str, Json] = {"kind": "asha", "max_resource": 9}
HYPERBAND: Mapping[str, Json] = {"kind": "hyperband", "max_resource": 9}
PBT: Mapping[str, Json] = {"kind": "pbt", "interval": 3, "max_resource": 9, "quantile": 0.5}

THREE: dict[str, Any] = {"workers": 3, "lag": 3}
HASTY: dict[str, Any] = {"workers": 3, "deterministic": False}
KINDS: dict[str, dict[str, Any]] = {
    "sequential": {"sampler": TPE},
    "three, aliases": {"sampler": TPE, "space": SMALL, **THREE},
    "hasty, aliases": {"sampler": TPE, "space": SMALL, **HASTY},
    "three, pruner": {"sampler": TPE, "pruner": HALVING, "space": SMALL, **THREE},
    "hasty, pruner": {"sampler": TPE, "pruner": HALVING, **HASTY},
    "asha": {"scheduler": ASHA},
    "hasty, asha": {"scheduler": ASHA, "space": SMALL, "sampler": TPE, **HASTY},
    "pbt": {"scheduler": PBT, "space": SMALL, "n_trials": 5},
    "hasty, pbt": {"scheduler": PBT, "n_trials": 5, **HASTY},
    "hasty, hyperband": {"scheduler": HYPERBAND, "space": SMALL, "n_trials": 14, **HASTY},
}

EPOCHS = 9
STORMY = 250
"""Deeds with kills, evictions, cancellations and retries among them; then calm, so that the search can end."""
MOST = 1500


@dataclass
class Storm:
    """Workers, people and the search itself, one deed at a time."""

    run: Search
    draw: random.Random
    held: dict[TrialId, tuple[Grant, int]] = field(default_factory=dict)
    """By trial, with the epochs behind it."""
    stormy: bool = True

    def __post_init__(self) -> None:
        self.command = self.run.start()
        self.run.worker = self.run.world.worker()

    def over(self) -> bool:
        """Do something; say whether the search has ended."""
        luck = self.draw.random()
        if self.stormy and luck < 0.1:
            self._strike()
        elif luck < 0.35 and len(self.held) < self.run.workers:
            grant = self.run.world.try_lease(self.run.worker)
            if grant is not None:
                self.held[grant.lease.trial_id] = grant, 0 if grant.head is None else grant.head.step
        elif luck < 0.85 and self.held:
            self._train(self.draw.choice(sorted(self.held)))
        else:
            self.run.clock.advance(self.draw.choice([0, 1, 6]))
            return self._turn() and not self.stormy and not self.held
        return False

    def _turn(self) -> bool:
        standing = self.command.turn()
        over = standing.end is not None and all(state.final for state in standing.counts)
        if not over:  # nothing is fed any more once everything is
            self._compare()
        return over

    def _compare(self) -> None:
        """SAME: no restart would make a difference now."""
        run, sweep_id, warm = self.run, self.run.world.sweep_id, self.command.turns._feed
        if not warm.loaded:
            return
        rows = self.command.turns._watch._reader.history()
        seen = self.command.turns._records.open
        if any((row.number in seen) is (row.state is None or row.state.final) for row in rows):
            return  # paused trials are looked at once in a while: one of them was cancelled since
        cold = Feed(Optimizer(run.spec, seed=run.seed), run.spec)
        cold.load(rows, study_attrs(run.db, sweep_id), decisions(run.db, sweep_id, kinds=[DecisionKind.REPORT]))
        warm.tell_up_to(len(rows))
        assert _entries(warm) == _entries(cold)
        assert warm.optimizer.used_up() == cold.optimizer.used_up()

    def _strike(self) -> None:
        run, sweep_id, some = self.run, self.run.world.sweep_id, self.draw.randrange(len(self.run.rows()) or 1)
        match self.draw.choice(["kill", "kill", "cancel", "retry", "retry", "again"]):
            case "kill":
                run.kill()
                self.command = run.start()
            case "cancel":
                cancel_trials(run.db, sweep_id, [some])
            case "retry":
                retry_trials(run.db, sweep_id, None, from_zero=self.draw.random() < 0.5)
            case _:
                retry_trials(run.db, sweep_id, [some], from_zero=True)

    def _train(self, trial_id: TrialId) -> None:
        run, (grant, epoch) = self.run, self.held[trial_id]
        try:
            stop = renew_lease(run.db, grant.lease, lease_s=LEASE_S, heartbeat_s=HEARTBEAT_S)
            if self._waits(grant, epoch, stop):
                self._turn()
                return
            if self._ends(grant, epoch, stop):
                del self.held[trial_id]
                return
            self.held[trial_id] = grant, epoch + 1
            if run.spec.pruner is not None or run.spec.scheduler is not None:
                value = math.nan if self.draw.random() < 0.05 else float(squares(grant.params)) + 10.0 / (epoch + 1)  # type: ignore[arg-type]
                run.report(grant, epoch + 1, value)
        except LeaseLost:
            del self.held[trial_id]

    def _waits(self, grant: Grant, epoch: int, stop: SearchStop | None) -> bool:
        spec, began = self.run.spec, 0 if grant.head is None else grant.head.step
        if not spec.deterministic or (spec.pruner is None and spec.scheduler is None) or stop is not None:
            return False
        return epoch > began and decided(self.run.db, grant.lease.trial_id, grant.lineage, epoch) is None

    def _ends(self, grant: Grant, epoch: int, stop: SearchStop | None) -> bool:
        run, world = self.run, self.run.world
        if stop is not None and epoch >= stop.step:
            if stop.kind is SearchStopKind.PAUSE:
                if self.draw.random() < 0.9:
                    world.save(grant, epoch, epoch)
                world.release(grant.lease, AttemptOutcome.PAUSED)
            else:
                commit_result(
                    run.db, grant.lease, state=TrialState.PRUNED, outcome=AttemptOutcome.PRUNED, result=1.0,
                    reason=stop.reason, outcome_key="k", outcome_hash="h", outcome_stored=True,
                )  # fmt: skip
        elif epoch >= EPOCHS:
            world.complete(grant.lease, squares(grant.params))
        elif self.stormy and self.draw.random() < 0.05:
            run.fail(grant)
        elif self.stormy and self.draw.random() < 0.08:
            if epoch and self.draw.random() < 0.6:
                world.save(grant, epoch, epoch)
            world.release(grant.lease, AttemptOutcome.EVICTED)
        else:
            return False
        return True


def _entries(feed: Feed) -> list[str]:
    """As text, in which NaN is no reason to differ."""
    return [
        repr((entry.number, entry.state, entry.params, entry.values, entry.intermediate_values, entry.system_attrs))
        for entry in feed.optimizer._known.entries
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_happens_a_warm_study_is_the_one_of_the_rows_and_the_search_ends(
    begin: Callable[..., Search], kind: str
) -> None:
    """SAME, and no search hangs: with commands killed, trials evicted, failed, cancelled and retried in its middle."""
    settings = {"n_trials": 10, "sampler": RANDOM, **KINDS[kind]}
    for seed in range(2):
        storm = Storm(begin(name=f"storm {seed}", **settings), random.Random(f"{kind} {seed}"))
        for deed in range(MOST):
            storm.stormy = deed < STORMY
            if storm.over():
                break
        else:
            pytest.fail(f"seed {seed} is not over: {storm.run.states()}")
