"""Fixtures of the tests without Hydra."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plain.desk import Desk


@pytest.fixture
def desk(tmp_path: Path, fresh_database: str) -> Desk:
    """A folder with training code, and an empty database."""
    return Desk(root=tmp_path, database_url=fresh_database)
