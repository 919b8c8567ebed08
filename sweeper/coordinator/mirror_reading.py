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
    mirror_lag,
    mirror_new,
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
LEAST: Final = 5
"""One by one are always shown so many, however slow that is."""
SETTLED_S: Final = 1.0
"""Where trials are added at once, one that runs is shown after this time. Most end before and are written only once."""


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
        self._few = FEW  # that were lately shown one by one in time
        self.lag = 0
        """Trials to be shown, as of the last batch."""

    def forget(self) -> None:
        """Look at every live trial as a whole again."""
        self._seen = {}

    def batch(self, points: Sequence[str], *, is_last: bool) -> MirrorBatch:
        """Give what is to be written next.

        What is too much for one call after another is written at once; of trials without an entry that takes only such
        as have ended or go on for a while.

        Args:
            points: keys of points that were claimed and have no answer yet.
            is_last: whether the search is over.
        """
        db, sweep_id = self._db, self._sweep_id
        self.lag = mirror_lag(db, sweep_id)
        at_once = self.lag > self._few
        many = mirror_new(db, sweep_id, older_than_s=SETTLED_S, limit=MANY) if at_once else []
        changed = mirror_batch(db, sweep_id, limit=MANY if at_once else FEW, placed=at_once)
        live = {trial.trial_id: trial for trial in live_trials(db, sweep_id)}
        known = {trial.trial_id for trial in (*changed, *many)}
        others = [one for one in live.values() if one.trial_id not in known]
        moved = [one.trial_id for one in others if self._is_news(one) and (one.placed or not at_once)][:FEW]
        steady = [one.trial_id for one in others if one.state is TrialState.RUNNING and not self._is_news(one)]
        self._seen = {trial_id: seen for trial_id, seen in self._seen.items() if trial_id in live}
        fresh = fresh_reports(db, steady) if steady else []
        return MirrorBatch(
            trials=self._whole([*changed, *(mirror_trials(db, moved) if moved else [])]),
            many=self._whole(many),
            fresh=fresh,
            at_once=at_once or len(fresh) > self._few,
            answers=point_answers(db, sweep_id, points) if points else (),
            claims=not is_last,
            abandons=is_last and search_standing(db, sweep_id).ended_reason is not None,
        )

    def take(self, batch: MirrorBatch, written: MirrorWritten) -> bool:
        """Remember what was written of a batch; say whether that is all of it."""
        acknowledged = {ack.trial_id for ack in written.acks}
        shown = [trial for trial in (*batch.trials, *batch.many) if trial.trial_id in acknowledged]
        self._seen |= {trial.trial_id: (trial.fence, trial.state) for trial in shown}
        done, asked = len(acknowledged), len(batch.trials) + len(batch.many) + len(batch.fresh)
        if not batch.at_once:
            if done < asked:
                self._few = max(LEAST, min(self._few, done) // 2)
            elif done >= self._few:
                self._few = min(FEW, self._few + 1)
        self.lag = mirror_lag(self._db, self._sweep_id)
        limit = MANY if batch.at_once else FEW
        return done == asked and max(len(batch.trials), len(batch.many)) < limit

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
