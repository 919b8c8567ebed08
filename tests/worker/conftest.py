from __future__ import annotations

from collections.abc import Iterator

import pytest

from sweeper.model.search import SearchSpec

from .bench import Bench
from .searching import MakeBench, SearchBench


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


@pytest.fixture
def make_bench(ledger_url: str) -> Iterator[MakeBench]:
    """Benches of searches."""
    benches: list[SearchBench] = []

    def make(search: SearchSpec, **options: int) -> SearchBench:
        benches.append(SearchBench(ledger_url, search, **options))
        return benches[-1]

    yield make
    for bench in benches:
        bench.database.close()
