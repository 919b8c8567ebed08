from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from sweeper.checkpoint.store import ObjectStore, open_store

BACKENDS = ["file", "memory", "s3"]


def root_of(backend: str, request: pytest.FixtureRequest) -> str:
    """An empty root on a backend; for S3 the test module must name the plugin `tests.s3_server`."""
    if backend == "file":
        folder: Path = request.getfixturevalue("tmp_path")
        return f"{folder.as_uri()}/store"
    if backend == "memory":
        return f"memory://{uuid.uuid4().hex}/store"
    return str(request.getfixturevalue("s3_store_url"))


@pytest.fixture(params=BACKENDS)
def any_root(request: pytest.FixtureRequest) -> str:
    return root_of(request.param, request)


@pytest.fixture
def any_store(any_root: str) -> ObjectStore:
    return open_store(any_root)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(f"{tmp_path.as_uri()}/store")
