"""Real processes: killed with SIGKILL at any instant, resumed in fresh interpreters under other hash seeds."""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from sweeper.clock import SystemClock
from sweeper.model.messages import Finished, Reported, Saved, Sealed, Start, Stop, Stopped, ToWorker
from sweeper.trial.child_starter import ChildStarter
from sweeper.trial.fresh import FreshParent
from sweeper.trial.resume_check import check_resume, with_hash_seed
from tests.trial.lone_worker import START
from tests.trial.train_script import ROLES

SCRIPT = Path(__file__).with_name("train_script.py")
pytestmark = pytest.mark.slow


@dataclass
class Bench:
    """Starts children in fresh interpreters and serves them by hand."""

    folder: Path
    seeds: Any = field(default_factory=lambda: iter(range(1, 100)))

    def start(self, start: Start, restore_fd: int | None = None, hash_seed: int | None = None) -> Any:
        with_hash_seed(next(self.seeds) if hash_seed is None else hash_seed)
        parent = FreshParent([sys.executable, str(SCRIPT)], ROLES, cwd=SCRIPT.parents[2])
        return ChildStarter(parent, fallback=None, clock=SystemClock()).start(start, restore_fd)

    def job(self, *overrides: str, every_s: float = 0.0) -> Start:
        return replace(START, overrides=list(overrides), sweep_dir=str(self.folder), every_s=every_s)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("PYTHONPATH", str(SCRIPT.parents[2]))
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    return Bench(tmp_path)


@dataclass
class Served:
    """What a child said until its end, and the newest save that was sealed whole."""

    messages: list[ToWorker] = field(default_factory=list)
    save: tuple[Sealed, bytes] | None = None

    @property
    def reports(self) -> dict[int, float]:
        return {message.step: message.value for message in self.messages if isinstance(message, Reported)}


def serve(child: Any, *, act: Callable[[Served, Any], None] | None = None) -> Served:
    served = Served()
    while True:
        ended = child.exited is not None
        for message in child.receive():
            served.messages.append(message)
            if isinstance(message, Sealed):
                end = message.layout_offset + message.layout_bytes
                served.save = message, bytes(child.staged()[:end])
                child.send(Saved(seq=message.seq, ok=True))
        if ended:
            break
        if act is not None:
            act(served, child)
        select.select(child.filenos(), [], [], 0.002)
    child.close()
    return served


@contextmanager
def restoring(start: Start, save: tuple[Sealed, bytes] | None) -> Iterator[tuple[Start, int | None]]:
    """The job of the next attempt, and a descriptor of the restore file if there is one."""
    if save is None:
        yield start, None
        return
    sealed, content = save
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        restore = {"step": sealed.facts["step"], "seq": sealed.seq, "layout_offset": sealed.layout_offset,
                   "layout_bytes": sealed.layout_bytes}  # fmt: skip
        yield replace(start, restore=restore, attempt=start.attempt + 1), file.fileno()


def test_a_trial_killed_at_random_instants_ends_with_the_right_value(bench: Bench) -> None:
    """CK-03, RESUME: whatever was sealed when the process died is whole, and continues bit for bit."""
    job = bench.job("exact", "workers=2", "epochs=4", "pause_s=0.02")
    straight = serve(bench.start(replace(job, every_s=1e9)))
    random_ = random.Random(2)
    save: tuple[Sealed, bytes] | None = None
    reports: dict[int, float] = {}
    for limit in (2, random_.randrange(1, 6), 10**9):

        def act(served: Served, child: Any, limit: int = limit) -> None:
            if sum(isinstance(message, Sealed) for message in served.messages) >= limit:
                child.kill()

        with restoring(job, save) as (start, restore_fd):
            served = serve(bench.start(start, restore_fd), act=act)
        save, reports = served.save or save, reports | served.reports
        if isinstance(served.messages[-1], Finished):
            break
    assert served.messages[-1] == straight.messages[-1]
    assert reports == straight.reports


def test_a_group_that_is_told_to_end_still_reaches_its_safe_point_with_its_loader_workers(bench: Bench) -> None:
    """SIGTERM to the group, twice, and SIGINT: training and its loader's workers go on until the worker says stop."""
    told = []

    def act(served: Served, child: Any) -> None:
        if child.step >= 3 and not told:
            told.append(child.step)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
                os.killpg(child.pid, number)
        if told and child.step >= told[0] + 4 and len(told) == 1:
            told.append(child.step)
            child.send(Stop(kind="evicted", reason="test", save=True, seconds_left=20.0))

    job = bench.job("exact", "workers=2", "epochs=40", "pause_s=0.02", every_s=1e9)
    served = serve(bench.start(job), act=act)
    last = served.messages[-1]
    assert isinstance(last, Stopped)
    assert last.kind == "evicted"
    assert served.save is not None
    assert served.save[0].facts["step"] >= told[0] + 4


@pytest.mark.parametrize(
    ("task", "exact", "says"),
    [
        (["exact", "workers=2"], True, "bit for bit"),
        (["local_variable"], False, "two undisturbed runs agree"),
        (["unregistered_model"], False, "two undisturbed runs agree"),
        (["hash_order"], False, "two undisturbed runs differ as well"),
        (["without_sweeper"], False, "restarts from zero"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_check_finds_out_whether_a_script_resumes_exactly(
    bench: Bench, task: list[str], exact: bool, says: str
) -> None:
    finding = check_resume(bench.start, bench.job(*task), tell=lambda text: None)
    assert finding.exact is exact, finding.lines
    assert says in "\n".join(finding.lines)
