"""Searches in this test's ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.coordinator.searches import Search, search


@pytest.fixture
def begin(ledger_url: str) -> Iterator[Callable[..., Search]]:
    """Begins a search under a name; settings of its spec and of `Search` may be given."""
    begun: list[Search] = []

    def begin_(*, name: str = "digits", **settings: Any) -> Search:
        spec = {key: settings.pop(key) for key in list(settings) if key in search().__dataclass_fields__}
        begun.append(Search(ledger_url, search(**spec), name=name, **settings))
        return begun[-1]

    yield begin_
    for one in begun:
        one.db.close()
