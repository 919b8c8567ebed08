"""What is to be shown next, read from the ledger with all that its entries need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sweeper.ids import SweepId, TrialId
from sweeper.ledger.database import Statements
from sweeper.ledger.mirroring import (
    fresh_reports,
    last_metrics,
    live_trials,
    mirror_batch,
    mirror_ended,
    mirror_lag,
    mirror_reports,
    mirror_trials,
    point_answers,
)
from sweeper.ledger.searches import search_standing
from sweeper.model.mirror import LiveTrial, MirrorTrial
from sweeper.model.states import TrialState
from sweeper.search.mirror import FEW, MOST_STRAYS, MirrorBatch, MirrorWritten

MANY: Final = MOST_STRAYS - 2 * FEW
"""Trials that are added at once; after a crash in between, these and a batch one by one are looked for."""


class Lookout:
    """Reads batches, and remembers which attempt of each live trial the mirror shows."""

    def __init__(self, db: Statements, sweep_id: SweepId, *, constrained: bool) -> None:
        """Read nothing yet.

        Args:
            db: the ledger.
            sweep_id: whose trials are shown.
            constrained: whether the search has constraints, for which metrics are needed.
        """
        self._db, self._sweep_id, self._constrained = db, sweep_id, constrained
        self._seen: dict[TrialId, tuple[int, TrialState]] = {}
        self.lag = 0
        """Trials to be shown, as of the last batch."""

    def forget(self) -> None:
        """Look at every live trial as a whole again."""
        self._seen = {}

    def batch(self, points: Sequence[str], *, is_last: bool) -> MirrorBatch:
        """Give what is to be written next.

        Where trials end faster than they can be followed one by one, those that ended are added at once, and of the
        others only such as have an entry already are looked at.

        Args:
            points: keys of points that were claimed and have no answer yet.
            is_last: whether the search is over.
        """
        db, sweep_id = self._db, self._sweep_id
        self.lag = mirror_lag(db, sweep_id)
        many = mirror_ended(db, sweep_id, limit=MANY) if self.lag > FEW else []
        if len(many) <= FEW:
            many = []
        changed = mirror_batch(db, sweep_id, limit=FEW, placed=bool(many))
        live = {trial.trial_id: trial for trial in live_trials(db, sweep_id)}
        known = {trial.trial_id for trial in changed}
        others = [one for one in live.values() if one.trial_id not in known]
        moved = [] if many else [one.trial_id for one in others if self._is_news(one)][:FEW]
        steady = [one.trial_id for one in others if one.state is TrialState.RUNNING and not self._is_news(one)]
        self._seen = {trial_id: seen for trial_id, seen in self._seen.items() if trial_id in live}
        return MirrorBatch(
            trials=self._whole([*changed, *(mirror_trials(db, moved) if moved else [])]),
            many=self._whole(many),
            fresh=fresh_reports(db, steady) if steady else (),
            answers=point_answers(db, sweep_id, points) if points else (),
            claims=not is_last,
            abandons=is_last and search_standing(db, sweep_id).ended_reason is not None,
        )

    def take(self, batch: MirrorBatch, written: MirrorWritten) -> bool:
        """Remember what was written of a batch; say whether that is all of it."""
        shown = {ack.trial_id for ack in written.acks if ack.version is not None}
        self._seen |= {trial.trial_id: (trial.fence, trial.state) for trial in batch.trials if trial.trial_id in shown}
        self.lag = mirror_lag(self._db, self._sweep_id)
        return len(shown) == len(batch.trials) + len(batch.many) and len(shown) < FEW

    def _is_news(self, trial: LiveTrial) -> bool:
        return self._seen.get(trial.trial_id) != (trial.fence, trial.state)

    def _whole(self, trials: Sequence[MirrorTrial]) -> list[MirrorTrial]:
        return with_reports(self._db, trials, metrics=self._constrained)


def with_reports(db: Statements, trials: Sequence[MirrorTrial], *, metrics: bool) -> list[MirrorTrial]:
    """Give the trials with their reports, and where `metrics` says so with those of the last one."""
    ids = [trial.trial_id for trial in trials]
    reports = mirror_reports(db, ids) if ids else {}
    of_last = last_metrics(db, ids) if ids and metrics else {}
    return [
        replace(trial, reports=reports.get(trial.trial_id, ()), metrics=of_last.get(trial.trial_id, trial.metrics))
        for trial in trials
    ]
