"""Where the search lets a trial's history end or pause, and when its holder has to act on that.

A stop names the report on which it was decided. It holds once that report is in the trial's history: an earlier attempt
may have made it and lost the training below it, then this one first trains to it again (SAME). What was trained beyond
it while the decision travelled does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from sweeper.model.states import SearchStopKind
from sweeper.model.trial import Report, SearchStop


def history_to(reports: Sequence[Report], step: int | None) -> tuple[Report, ...]:
    """Give reports in the order in which they were made, up to the one of `step` if there is one.

    Training step first, then the user's own: a script without our loops reports everything at training step 0.
    """
    ordered = sorted(reports, key=_made)
    last = next((report for report in ordered if report.step == step), None)
    return tuple(report for report in ordered if last is None or _made(report) <= _made(last))


def holds(stop: SearchStop, reports: Sequence[Report], *, trained_to: float) -> bool:
    """Whether a stop is to be acted on, as far as reports of earlier attempts tell.

    A pause also waits until training has come to its report again. Otherwise it would be taken from an older state than
    in an undisturbed run, and perhaps from a function that would have returned before it could pause.

    Args:
        stop: what the search decided.
        reports: those in the ledger.
        trained_to: the training step of the state that is continued from; -1 from zero; infinity: do not mind.
    """
    report = next((report for report in reports if report.step == stop.step), None)
    match stop.kind:
        case SearchStopKind.PRUNE:
            return report is not None
        case SearchStopKind.PAUSE:
            return report is not None and report.at_step <= trained_to
        case _:
            assert_never(stop.kind)


def _made(report: Report) -> tuple[int, int]:
    return report.at_step, report.step
