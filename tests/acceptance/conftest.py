"""Real sweeps by real commands, each test in a working directory of its own, on a shared or a private home."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sweeper.ledger.embedded import ensure_server, stop_server
from tests.acceptance.multirun import DRAWN, Bench

GRID = "lr=0.3,0.1,0.03,0.01"


@pytest.fixture(scope="session")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("home")
    ensure_server(home)
    yield home
    stop_server(home)


@pytest.fixture
def private_home(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "home"
    yield home
    stop_server(home)


@pytest.fixture
def script() -> Path:
    """What is trained; with torch where a test says so."""
    return DRAWN


@pytest.fixture
def bench(tmp_path: Path, shared_home: Path, script: Path) -> Bench:
    return Bench(root=tmp_path / "bench", home=shared_home, script=script)


@pytest.fixture(scope="session")
def undisturbed_values(
    tmp_path_factory: pytest.TempPathFactory, shared_home: Path
) -> Callable[[Path], Mapping[str, Any]]:
    @cache
    def values(script: Path) -> Mapping[str, Any]:
        bench = Bench(root=tmp_path_factory.mktemp("undisturbed"), home=shared_home, script=script)
        name = f"undisturbed-{script.stem}"
        status = bench.finish(GRID, f"hydra.launcher.name={name}", "hydra.launcher.workers=2")
        assert status == 0, bench.printed()
        values = bench.values(name)
        assert len(values) == 4
        return values

    return values


@pytest.fixture
def undisturbed(undisturbed_values: Callable[[Path], Mapping[str, Any]], script: Path) -> Mapping[str, Any]:
    """The values of the script's uninterrupted sweep, by config hash."""
    return undisturbed_values(script)


@pytest.fixture
def sweep_name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


OverridesFor = Callable[..., list[str]]


@pytest.fixture
def overrides(sweep_name: str) -> OverridesFor:
    """The command's overrides: the grid, and limits raised so that kills alone never fail a trial."""

    def build(*more: str, workers: int = 2, every_s: float = 0.2) -> list[str]:
        return [
            GRID,
            f"hydra.launcher.name='{sweep_name}'",
            f"hydra.launcher.workers={workers}",
            "hydra.launcher.retry.max_crashes=1000",
            "hydra.launcher.retry.max_no_progress=1000",
            f"hydra.launcher.checkpoint.every_s={every_s}",
            *more,
        ]

    return build
