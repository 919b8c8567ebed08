"""Many records at once are the same records, and a column that does not fit is refused."""

from __future__ import annotations

import gc

import pytest

from sweeper.collector import collector_paused
from sweeper.ledger.bulk import many
from sweeper.ledger.numbers import read_reports
from sweeper.model.trial import Report


def test_records_made_of_columns_are_those_made_one_by_one() -> None:
    steps, values = [3, 1], [0.5, float("inf")]
    made = many(Report, 2, step=steps, at_step=steps, value=values, metrics=[{}, {"a": 1.0}])
    assert made == [
        Report(step=3, at_step=3, value=0.5),
        Report(step=1, at_step=1, value=float("inf"), metrics={"a": 1.0}),
    ]
    assert many(Report, 0, step=[], at_step=[], value=[], metrics=[]) == []
    with pytest.raises(AttributeError):
        made[0].step = 4  # type: ignore[misc]  # frozen all the same


def test_a_column_that_does_not_fit_is_refused() -> None:
    with pytest.raises(TypeError, match="columns of Report"):
        many(Report, 1, step=[1], at_step=[1], value=[1.0])
    with pytest.raises(TypeError, match="columns of Report"):
        many(Report, 1, step=[1], at_step=[1], value=[1.0], metrics=[{}], colour=["red"])
    with pytest.raises(ValueError, match="value has fewer than 2"):
        many(Report, 2, step=[1, 2], at_step=[1, 2], value=[1.0], metrics=[{}, {}])


def test_collection_goes_on_as_it_was_however_the_work_ends() -> None:
    with pytest.raises(KeyError, match="False"), collector_paused():
        {}[gc.isenabled()]
    assert gc.isenabled()
    gc.disable()
    try:
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled(), "somebody else's wish"
    finally:
        gc.enable()


def test_reports_of_many_trials_are_sorted_apart() -> None:
    found = read_reports([[2, 1, 2], [9, 1, 3], [0, 0, 0], ["NaN", 1, 2.5], [{}, {"a": {"$float": "inf"}}, {}]])
    assert {trial_id: [report.step for report in reports] for trial_id, reports in found.items()} == {1: [1], 2: [3, 9]}
    assert found[1][0].metrics == {"a": float("inf")}  # type: ignore[index]  # a plain number
    assert isinstance(found[1][0].value, float)  # type: ignore[index]
    assert read_reports([None, None, None, None, None]) == {}
