"""When a search is over: a function of its records, its limits, and for how long this run has worked on it.

Nothing of it rests on an earlier coordinator's word, so a search that ended goes on when the command asks for more.
"""

from __future__ import annotations

from sweeper.coordinator.parts import SearchPlan
from sweeper.coordinator.records import Records
from sweeper.model.plan import SearchEnd
from sweeper.model.search import Direction
from sweeper.model.states import TrialState

REPEATS_SHOWN = 10
"""Repeats in a row from which on they, and not a space without any config left, are named as the reason."""


def search_end(plan: SearchPlan, records: Records, *, elapsed_s: float) -> SearchEnd | None:
    """Say why no further number is to be proposed; None while there is no reason.

    A space without further configs is the optimizer's to see, and comes on top of this (`space_end`).
    """
    limits, spec = plan.limits, plan.spec
    if records.ended_without_value and not records.counts[TrialState.COMPLETED]:
        return SearchEnd(
            kind="failed_fast",
            reason="the first trial to finish returned None: is a `return` missing at the end of the function?",
        )
    if records.failed > limits.max_failure_rate * spec.n_trials:
        return SearchEnd(
            kind="failed_fast",
            reason=f"{records.failed} of {spec.n_trials} trials failed, "
            f"more than max_failure_rate={limits.max_failure_rate:g} allows",
        )
    if is_good_enough(plan, records):
        return SearchEnd(kind="done", reason=_reached(plan, records))
    used = records.next_number >= spec.n_trials
    if limits.timeout_s is not None and elapsed_s >= limits.timeout_s and (records.open or not used):
        return SearchEnd(kind="stopped", reason=f"the time is up: {limits.timeout_s:g} s")
    if not used:
        return None
    if records.next_number > spec.n_trials:
        found = f"n_trials={spec.n_trials}, and it has {records.next_number} trials already"
        return SearchEnd(kind="done", reason=found)
    return SearchEnd(kind="done", reason=f"all of its {spec.n_trials} trials are done")


def is_good_enough(plan: SearchPlan, records: Records) -> bool:
    """Whether a trial reached the value that was wanted.

    In a deterministic search the next proposal knows trials only up to its number less the lag, and so does the end:
    otherwise it would depend on timing how many numbers there are (SAME).
    """
    if records.reached is None:
        return False
    return not plan.spec.deterministic or records.reached[0] <= records.next_number - plan.spec.lag


def space_end(records: Records) -> SearchEnd:
    """Say that the space holds nothing new, in the words that fit."""
    if records.repeats_in_a_row >= REPEATS_SHOWN:
        repeats = records.repeats_in_a_row
        reason = f"the last {repeats} proposals in a row were configs that had been proposed before"
    else:
        reason = "every config of the space was proposed"
    return SearchEnd(kind="done", reason=reason)


def _reached(plan: SearchPlan, records: Records) -> str:
    assert records.reached is not None, "a value was reached"
    number, value = records.reached
    bound = "at most" if plan.spec.directions[0] is Direction.MINIMIZE else "at least"
    return f"trial {number} reached {value:g}, and {bound} {plan.limits.value:g} was wanted"
