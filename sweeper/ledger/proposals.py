"""Numbers of a search: what the sampler chose for each, and how that stands (SAME).

A number is given once, by compare-and-set on the sweep's `next_number` under the coordinator's fence. With it, in one
statement, goes all that a sampler needs to know later, so that no state of a sampler is ever lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from sweeper.errors import CoordinatorLost, NumberTaken
from sweeper.ids import AskerId, CoordinatorId, SweepId, TrialId
from sweeper.ledger.bulk import no_collection
from sweeper.ledger.choices import LEADS, attr_parameters, attrs_kept, coordinator_lost, leader
from sweeper.ledger.numbers import read_numbers
from sweeper.ledger.sql import statement
from sweeper.ledger.statements import Statements
from sweeper.ledger.storable import storable
from sweeper.model.search import NewNumber, Numbered
from sweeper.model.states import TrialState

# Whether the config is known is read as of the statement's beginning. That is enough: no trial is added anywhere
# without raising next_number, which is compared in the newest version of its row. Nobody waits for the disk here: a
# grant does, and with it everything written before, so a number that a failing server forgets was nobody's yet, and is
# proposed again.
_ADD = statement(f"""
WITH led AS MATERIALIZED (
    SELECT c.sweep_id FROM sweeper.coordinators c WHERE {LEADS} AND c.next_number = :number FOR NO KEY UPDATE
), going_on AS MATERIALIZED (
    SELECT s.sweep_id FROM led l, sweeper.sweeps s
    WHERE s.sweep_id = l.sweep_id AND s.state <> 'cancelled'
    FOR NO KEY UPDATE OF s
), taken AS (
    UPDATE sweeper.coordinators c SET next_number = c.next_number + 1 FROM going_on o
    WHERE c.sweep_id = o.sweep_id
    RETURNING c.sweep_id, set_config('synchronous_commit', 'off', true)
), known AS (
    SELECT t.trial_id, t.number, t.state
    FROM taken k JOIN sweeper.trials t ON t.sweep_id = k.sweep_id AND t.config_hash = :config_hash
), added AS (
    INSERT INTO sweeper.trials (sweep_id, number, config_hash)
    SELECT k.sweep_id, :number, :config_hash FROM taken k
    WHERE :config_hash IS NOT NULL AND NOT EXISTS (SELECT FROM known)
    RETURNING trial_id, number, state
), configured AS (
    INSERT INTO sweeper.configs (trial_id, lineage, config_text, overrides, params)
    SELECT a.trial_id, 0, :config_text, :overrides_of_one, :params_of_one FROM added a
), trial AS (
    SELECT k.trial_id, k.number, k.state FROM known k
    UNION ALL SELECT a.trial_id, a.number, a.state FROM added a
), numbered AS (
    INSERT INTO sweeper.numbers (sweep_id, number, trial_id, reason, proposal)
    SELECT k.sweep_id, :number, t.trial_id, :reason, :proposal FROM taken k LEFT JOIN trial t ON true
), asked AS (
    INSERT INTO sweeper.requests (trial_id, asker_id, sweep_id)
    SELECT t.trial_id, a.asker_id, :sweep_id
    FROM trial t, (
        SELECT b.asker_id FROM sweeper.askers b WHERE b.asker_id = :asker_id FOR KEY SHARE
    ) a
    ON CONFLICT (trial_id, asker_id) DO NOTHING
), tried AS (
    UPDATE sweeper.enqueued e SET number = :number FROM taken k
    WHERE e.sweep_id = k.sweep_id AND e.key = :key AND e.number IS NULL
), {attrs_kept("taken")}
SELECT t.trial_id, t.number, t.state FROM taken k LEFT JOIN trial t ON true
""")

_EMPTY: Final = """CAST('{"p": {}}' AS json)"""
"""A number that was asked for by name has no proposal."""

_GIVEN = statement("""
SELECT c.coordinator_id, c.fence, c.next_number, n.number IS NOT NULL AS given, n.proposal IS NOT NULL AS proposed,
       t.trial_id, t.config_hash, t.number, t.state, s.state = 'cancelled' AS cancelled
FROM sweeper.coordinators c JOIN sweeper.sweeps s ON s.sweep_id = c.sweep_id
LEFT JOIN sweeper.numbers n ON n.sweep_id = c.sweep_id AND n.number = :number
LEFT JOIN sweeper.trials t ON t.trial_id = n.trial_id
WHERE c.sweep_id = :sweep_id
""")


def _numbered(condition: str) -> str:
    """One row: columns of the numbers, and columns of the reports, each as a JSON array of JSON arrays."""
    return f"""
WITH chosen AS NOT MATERIALIZED (
    SELECT n.number, t.trial_id, t.number AS first_number, t.state, t.result, t.fault,
           coalesce(t.lineage, 0) AS lineage,
           coalesce(CASE WHEN t.lineage > 0 THEN (
               SELECT f.proposal FROM sweeper.configs f WHERE f.trial_id = t.trial_id AND f.lineage = t.lineage
           ) END, n.proposal, {_EMPTY}) AS proposal
    FROM sweeper.numbers n LEFT JOIN sweeper.trials t ON t.trial_id = n.trial_id
    WHERE n.sweep_id = :sweep_id AND {condition}
), reported AS (
    SELECT r.trial_id, r.step, r.at_step, r.value, r.metrics FROM sweeper.reports r
    WHERE r.trial_id IN (SELECT c.trial_id FROM chosen c WHERE c.state IN ('pruned', 'paused'))
)
SELECT (SELECT json_build_array(
           json_agg(c.number), json_agg(c.trial_id), json_agg(c.first_number), json_agg(c.state), json_agg(c.lineage),
           json_agg(c.result), json_agg(c.fault), json_agg(c.proposal)) FROM chosen c) AS numbers,
       (SELECT json_build_array(
           json_agg(r.trial_id), json_agg(r.step), json_agg(r.at_step), json_agg(r.value), json_agg(r.metrics)
        ) FROM reported r) AS reports
"""


_HISTORY = statement(_numbered("n.number >= :first AND (:limit IS NULL OR n.number < :first + :limit)"))
_NUMBERED = statement(_numbered("n.number = ANY (:numbers)"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What a number was given: its own trial, another number's (an alias), or none (refused)."""

    trial_id: TrialId | None
    alias: bool
    first_number: int | None
    state: TrialState | None


def add_number(
    db: Statements, sweep_id: SweepId, *, coordinator_id: CoordinatorId, fence: int, asker_id: AskerId, new: NewNumber
) -> Added:
    """Commit a proposal: a new trial, an alias of a known one, or why there is none; ask for its trial.

    Marks the enqueued point that it is, and merges the study attributes that it changed. Repeated with the same config
    it is success.

    Raises:
        CoordinatorLost: another coordinator leads, or the sweep was cancelled; choose nothing more.
        NumberTaken: the number is not the next one, or went to another config: read the history anew.
    """
    trial, suggestion = new.trial, new.suggestion
    parameters = {
        **leader(sweep_id, coordinator_id, fence),
        "asker_id": asker_id,
        "number": new.number,
        "config_hash": None if trial is None else trial.config_hash,
        "config_text": None if trial is None else trial.config_text,
        "overrides_of_one": None if trial is None else list(trial.overrides),
        "params_of_one": None if trial is None else dict(trial.params),
        "reason": None if trial is not None else storable(new.reason or "refused"),
        "proposal": suggestion.proposal.as_json(),
        "key": suggestion.proposal.enqueued,
        **attr_parameters(suggestion.study_attrs),
    }
    rows = db.run(_ADD, parameters)
    if not rows:
        rows = [_given(db, sweep_id, coordinator_id, fence, new)]
    row = rows[0]
    return Added(
        trial_id=None if row.trial_id is None else TrialId(row.trial_id),
        alias=row.number is not None and row.number != new.number,
        first_number=row.number,
        state=None if row.state is None else TrialState(row.state),
    )


def history(db: Statements, sweep_id: SweepId, *, first: int = 0, limit: int | None = None) -> list[Numbered]:
    """Give every number from `first` on as it stands, in order; reports only of pruned and paused trials."""
    with no_collection():
        return read_numbers(db.run(_HISTORY, {"sweep_id": sweep_id, "first": first, "limit": limit})[0])


def numbered(db: Statements, sweep_id: SweepId, numbers: Sequence[int]) -> list[Numbered]:
    """Give those numbers as they stand, in order; as `history`."""
    if not numbers:
        return []
    return read_numbers(db.run(_NUMBERED, {"sweep_id": sweep_id, "numbers": list(numbers)})[0])


def _given(db: Statements, sweep_id: SweepId, coordinator_id: CoordinatorId, fence: int, new: NewNumber) -> sa.Row[Any]:
    """What the number has been given, when it was by this very proposal."""
    rows = db.run(_GIVEN, {"sweep_id": sweep_id, "number": new.number})
    if not rows or (rows[0].coordinator_id, rows[0].fence) != (coordinator_id, fence):
        raise coordinator_lost(sweep_id, coordinator_id, fence)
    row = rows[0]
    if row.proposed and row.config_hash == (None if new.trial is None else new.trial.config_hash):
        return row
    if row.cancelled:
        raise CoordinatorLost(f"sweep {sweep_id} was cancelled")
    what = "was given otherwise" if row.given else f"is not the next one, which is {row.next_number}"
    raise NumberTaken(f"number {new.number} of sweep {sweep_id} {what}", next_number=row.next_number)
