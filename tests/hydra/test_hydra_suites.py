"""Hydra's own published suites for launcher and sweeper plugins, unmodified, on one shared ledger."""

from __future__ import annotations

import pytest
from hydra.test_utils.launcher_common_tests import BatchedSweeperTestSuite, IntegrationTestSuite, LauncherTestSuite

pytestmark = [
    pytest.mark.slow,
    # Hydra warns of its own default in each of its own tests.
    pytest.mark.filterwarnings("default:Future Hydra versions"),
    pytest.mark.usefixtures("ledger_of_this_session"),
]


@pytest.fixture
def ledger_of_this_session(
    postgres_server: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEPER_DATABASE_URL", postgres_server)
    monkeypatch.setenv("SWEEPER_HOME", str(tmp_path_factory.getbasetemp() / "sweeper-home"))


@pytest.mark.parametrize(("launcher_name", "overrides"), [("sweeper", [])])
class TestLauncher(LauncherTestSuite):
    """Grids in this process."""


@pytest.mark.parametrize(
    ("task_launcher_cfg", "extra_flags"),
    [({}, ["-m", "hydra/launcher=sweeper"])],
)
class TestIntegration(IntegrationTestSuite):
    """Whole scripts."""


@pytest.mark.parametrize(
    ("launcher_name", "overrides"),
    [
        (
            "sweeper",
            ["hydra/sweeper=sweeper", "hydra/sweeper/sampler=grid", "hydra.sweeper.max_batch_size=2"],
        )
    ],
)
class TestBatchedSweeper(BatchedSweeperTestSuite):
    """A grid as a search, its results in batches."""
