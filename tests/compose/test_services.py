"""Each service's own command, outside Docker: what is adapted is where things are, nothing else."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.compose.composition import ROOT, command_of, composition
from tests.s3_server import S3Server, start_s3_server, stop_s3_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SHORT = ["epochs=1", "width=4,8", "hydra.sweeper.n_trials=6", "hydra.launcher.checkpoint.every_s=0.2"]
"""The example as it is trains for minutes."""
PATIENCE_S = 280.0


@dataclass
class Yard:
    """The services' commands with addresses and paths of this machine."""

    root: Path
    database_url: str
    s3: S3Server
    port: int
    services: Mapping[str, Any] = field(default_factory=lambda: composition()["services"])
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, name: str, *more: str, copy: int = 0) -> subprocess.Popen[bytes]:
        """Start a service's command in an environment of its own; each container has a home of its own too."""
        service = self.services[name]
        command = [self._placed(word) for word in command_of(service)] + list(more)
        bare = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "TMPDIR") if key in os.environ}
        environ = {key: self._placed(value) for key, value in service["environment"].items()}
        programs = str(Path(sys.executable).parent)
        ours = {"SWEEPER_HOME": str(self.root / f"home-{name}-{copy}"), "PATH": f"{programs}:{bare['PATH']}"}
        with (self.root / f"{name}-{copy}.txt").open("ab") as sink:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=bare | environ | ours,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def printed(self) -> str:
        return "\n".join(f"== {path.name}\n{path.read_text()}" for path in sorted(self.root.glob("*.txt")))

    def trials(self) -> list[dict[str, Any]]:
        """What `docker compose exec dashboard sweeper trials digits --json` would say."""
        environ = {key: self._placed(value) for key, value in self.services["worker"]["environment"].items()}
        done = subprocess.run(
            [sys.executable, "-m", "sweeper.cli.app", "trials", "digits", "--json"],
            env=os.environ | environ | {"SWEEPER_HOME": str(self.root / "home-look")},
            capture_output=True,
            text=True,
            check=True,
        )
        listing: list[dict[str, Any]] = json.loads(done.stdout)
        return listing

    def close(self) -> None:
        """Stop what still runs, as Compose would: first asked, then killed."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self.started:
                if process.poll() is None:
                    os.killpg(process.pid, number)
            for process in self.started:
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    continue

    def _placed(self, text: str) -> str:
        """Replace the addresses and paths of containers by this machine's."""
        worker = self.services["worker"]["environment"]
        places = {
            worker["SWEEPER_DATABASE_URL"]: self.database_url,
            worker["AWS_ENDPOINT_URL"]: self.s3.endpoint,
            "0.0.0.0": "127.0.0.1",
            "8080": str(self.port),
        }
        if text in places:
            return places[text]
        return text.replace("=/runs/", f"={self.root}/runs/").replace("127.0.0.1:8080", f"127.0.0.1:{self.port}")


@pytest.fixture
def yard(tmp_path: Path, fresh_database: str) -> Iterator[Yard]:
    server = start_s3_server()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    made = Yard(root=tmp_path, database_url=fresh_database, s3=server, port=port)
    try:
        yield made
    finally:
        made.close()
        stop_s3_server(server)


def until(condition: Any, yard: Yard) -> None:
    """Look until something real has happened."""
    end = time.monotonic() + PATIENCE_S  # noqa: TID251 real processes are waited for
    while not condition():
        assert time.monotonic() < end, yard.printed()  # noqa: TID251
        time.sleep(0.2)  # noqa: TID251


def status(process: subprocess.Popen[bytes], yard: Yard) -> int:
    """The exit status, once it has one."""
    until(lambda: process.poll() is not None, yard)
    return process.returncode


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return bool(reply.status == 200 and reply.read())
    except OSError:
        return False


def test_the_services_together_train_the_digits_example(yard: Yard) -> None:
    """Bucket, dashboard, coordinator and two workers, begun in the order in which Compose begins them."""
    for _ in range(2):  # a container that is started again finds its bucket
        assert status(yard.start("bucket"), yard) == 0, yard.printed()
    dashboard = yard.start("dashboard")
    coordinator = yard.start("coordinator", *SHORT)
    workers = [yard.start("worker", *SHORT, copy=copy) for copy in range(2)]
    assert [status(process, yard) for process in (coordinator, *workers)] == [0, 0, 0], yard.printed()
    trials = yard.trials()
    assert len(trials) == 6
    assert {trial["state"] for trial in trials} <= {"completed", "pruned"}, yard.printed()
    assert len({attempt["worker"] for trial in trials for attempt in trial["attempts"]}) == 2
    health = yard.services["dashboard"]["healthcheck"]["test"]
    assert health[0] == "CMD"
    until(lambda: answers(f"http://127.0.0.1:{yard.port}/dashboard/"), yard)
    checked = subprocess.run([sys.executable, *[yard._placed(w) for w in health[2:]]], check=False, timeout=60)
    assert checked.returncode == 0
    assert dashboard.poll() is None, yard.printed()


@pytest.mark.soak
def test_a_service_that_is_stopped_and_begun_again_goes_on(yard: Yard) -> None:
    """`docker compose stop`, then `up`: an eviction (75, which restarts it), and nothing finished is trained again."""
    assert status(yard.start("bucket"), yard) == 0, yard.printed()
    few = [*SHORT, "hydra.sweeper.n_trials=4"]
    coordinator, worker = yard.start("coordinator", *few), yard.start("worker", *few)
    until(lambda: "completed" in yard.printed() or coordinator.poll() is not None, yard)
    for process in (worker, coordinator):
        os.killpg(process.pid, signal.SIGTERM)
    assert (status(worker, yard), status(coordinator, yard)) == (75, 75), yard.printed()
    before = [trial for trial in yard.trials() if trial["state"] == "completed"]
    coordinator, worker = yard.start("coordinator", *few), yard.start("worker", *few, copy=1)
    assert (status(coordinator, yard), status(worker, yard)) == (0, 0), yard.printed()
    after = {trial["number"]: trial for trial in yard.trials()}
    assert before
    for trial in before:
        kept = ("config_hash", "state", "values", "step", "attempts")
        assert [after[trial["number"]][key] for key in kept] == [trial[key] for key in kept]
    assert len(after) == 4


def test_the_bucket_command_says_what_is_wrong(yard: Yard) -> None:
    """CLEAR: without a store that answers it fails, so that nobody begins."""
    stop_s3_server(yard.s3)
    assert status(yard.start("bucket"), yard) == 1
    assert "make_bucket:" in yard.printed()
