"""A child that speaks the protocol and trains a number in virtual time; a wrong resume gives a wrong number."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import asdict

from sweeper.model.messages import (
    Failed,
    Finished,
    Reported,
    Restore,
    Saved,
    SaveNow,
    Sealed,
    Start,
    Started,
    Stop,
    Stopped,
    ToChild,
    ToWorker,
)
from sweeper.model.staging import Layout, SaveFacts, TensorEntry
from sweeper.model.waits import ExitStatus
from sweeper.trial.session import SAVE_WAIT_S

from .world import Process

STATE = struct.Struct("<qq")
MODULUS = 2**31 - 1


def advance(total: int, step: int, config_hash: str) -> int:
    """One training step: depends on the config, the step and everything before it."""
    return (total * 48271 + int(config_hash[:8], 16) + step) % MODULUS


def expected_value(config_hash: str, steps: int) -> int:
    """What an undisturbed run returns."""
    total = 1
    for step in range(1, steps + 1):
        total = advance(total, step, config_hash)
    return total


class SimChild:
    """Implements `Child` without a process. Messages arrive at once; steps take virtual time."""

    def __init__(
        self, process: Process, start: Start, restore_fd: int | None, *, steps: int, padding: int, crash: str | None
    ) -> None:
        self._process = process
        self._world = process.world
        self._random = process.world.random(f"child/{start.number}/{start.fence}/{process.name}")
        self._start = start
        self._steps = steps
        self._padding = padding
        self._crash = crash
        self._crash_at = self._random.randint(0, steps)
        self.on_crash: Callable[[], None] = lambda: None
        self.step = 0
        self.safe_points = 0
        self.stateful = False
        self.pid = 1
        self.closed = False
        self._total = 1
        self._outbox: list[ToWorker] = []
        self._inbox: list[ToChild] = []
        self._status: ExitStatus | None = None
        self._staged = bytearray()
        self._next_seq = start.first_seq
        self._in_flight: int | None = None
        self._save_due_s = 0.0
        self._wanted = False
        self._leaves_by_s = float("inf")
        self.hangs = False
        if restore_fd is not None and start.restore is not None:
            self._load(restore_fd, Restore(**start.restore))
        process.children.append(self)
        self._later(self._random.uniform(0.05, 1.5), self._begin)

    # -- the worker's side --------------------------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        return bool(self._outbox) or self._status is not None

    @property
    def exited(self) -> ExitStatus | None:
        return None if self._outbox else self._status

    @property
    def lives(self) -> bool:
        """Whether it still holds the lock that it shares with its worker."""
        return self._status is None

    @property
    def look_again_s(self) -> float:
        return float("inf")

    def filenos(self) -> tuple[int, ...]:
        return ()

    def receive(self) -> list[ToWorker]:
        messages, self._outbox = self._outbox, []
        return messages

    def send(self, message: ToChild) -> None:
        self._inbox.append(message)

    def staged(self) -> memoryview:
        return memoryview(bytes(self._staged))

    def output_tail(self) -> str:
        return ""

    def kill(self) -> None:
        self._exit(ExitStatus(code=None, signal=9))

    def close(self) -> None:
        assert not self.lives, "closed while it lives"
        self.closed = True

    def orphaned(self) -> None:
        """The worker died: the death signal arrives a moment later."""
        self._later(self._random.uniform(0.0, 0.2), self.kill)

    # -- training -----------------------------------------------------------------------------------------------------

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        def act() -> None:
            if self._status is None:
                action()

        self._world.after(delay_s, act)

    def _begin(self) -> None:
        if self._crash is not None and self._crash_at == 0:
            self._die()
            return
        self._tell(Started(pid=self.pid))
        self.stateful = True
        self._save_due_s = self._world.now_s + self._start.every_s
        self._later(self._random.uniform(0.5, 3.0), self._train)

    def _train(self) -> None:
        self.step += 1
        self._total = advance(self._total, self.step, self._start.config_hash)
        if self._crash is not None and self.step >= self._crash_at:
            self._die()
            return
        if self._random.random() < 0.3:
            self._report()
        self._go_on()

    def _report(self) -> None:
        self._tell(Reported(step=self.step, at_step=self.step, value=float(self._total), metrics={"m": 1.5}))

    def _go_on(self) -> None:
        """The end of the loop's body: a safe point, and the next body."""
        self.safe_points += 1
        if self.step >= self._steps:
            self._tell(Finished(value=self._total, step=self.step))
            self._later(self._random.uniform(0.0, 0.5), lambda: self._exit(ExitStatus(code=0)))
            return
        if not self._safe_point():
            self._later(self._random.uniform(0.5, 3.0), self._train)

    def _safe_point(self) -> bool:
        """Act on what the worker said; True when nothing is trained after it."""
        stop = None
        for message in self._inbox:
            match message:
                case Saved() if message.seq == self._in_flight:
                    self._in_flight = None
                case SaveNow():
                    self._wanted = True
                case Stop():
                    stop = message
                case _:
                    pass
        self._inbox = [message for message in self._inbox if message is stop]
        due = self._wanted or self._world.now_s >= self._save_due_s or (stop is not None and stop.save)
        if due and self._in_flight is None:
            self._save()
        elif stop is not None and stop.save and self._waits_on(stop):
            self._later(0.2, self._safe_point)  # stands here until the one in flight has ended, then takes its last
            return True
        if stop is None:
            return False
        self._tell(Stopped(kind=stop.kind, step=self.step))
        self._later(self._random.uniform(0.0, 0.5), lambda: self._exit(ExitStatus(code=75)))
        return True

    def _waits_on(self, stop: Stop) -> bool:
        patience_s = SAVE_WAIT_S if stop.seconds_left is None else stop.seconds_left
        self._leaves_by_s = min(self._leaves_by_s, self._world.now_s + patience_s)
        return self._world.now_s < self._leaves_by_s

    def _save(self) -> None:
        buffer = STATE.pack(self.step, self._total) + bytes(self._padding)
        entry = TensorEntry(dtype="uint8", shape=(len(buffer),), strides=(1,), offset=0, size_bytes=len(buffer))
        tree = {"state": {"$tensor": 0}, "step": self.step}
        layout = Layout(tree=tree, tensors=(entry,), buffer_bytes=len(buffer)).to_bytes()  # type: ignore[arg-type]
        self._staged = bytearray(buffer + layout)
        self._in_flight = seq = self._next_seq
        self._next_seq += 1
        self._wanted = False
        self._save_due_s = self._world.now_s + self._start.every_s
        facts = asdict(SaveFacts(seq=seq, step=self.step, epoch=0))
        self._tell(Sealed(seq=seq, layout_offset=len(buffer), layout_bytes=len(layout), facts=facts))

    def _load(self, descriptor: int, restore: Restore) -> None:
        data = os.pread(descriptor, restore.layout_offset + restore.layout_bytes, 0)
        layout = Layout.from_bytes(data[restore.layout_offset :])
        self.step, self._total = STATE.unpack_from(data, layout.tensors[0].offset)
        assert self.step == restore.step, "the tensor bytes and the manifest's facts disagree"

    def _die(self) -> None:
        self._world.note(f"child of {self._process.name} {self._crash} trial={self._start.number} step={self.step}")
        self.on_crash()
        if self._crash == "hang" and self.step > 0:
            self.hangs = True  # no event of its own any more
            return
        if self._crash == "error":
            self._tell(Failed(category="error", summary="ValueError: no", traceback="Traceback …", step=self.step))
            self._later(0.1, lambda: self._exit(ExitStatus(code=1)))
        else:
            self._exit(ExitStatus(code=None, signal=11))

    def _tell(self, message: ToWorker) -> None:
        self._outbox.append(message)
        if self._process.alive:
            self._process.poke()

    def _exit(self, status: ExitStatus) -> None:
        if self._status is None:
            self._status = status
            if self._process.alive:
                self._process.poke()
