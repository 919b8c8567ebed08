"""The ledger's map of the mirror: which entry of the study shows which trial, and as of which version.

A row names the study by the mark that the study carries, so that entries of another study, made anew meanwhile, are
never taken for ours, and whoever still writes under an old mark changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweeper.ids import ConfigHash, SweepId
from sweeper.ledger.mirroring import STARTED
from sweeper.ledger.sql import statement
from sweeper.ledger.statements import Statements
from sweeper.model.mirror import Alignment, MirrorAck

_ACKNOWLEDGE = statement("""
WITH given AS (
    SELECT g.trial_id, g.version, g.optuna_trial_id, g.lineage, g.at_step
    FROM unnest(:trial_ids, :versions, :optuna_trial_ids, :numbers, :at_steps)
        AS g (trial_id, version, optuna_trial_id, lineage, at_step)
    JOIN sweeper.trials t ON t.trial_id = g.trial_id
), placed AS (
    INSERT INTO sweeper.mirrored AS old (trial_id, optuna_trial_id, lineage, at_step, study)
    SELECT g.trial_id, g.optuna_trial_id, g.lineage, g.at_step, :study FROM given g ORDER BY g.trial_id
    ON CONFLICT (trial_id) DO UPDATE
    SET optuna_trial_id = excluded.optuna_trial_id, lineage = excluded.lineage, at_step = excluded.at_step
    WHERE old.study = excluded.study
    RETURNING trial_id
)
UPDATE sweeper.trials t SET mirrored_version = g.version
FROM given g JOIN placed p ON p.trial_id = g.trial_id
WHERE t.trial_id = g.trial_id AND t.version >= g.version AND t.mirrored_version <> g.version
""")

_ALIGN = statement("""
WITH gone AS (
    DELETE FROM sweeper.mirrored m USING sweeper.trials t
    WHERE t.trial_id = m.trial_id AND t.sweep_id = :sweep_id AND m.study <> :study
)
UPDATE sweeper.trials t SET mirrored_version = 0
WHERE t.sweep_id = :sweep_id AND t.mirrored_version > 0
  AND NOT EXISTS (SELECT FROM sweeper.mirrored m WHERE m.trial_id = t.trial_id AND m.study = :study)
""")

_ALIGNMENT = statement(f"""
SELECT max(m.optuna_trial_id) AS last_optuna_trial_id, count(*) FILTER (WHERE m.trial_id IS NULL) AS missing
FROM sweeper.trials t LEFT JOIN sweeper.mirrored m ON m.trial_id = t.trial_id AND m.study = :study
WHERE t.sweep_id = :sweep_id AND {STARTED}
""")

_ADOPT = statement("""
WITH adopted AS (
    INSERT INTO sweeper.mirrored AS old (trial_id, optuna_trial_id, lineage, at_step, study)
    SELECT t.trial_id, g.optuna_trial_id, g.lineage, -1, :study
    FROM unnest(:hashes, :numbers, :optuna_trial_ids) AS g (config_hash, lineage, optuna_trial_id)
    JOIN sweeper.trials t
        ON t.sweep_id = :sweep_id AND t.config_hash = g.config_hash AND t.lineage = g.lineage
    ON CONFLICT (trial_id) DO UPDATE
    SET optuna_trial_id = excluded.optuna_trial_id, lineage = excluded.lineage, at_step = excluded.at_step
    WHERE old.study = excluded.study
      AND (old.lineage < excluded.lineage OR old.optuna_trial_id = excluded.optuna_trial_id)
    RETURNING trial_id
)
SELECT count(*) AS adopted FROM adopted
""")


def acknowledge_mirrored(db: Statements, study: str, acks: Sequence[MirrorAck]) -> None:
    """Write down what the study of this mark shows now. A trial that the map has in another study stays as it is."""
    if not acks:
        return
    newest = {ack.trial_id: ack for ack in acks}.values()
    db.run(
        _ACKNOWLEDGE,
        {
            "study": study,
            "trial_ids": [ack.trial_id for ack in newest],
            "versions": [ack.version for ack in newest],
            "optuna_trial_ids": [ack.place.optuna_trial_id for ack in newest],
            "numbers": [ack.place.lineage for ack in newest],
            "at_steps": [ack.place.last_step for ack in newest],
        },
    )


def align_mirror(db: Statements, sweep_id: SweepId, study: str) -> Alignment:
    """Forget every place in another study than the one of this mark, and see what is missing in that one."""
    db.run(_ALIGN, {"sweep_id": sweep_id, "study": study})
    row = db.run(_ALIGNMENT, {"sweep_id": sweep_id, "study": study})[0]
    return Alignment(last_optuna_trial_id=row.last_optuna_trial_id, missing=row.missing)


def adopt_strays(db: Statements, sweep_id: SweepId, study: str, strays: Mapping[tuple[ConfigHash, int], int]) -> int:
    """Give trials the entries that were made for them, by hash and lineage, and never acknowledged; say how many fit.

    An entry of an older lineage, or of a trial that has another one, fits nothing.
    """
    parameters = {
        "sweep_id": sweep_id,
        "study": study,
        "hashes": [config_hash for config_hash, _ in strays],
        "numbers": [lineage for _, lineage in strays],
        "optuna_trial_ids": list(strays.values()),
    }
    adopted: int = db.run(_ADOPT, parameters)[0].adopted
    return adopted
