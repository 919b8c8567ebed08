"""The comparison with the Optuna sweeper plugin: every row names a test that is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/optuna-plugin.md"
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")
ROWS = [
    line
    for line in PAGE.read_text().splitlines()
    if line.startswith("|") and not line.startswith("| feature |") and not line.startswith("|---")
]


def collected(path: Path) -> set[str]:
    """Functions and classes of a file's top that pytest collects."""
    return {
        node.name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name.lower().startswith("test")
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:60])
def test_every_row_names_a_test_that_exists(row: str) -> None:
    cells = re.split(r"(?<!\\)\|", row.strip("|"))
    assert len(cells) == 4, row
    ((file, name),) = NAMED.findall(cells[3])
    assert name in collected(ROOT / "tests" / file)


def test_what_the_text_names_exists_too() -> None:
    found = NAMED.findall(PAGE.read_text())
    assert len(found) > len(ROWS)
    for file, name in found:
        assert name in collected(ROOT / "tests" / file)


def test_the_page_goes_through_what_people_compare() -> None:
    text = PAGE.read_text()
    for word in (
        "pruning",
        "several objectives",
        "max_failure_rate",
        "optimization_results.yaml",
        "dashboard",
        "storage",
    ):
        assert word in text
    assert len(ROWS) >= 40
