"""The worker's side of a conversation, in the same process as the training it serves.

It answers at once, whenever the session sends something, so that a run is a plain function call and every save point
can be reached exactly. Its memory, socket and frames are the real ones.
"""

from __future__ import annotations

import mmap
import os
import random
import select
import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from sweeper.model.control import PAGE_BYTES, ControlPage
from sweeper.model.messages import (
    FrameDecoder,
    Reported,
    Saved,
    SaveFailed,
    SaveNow,
    Sealed,
    Start,
    Stop,
    ToChild,
    ToWorker,
    encode,
)
from sweeper.model.staging import Layout, SaveFacts
from sweeper.trial.seeding import seed_everything
from sweeper.trial.session import Session, install, uninstall
from sweeper.trial.stops import StopTraining

START = Start(
    number=0, config_hash="ab" * 32, overrides=[], sweep_dir="/nowhere", output_subdir="0", attempt=1, fence=1, seed=7,
    threads=1, gpu=None, every_s=float("inf"), restore=None, first_seq=1,
)  # fmt: skip


class Killed(BaseException):
    """The process is gone: not even `except Exception` runs."""


@dataclass(frozen=True, kw_only=True)
class Save:
    """A sealed save, taken out of the staging file."""

    facts: SaveFacts
    content: bytes
    layout_offset: int
    layout_bytes: int

    @property
    def layout(self) -> Layout:
        return Layout.from_bytes(self.content[self.layout_offset :])

    @property
    def batch(self) -> Any:
        position = self.facts.position
        assert isinstance(position, dict)
        return position.get("batch")


@dataclass
class StepClock:
    """Time that stands still unless a test moves it."""

    now_s: float = 0.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall(self) -> Any:
        raise AssertionError("training has no use for the date")


class AnsweringSocket:
    """The child's socket; each frame sent is answered before `sendall` returns."""

    def __init__(self, real: socket.socket, answer: Callable[[], None]) -> None:
        self._real = real
        self._answer = answer

    def sendall(self, data: bytes) -> None:
        self._real.sendall(data)
        self._answer()

    def recv(self, size: int, flags: int = 0) -> bytes:
        return self._real.recv(size, flags)

    def fileno(self) -> int:
        return self._real.fileno()


@dataclass
class LoneWorker:
    """Serves one attempt. `on_save` sees each save and may send, kill (raise `Killed`) or decline to answer (False);
    `on_report` sees each report and may send or kill."""

    start: Start = START
    restore: Save | None = None
    on_save: Callable[[LoneWorker, Save], bool | None] | None = None
    on_report: Callable[[LoneWorker, Reported], None] | None = None
    clock: StepClock = field(default_factory=StepClock)
    saves: list[Save] = field(default_factory=list)
    reports: list[Reported] = field(default_factory=list)
    failures: list[SaveFailed] = field(default_factory=list)
    value: Any = None
    stopped: StopTraining | None = None
    final: Save | None = None

    def run(self, train: Callable[[], Any], *, scramble: int = 0) -> LoneWorker:
        """Train as a child would; kills and stops end it. Random state is scrambled before it is seeded."""
        mine, theirs = socket.socketpair()
        self._socket = mine
        self._decoder = FrameDecoder()
        control_file, staging_file, restore_file = (tempfile.TemporaryFile() for _ in range(3))  # noqa: SIM115
        os.ftruncate(control_file.fileno(), PAGE_BYTES)
        self.control = ControlPage(control_file.fileno())
        self._staging = staging_file.fileno()
        start = self.start
        if self.restore is not None:
            restore_file.write(self.restore.content)
            restore_file.flush()
            start = replace(start, restore={
                "step": self.restore.facts.step, "seq": self.restore.facts.seq,
                "layout_offset": self.restore.layout_offset, "layout_bytes": self.restore.layout_bytes,
            })  # fmt: skip
        scramble_random(scramble)
        self.session = Session(
            start, channel=AnsweringSocket(theirs, self._turn), control=self.control,  # type: ignore[arg-type]
            staging_fd=self._staging, restore_fd=restore_file.fileno(), clock=self.clock,
        )  # fmt: skip
        seed_everything(start.seed, start.config_hash)
        uninstall()
        install(self.session)
        try:
            self.value = train()
            self.session.finish()
        except Killed:
            self.value = Killed
        except StopTraining as stop:
            self.stopped = stop
        finally:
            uninstall()
            self.session.on_finish = None
            for thing in (mine, theirs, control_file, staging_file, restore_file):
                thing.close()
        self.stopped = self.session.stopped
        return self

    def send(self, message: ToChild) -> None:
        self._socket.sendall(encode(message))
        self.control.raise_inbox()

    def stop(self, kind: str = "evicted", *, save: bool = True, seconds_left: float | None = None) -> None:
        self.send(Stop(kind=kind, reason="test", save=save, seconds_left=seconds_left))

    def save_now(self) -> None:
        self.send(SaveNow(reason="test"))

    def _turn(self) -> None:
        while self._socket.fileno() >= 0 and select.select([self._socket], [], [], 0)[0]:
            for message in self._decoder.feed(self._socket.recv(1 << 16)):
                self._take(message)

    def _take(self, message: ToChild | ToWorker) -> None:
        match message:
            case Reported():
                self.reports.append(message)
                if self.on_report is not None:
                    self.on_report(self, message)
            case SaveFailed():
                self.failures.append(message)
            case Sealed():
                self._keep(message)

    def _keep(self, sealed: Sealed) -> None:
        end = sealed.layout_offset + sealed.layout_bytes
        with mmap.mmap(self._staging, end, access=mmap.ACCESS_READ) as staged:
            content = staged[:end]
        facts = SaveFacts(**sealed.facts)
        save = Save(facts=facts, content=content, layout_offset=sealed.layout_offset, layout_bytes=sealed.layout_bytes)
        if facts.position == {"final": True}:
            self.final = save
        else:
            self.saves.append(save)
            if self.on_save is not None and self.on_save(self, save) is False:
                return
        self.send(Saved(seq=sealed.seq, ok=True))


def scramble_random(number: int) -> None:
    """Whatever ran in a process before must not matter."""
    import numpy as np
    import torch

    random.seed(1000 + number)
    np.random.seed(2000 + number)
    torch.manual_seed(3000 + number)


def exact_reports(*workers: LoneWorker) -> dict[int, tuple[int, str, str]]:
    """Reports by step, later attempts replacing earlier ones, floats as their exact bits."""
    return {
        report.step: (report.at_step, report.value.hex(), repr(sorted(report.metrics.items())))
        for worker in workers
        for report in worker.reports
    }


def assert_resumes_exactly(
    make: Callable[[], Callable[[], Any]],
    *,
    at: Callable[[Save], bool] | None = None,
    every: int = 1,
) -> LoneWorker:
    """Train straight without a save; then save at every save point and resume from each; all must end the same.

    Args:
        make: gives a fresh training function, as a fresh process would; its loaders and models are its own.
        at: which saves to resume from; all of them by default.
        every: resume only from each so-manyth of them.
    """
    start = replace(START, trace=True)
    straight = LoneWorker(start=start).run(make(), scramble=1)
    assert straight.final is not None, "the straight run came to its end"
    saving = LoneWorker(start=replace(start, every_s=0.0)).run(make(), scramble=2)
    assert_same_end(straight, saving)
    saves = [save for save in saving.saves if at is None or at(save)][::every]
    assert saves, "there is something to resume from"
    for number, save in enumerate(saves):
        before = LoneWorker(start=start)
        before.reports = [report for report in saving.reports if report.at_step <= save.facts.step]
        after = LoneWorker(start=replace(start, attempt=2), restore=save).run(make(), scramble=10 + number)
        try:
            assert_same_end(straight, after, before=before)
        except AssertionError as error:
            raise AssertionError(f"resumed from step {save.facts.step}, {save.facts.position}: {error}") from error
    return saving


def assert_same_end(straight: LoneWorker, other: LoneWorker, *, before: LoneWorker | None = None) -> None:
    assert straight.final is not None
    assert other.final is not None, "it came to its end"
    assert other.value == straight.value or (other.value != other.value and straight.value != straight.value)
    assert exact_reports(*([before] if before else []), other) == exact_reports(straight)
    mine, theirs = fingerprint(straight.final), fingerprint(other.final)
    assert mine.keys() == theirs.keys()
    assert [path for path in mine if mine[path] != theirs[path]] == []


def fingerprint(save: Save) -> dict[str, str]:
    """Path → exact text of every leaf of a save, tensors by their bytes."""
    layout = save.layout
    found: dict[str, str] = {}

    def walk(node: Any, path: str) -> None:
        if isinstance(node, dict) and isinstance(node.get("entry"), int):
            entry = layout.tensors[node["entry"]]
            data = save.content[entry.offset : entry.offset + entry.size_bytes]
            found[path] = f"{ {key: value for key, value in node.items() if key != 'entry'} } {data.hex()}"
        elif isinstance(node, dict):
            for key, value in node.items():
                walk(value, f"{path}.{key}")
        elif isinstance(node, list):
            for index, value in enumerate(node):
                walk(value, f"{path}[{index}]")
        else:
            found[path] = repr(node)

    walk(layout.tree, "")
    return found


def refused(train: Callable[[], Any], error: type[BaseException], match: str) -> None:
    """The training function is refused with one message."""
    with pytest.raises(error, match=match):
        LoneWorker().run(train)
