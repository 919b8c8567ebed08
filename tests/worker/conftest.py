from __future__ import annotations

from collections.abc import Iterator

import pytest

from .bench import Bench


@pytest.fixture
def bench(ledger_url: str) -> Iterator[Bench]:
    """One pending trial."""
    bench = Bench(ledger_url)
    yield bench
    bench.database.close()


@pytest.fixture
def busy_bench(ledger_url: str) -> Iterator[Bench]:
    """Three pending trials."""
    bench = Bench(ledger_url, trials_=3)
    yield bench
    bench.database.close()
