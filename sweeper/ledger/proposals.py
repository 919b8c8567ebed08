"""Numbers of a search: what the sampler chose for each, and how that stands (SAME).

A number is given once, by compare-and-set on the sweep's `next_number` under the coordinator's fence. With it, in one
statement (of a few numbers), goes all that a sampler needs to know later: no state of a sampler is ever lost.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from sweeper.collector import collector_paused
from sweeper.errors import CoordinatorLost, NumberTaken
from sweeper.ids import AskerId, CoordinatorId, SweepId, TrialId
from sweeper.ledger.choices import LEADS, attr_parameters, attrs_kept, coordinator_lost, leader
from sweeper.ledger.numbers import read_numbers
from sweeper.ledger.sql import statement
from sweeper.ledger.statements import Statements
from sweeper.ledger.storable import storable
from sweeper.model.search import NewNumber, Numbered
from sweeper.model.states import TrialState
from sweeper.model.trial import Json

# Whether a config is known is read as of the statement's beginning. That is enough: no trial is added anywhere
# without raising next_number, which is compared in the newest version of its row. Nobody waits for the disk here: a
# grant does, and with it everything written before, so numbers that a failing server forgets were nobody's yet, and are
# proposed again.
_ADD = statement(f"""
WITH led AS MATERIALIZED (
    SELECT c.sweep_id FROM sweeper.coordinators c WHERE {LEADS} AND c.next_number = :first FOR NO KEY UPDATE
), going_on AS MATERIALIZED (
    SELECT s.sweep_id FROM led l, sweeper.sweeps s
    WHERE s.sweep_id = l.sweep_id AND s.state <> 'cancelled'
    FOR NO KEY UPDATE OF s
), taken AS (
    UPDATE sweeper.coordinators c SET next_number = c.next_number + cardinality(:hashes) FROM going_on o
    WHERE c.sweep_id = o.sweep_id
    RETURNING c.sweep_id, set_config('synchronous_commit', 'off', true)
), given AS MATERIALIZED (
    SELECT k.sweep_id, n.config_hash, n.config_text, n.overrides, n.params, n.reason, n.proposal, n.key,
           :first + n.nth::int - 1 AS number,
           row_number() OVER (PARTITION BY n.config_hash ORDER BY n.nth) = 1 AS leads
    FROM taken k, unnest(:hashes, :texts, :overrides, :params, :reasons, :proposals, :keys) WITH ORDINALITY
         AS n (config_hash, config_text, overrides, params, reason, proposal, key, nth)
), known AS MATERIALIZED (
    SELECT t.trial_id, t.number, t.state, t.config_hash
    FROM given g JOIN sweeper.trials t ON t.sweep_id = g.sweep_id AND t.config_hash = g.config_hash
    WHERE g.leads
), added AS (
    INSERT INTO sweeper.trials (sweep_id, number, config_hash)
    SELECT g.sweep_id, g.number, g.config_hash FROM given g
    WHERE g.leads AND g.config_hash IS NOT NULL
      AND NOT EXISTS (SELECT FROM known k WHERE k.config_hash = g.config_hash)
    ORDER BY g.number
    RETURNING trial_id, number, state, config_hash
), configured AS (
    INSERT INTO sweeper.configs (trial_id, lineage, config_text, overrides, params)
    SELECT a.trial_id, 0, g.config_text, CAST(g.overrides AS json), CAST(g.params AS json)
    FROM added a JOIN given g ON g.number = a.number
), trial AS (
    SELECT k.trial_id, k.number, k.state, k.config_hash FROM known k
    UNION ALL SELECT a.trial_id, a.number, a.state, a.config_hash FROM added a
), numbered AS (
    INSERT INTO sweeper.numbers (sweep_id, number, trial_id, reason, proposal)
    SELECT g.sweep_id, g.number, t.trial_id, g.reason, CAST(g.proposal AS json)
    FROM given g LEFT JOIN trial t ON t.config_hash = g.config_hash
), asked AS (
    INSERT INTO sweeper.requests (trial_id, asker_id, sweep_id)
    SELECT t.trial_id, a.asker_id, :sweep_id
    FROM trial t, (
        SELECT b.asker_id FROM sweeper.askers b WHERE b.asker_id = :asker_id FOR KEY SHARE
    ) a
    ON CONFLICT (trial_id, asker_id) DO NOTHING
), tried AS (
    UPDATE sweeper.enqueued e SET number = g.number FROM given g
    WHERE e.sweep_id = g.sweep_id AND e.key = g.key AND e.number IS NULL
), {attrs_kept("taken")}
SELECT t.trial_id, t.number, t.state FROM given g LEFT JOIN trial t ON t.config_hash = g.config_hash ORDER BY g.number
""")

_EMPTY: Final = """CAST('{"p": {}}' AS json)"""
"""A number that was asked for by name has no proposal."""

_GIVEN = statement("""
SELECT c.coordinator_id, c.fence, c.next_number, n.number IS NOT NULL AS given, n.proposal IS NOT NULL AS proposed,
       t.trial_id, t.config_hash, t.number, t.state, s.state = 'cancelled' AS cancelled
FROM sweeper.coordinators c JOIN sweeper.sweeps s ON s.sweep_id = c.sweep_id
CROSS JOIN unnest(:numbers) AS w (number)
LEFT JOIN sweeper.numbers n ON n.sweep_id = c.sweep_id AND n.number = w.number
LEFT JOIN sweeper.trials t ON t.trial_id = n.trial_id
WHERE c.sweep_id = :sweep_id
ORDER BY w.number
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


def add_numbers(
    db: Statements,
    sweep_id: SweepId,
    *,
    coordinator_id: CoordinatorId,
    fence: int,
    asker_id: AskerId,
    new: Sequence[NewNumber],
) -> list[Added]:
    """Commit proposals, all or none: each is a new trial, an alias of a known one, or has a reason why there is none.

    Asks for their trials, marks the enqueued points that they are, and merges the study attributes that they changed.
    Repeated with the same configs it is success.

    Args:
        new: of successive numbers, at least one.

    Raises:
        CoordinatorLost: another coordinator leads, or the sweep was cancelled; choose nothing more.
        NumberTaken: the numbers are not the next ones, or went to other configs: read the history anew.
    """
    trials = [one.trial for one in new]
    attrs: dict[str, Json] = {}
    for one in new:
        attrs |= one.suggestion.study_attrs
    parameters = {
        **leader(sweep_id, coordinator_id, fence),
        "asker_id": asker_id,
        "first": new[0].number,
        "hashes": [None if trial is None else trial.config_hash for trial in trials],
        "texts": [None if trial is None else trial.config_text for trial in trials],
        "overrides": [None if trial is None else _json(list(trial.overrides)) for trial in trials],
        "params": [None if trial is None else _json(dict(trial.params)) for trial in trials],
        "reasons": [None if one.trial is not None else storable(one.reason or "refused") for one in new],
        "proposals": [_json(one.suggestion.proposal.as_json()) for one in new],
        "keys": [one.suggestion.proposal.enqueued for one in new],
        **attr_parameters(attrs),
    }
    rows = db.run(_ADD, parameters) or _given(db, sweep_id, coordinator_id, fence, new)
    return [
        Added(
            trial_id=None if row.trial_id is None else TrialId(row.trial_id),
            alias=row.number is not None and row.number != one.number,
            first_number=row.number,
            state=None if row.state is None else TrialState(row.state),
        )
        for one, row in zip(new, rows, strict=True)
    ]


def history(db: Statements, sweep_id: SweepId, *, first: int = 0, limit: int | None = None) -> list[Numbered]:
    """Give every number from `first` on as it stands, in order; reports only of pruned and paused trials."""
    with collector_paused():
        return read_numbers(db.run(_HISTORY, {"sweep_id": sweep_id, "first": first, "limit": limit})[0])


def numbered(db: Statements, sweep_id: SweepId, numbers: Sequence[int]) -> list[Numbered]:
    """Give those numbers as they stand, in order; as `history`."""
    if not numbers:
        return []
    return read_numbers(db.run(_NUMBERED, {"sweep_id": sweep_id, "numbers": list(numbers)})[0])


def _given(
    db: Statements, sweep_id: SweepId, coordinator_id: CoordinatorId, fence: int, new: Sequence[NewNumber]
) -> Sequence[sa.Row[Any]]:
    """What the numbers have been given, when it was by these very proposals."""
    rows = db.run(_GIVEN, {"sweep_id": sweep_id, "numbers": [one.number for one in new]})
    if not rows or (rows[0].coordinator_id, rows[0].fence) != (coordinator_id, fence):
        raise coordinator_lost(sweep_id, coordinator_id, fence)
    others = [
        (one, row)
        for one, row in zip(new, rows, strict=True)
        if not row.proposed or row.config_hash != (None if one.trial is None else one.trial.config_hash)
    ]
    if not others:
        return rows
    one, row = others[0]
    if row.cancelled:
        raise CoordinatorLost(f"sweep {sweep_id} was cancelled")
    what = "was given otherwise" if row.given else f"is not the next one, which is {row.next_number}"
    raise NumberTaken(f"number {one.number} of sweep {sweep_id} {what}", next_number=row.next_number)


def _json(value: Json) -> str:
    return json.dumps(value, allow_nan=False)
