"""Which reports still belong to a trial's history, once the search has decided where it ends or pauses.

What was trained while a decision travelled does not count; what the decision rests on does, even where the trial would
resume from an earlier step. Order among reports is training step first, then the user's own step.
"""

from __future__ import annotations

from typing import Final

_AT_OR_BEFORE: Final = """EXISTS (
    SELECT FROM sweeper.reports d
    WHERE d.trial_id = r.trial_id AND d.step = g.stop_step AND (r.at_step, r.step) <= (d.at_step, d.step)
)"""

NOT_DECIDED: Final = f"(g.stop_step IS NULL OR NOT {_AT_OR_BEFORE})"
"""Condition on a report `r` of trial `g`: no decision on the trial rests on it, so its training may be done again."""

BEYOND_STOP: Final = """EXISTS (
    SELECT FROM sweeper.reports d
    WHERE d.trial_id = r.trial_id AND d.step = g.stop_step AND (r.at_step, r.step) > (d.at_step, d.step)
)"""
"""Condition on a report `r` of trial `g`: it was made after the one that ended the trial."""
