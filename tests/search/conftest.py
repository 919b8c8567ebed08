"""Samplers compute in pytest's own process, and other tests fork that one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def no_pool_of_threads() -> Iterator[None]:
    """Let torch compute on one thread: a pool, once made, would hang every later fork in its first computation."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
