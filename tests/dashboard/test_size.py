"""Many trials with many reports: the mirror is written at once, and the dashboard answers and shows them (DB-03)."""

from __future__ import annotations

import pytest

from tests.dashboard.api import Api
from tests.dashboard.browser import Browser
from tests.mirror.world import SearchWorld

REPORTS = 50

FILL = """
WITH added AS (
    INSERT INTO sweeper.trials (sweep_id, number, config_hash, state, fence, attempts, step, result, reason,
                                outcome_key, outcome_hash, outcome_stored, finished_at, version)
    SELECT :sweep_id, n, encode(sha256(n::text::bytea), 'hex'), 'completed', 1, 1, :reports,
           to_json((n * 7919 % 10007) / 10007.0::float8), 'returned', 'k', 'h', true, now(), 2
    FROM generate_series(:first, :first + :trials - 1) n
    RETURNING trial_id, number
), configured AS (
    INSERT INTO sweeper.configs (trial_id, lineage, config_text, overrides, params)
    SELECT trial_id, 0, '{}', '[]', '{}' FROM added
), numbered AS (
    INSERT INTO sweeper.numbers (sweep_id, number, trial_id, proposal)
    SELECT :sweep_id, number, trial_id, json_build_object('p', json_build_object(
        'lr', 1e-5 * 10 ^ (number % 5), 'layers', 1 + number % 8, 'act', (ARRAY['relu', 'tanh', NULL])[1 + number % 3]))
    FROM added
), attempted AS (
    INSERT INTO sweeper.attempts (lease_id, trial_id, fence, lineage, worker_id, host, pool, started_at, first_step,
                                  ended_at, outcome, led_to)
    SELECT md5(number::text), trial_id, 1, 0, 'w', 'h', 'local', now() - interval '1 minute', 0, now(), 'completed',
           'completed' FROM added
)
INSERT INTO sweeper.reports (trial_id, step, at_step, value, metrics, fence, reported_at)
SELECT trial_id, s, s, 1.0 / (1 + s), '{}', 1, now() FROM added, generate_series(0, :reports - 1) s
"""


def fill(world: SearchWorld, trials: int) -> None:
    """Have that many completed trials in the ledger, and the mirror written as a coordinator does."""
    at_once = min(trials, 1000)
    for first in range(0, trials, at_once):
        world.sql(FILL, sweep_id=world.sweep.sweep_id, first=first, trials=at_once, reports=REPORTS)
    assert world.lag == trials
    mirroring = world.mirroring()
    world.turn(mirroring, 6)
    mirroring.close()
    assert (world.lag, world.notes) == (0, [])


@pytest.mark.slow
@pytest.mark.parametrize("trials", [1000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_many_trials_of_fifty_reports_are_written_and_answered(trials: int, world: SearchWorld, api: Api) -> None:
    fill(world, trials)
    found = world.sql("SELECT count(*) AS trials FROM optuna.trials")[0]
    assert found.trials == trials
    detail = api.study()
    assert len(detail["trials"]) == trials
    assert all(len(one["intermediate_values"]) == REPORTS for one in detail["trials"])
    assert all(sum(len(a["key"]) + len(a["value"]) for a in one["user_attrs"]) < 1024 for one in detail["trials"])


@pytest.mark.slow
def test_five_hundred_of_them_are_shown(world: SearchWorld, browser: Browser, served: str) -> None:
    """Not ten thousand: the dashboard draws a line for each trial that reports, which takes it minutes then."""
    fill(world, 500)
    address = f"{served}/studies/{world.study()._study_id}"
    browser.go(address)
    browser.wait_for("History", "Importance", "Intermediate")
    browser.wait_for_plots(4)
    assert browser.errors == []
    browser.go(f"{address}/analytics")
    browser.wait_for("Hyperparameter Relationships", "Contour")
    browser.wait_for_plots(3)
    assert browser.errors == []
