"""URLs of the test server by way of a breakable network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from faults.postgres_servers import by_loopback, server_port
from faults.tcp_proxy import TcpProxy


@pytest.fixture
def proxy(postgres_server: str) -> Iterator[TcpProxy]:
    """A proxy in front of the test server."""
    with TcpProxy(("127.0.0.1", server_port(postgres_server))) as proxy:
        yield proxy


@pytest.fixture
def by_port(fresh_database: str) -> Callable[..., str]:
    """Makes the fresh database's URL at a loopback port, with further settings."""
    return partial(by_loopback, fresh_database)
