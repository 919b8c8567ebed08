"""A real S3 protocol server (moto) in its own process on loopback: ``pytest_plugins = ["tests.s3_server"]``.

The session fixture `s3_server` puts endpoint, region and dummy credentials into this process's environment, as a user
would; `s3_store_url` makes a fresh bucket and gives ``s3://bucket/…``.

PYTEST_DONT_REWRITE (a test may have imported this module before another names it as a plugin)
"""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import botocore.session
import pytest

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing-secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass(frozen=True)
class S3Server:
    """A running server; `process` is ours to end."""

    process: subprocess.Popen[bytes]
    host: str
    port: int

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}:{self.port}"


def start_s3_server() -> S3Server:
    """Start the server on a free port and wait until it answers."""
    for _ in range(5):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if _answers(process, port):
            return S3Server(process, "127.0.0.1", port)
        stop_s3_server(S3Server(process, "127.0.0.1", port))
    raise RuntimeError("moto did not start")


def stop_s3_server(server: S3Server) -> None:
    """End the server, at once if it must be."""
    server.process.terminate()
    try:
        server.process.wait(5)
    except subprocess.TimeoutExpired:
        server.process.kill()
        server.process.wait()


def make_bucket(server: S3Server) -> str:
    """Make a fresh bucket and give its name."""
    bucket = f"sweeper-{uuid.uuid4().hex}"
    client = botocore.session.get_session().create_client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=CREDENTIALS["AWS_DEFAULT_REGION"],
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )
    try:
        client.create_bucket(Bucket=bucket)
    finally:
        client.close()
    return bucket


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """The session's server; this process's environment points at it."""
    server = start_s3_server()
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in (CREDENTIALS | {"AWS_ENDPOINT_URL": server.endpoint}).items():
            patch.setenv(name, value)
        yield server
    stop_s3_server(server)


@pytest.fixture
def s3_store_url(s3_server: S3Server) -> str:
    """The URL of an empty store in a fresh bucket."""
    return f"s3://{make_bucket(s3_server)}/store"


def _answers(process: subprocess.Popen[bytes], port: int, patience_s: float = 30.0) -> bool:
    deadline = time.monotonic() + patience_s  # noqa: TID251 a real server in real time
    while time.monotonic() < deadline and process.poll() is None:  # noqa: TID251
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/moto-api/")
            return connection.getresponse().status == 200
        except OSError:
            time.sleep(0.05)  # noqa: TID251
        finally:
            connection.close()
    return False
