"""Fixtures of the Hydra tests; Hydra's own come from its pytest plugin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.core.singleton import Singleton

from tests.hydra.composing import Application
from tests.hydra.running import Desk, script


@pytest.fixture
def application(tmp_path: Path) -> Iterator[Application]:
    state = Singleton.get_state()
    GlobalHydra.instance().clear()
    yield Application(tmp_path)
    GlobalHydra.instance().clear()
    Singleton.set_state(state)


@pytest.fixture
def desk(tmp_path: Path, fresh_database: str) -> Desk:
    """A folder with a small script, and an empty database."""
    made = Desk(root=tmp_path, database_url=fresh_database)
    made.write(script())
    return made
