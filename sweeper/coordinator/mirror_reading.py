"""Reading trials for the mirror, with all that their entries need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sweeper.ledger.database import Statements
from sweeper.ledger.mirroring import last_metrics, mirror_reports
from sweeper.model.mirror import MirrorTrial


def with_reports(db: Statements, trials: Sequence[MirrorTrial], *, metrics: bool) -> list[MirrorTrial]:
    """Give the trials with their reports, and where `metrics` says so with those of the last one."""
    ids = [trial.trial_id for trial in trials]
    reports = mirror_reports(db, ids) if ids else {}
    of_last = last_metrics(db, ids) if ids and metrics else {}
    return [
        replace(trial, reports=reports.get(trial.trial_id, ()), metrics=of_last.get(trial.trial_id, trial.metrics))
        for trial in trials
    ]
