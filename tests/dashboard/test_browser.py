"""The dashboard as people see it, in a real browser: content everywhere, and no script error (DB-02, DB-03)."""

from __future__ import annotations

import json
from urllib.request import urlopen

import pytest

from tests.dashboard.browser import Browser

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def studies(dashboard: str) -> dict[str, str]:
    """Address of each study's first page, by name."""
    with urlopen(dashboard.replace("/dashboard", "/api/studies")) as answer:
        found = json.load(answer)["study_summaries"]
    return {one["study_name"]: f"{dashboard}/studies/{one['study_id']}" for one in found}


def test_the_list_shows_every_search(dashboard: str, browser: Browser) -> None:
    browser.go(dashboard)
    text = browser.wait_for("finished", "running", "two objectives", "nets", "empty")
    assert "MINIMIZE, MAXIMIZE" in text
    assert browser.errors == []


@pytest.mark.parametrize(
    ("name", "shown", "plots"),
    [
        pytest.param("finished", ("History", "Importance", "Timeline", "Intermediate", "lr", "act"), 4, id="finished"),
        pytest.param("running", ("History", "Importance", "Timeline", "Intermediate"), 3, id="running"),
        pytest.param("two objectives", ("Pareto", "Importance", "Objective 1"), 3, id="two objectives"),
        pytest.param("nets", ("History", "Importance", "net", "ones", "width"), 3, id="lists as choices"),
        pytest.param("empty", ("empty", "History"), 0, id="no trials"),
    ],
)
def test_the_first_page_has_history_and_importance(
    studies: dict[str, str], browser: Browser, name: str, shown: tuple[str, ...], plots: int
) -> None:
    browser.go(studies[name])
    browser.wait_for(*shown)
    browser.wait_for_plots(plots)
    assert browser.errors == []


@pytest.mark.parametrize(
    ("name", "texts"),
    [("finished", ("relu", "tanh")), ("running", ("Slice",)), ("two objectives", ("Slice",)), ("nets", ("Slice",))],
)
def test_the_analysis_page_relates_parameters_to_values(
    studies: dict[str, str], browser: Browser, name: str, texts: tuple[str, ...]
) -> None:
    browser.go(f"{studies[name]}/analytics")
    browser.wait_for("Hyperparameter Relationships", "Contour", "Rank", *texts)
    browser.wait_for_plots(3)
    assert browser.errors == []


@pytest.mark.parametrize(
    ("name", "texts", "rows"),
    [
        ("finished", ("lr", "layers", "act"), 24),
        ("running", ("Running", "Complete"), 6),
        ("two objectives", ("lr", "layers"), 8),
        ("nets", ('{"wide":[64,null]}', '"1"', "[8,8]"), 9),
    ],
)
def test_the_parallel_coordinates_and_the_table_of_trials_are_there(
    studies: dict[str, str], browser: Browser, name: str, texts: tuple[str, ...], rows: int
) -> None:
    browser.go(f"{studies[name]}/smartSelection")
    browser.wait_for("Parallel Coordinate", *texts)
    browser.wait_for_plots(2)
    assert browser.coordinates > 0, "an axis for each parameter"
    assert browser.rows == rows
    assert browser.errors == []


def test_a_trials_page_has_its_parameters_attributes_and_error(studies: dict[str, str], browser: Browser) -> None:
    browser.go(f"{studies['finished']}/trials?numbers=7")
    browser.wait_for("24 Trials", "Trial 7", "sweeper:number", "sweeper:error", "ValueError: </script><b>no</b>")
    assert browser.errors == []
    browser.go(f"{studies['running']}/trials?numbers=4")
    browser.wait_for("Trial 4", "Running", "sweeper:hash")
    assert browser.errors == []
