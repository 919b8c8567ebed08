"""The child's end of the conversation with its worker: notices, decisions and saves, acted on at safe points only.

A safe point with nothing to do costs a few microseconds: three stores into the control page, one load of its inbox flag
and one look at the clock; the socket is read only when the flag is up. The session knows nothing about models or loops;
what a save contains comes from a `SavePoint`.
"""

from __future__ import annotations

import logging
import os
import select
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final, Protocol

from sweeper.clock import Clock
from sweeper.errors import StateMismatch, UnsavableValue, UserError
from sweeper.model.control import ControlPage
from sweeper.model.messages import (
    Decided,
    FrameDecoder,
    Reported,
    Restore,
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
from sweeper.model.staging import SaveFacts
from sweeper.trial.staging import Restored, StagingFile
from sweeper.trial.stops import Cancelled, Evicted, StopTraining, stop_for

log = logging.getLogger("sweeper.trial")

SAVE_WAIT_S: Final = 60.0
"""How long a forced final save waits for the one in flight when no deadline is known."""
BACKOFF_FIRST_S: Final = 5.0
_READ_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """A snapshot to be staged: any value `sweeper.trial.values` can encode, and facts without their `seq`."""

    value: object
    facts: SaveFacts


class SavePoint(Protocol):
    """A place where training can be saved with its position."""

    def obstacle(self, *, forced: bool) -> str | None:
        """Why no save can be taken at this very point though a later one may do; None when it can.

        `forced`: there may be no later one, so nothing is waited for that only makes a save smaller.
        """
        ...

    def capture(self) -> Capture:
        """Take the snapshot.

        Raises:
            UnsavableValue: something in it has no exact form.
        """
        ...


class Session:
    """One attempt's conversation, from `Start` to the last message. Used by one thread."""

    def __init__(
        self,
        start: Start,
        *,
        channel: socket.socket,
        control: ControlPage,
        staging_fd: int,
        restore_fd: int | None,
        clock: Clock,
        decoder: FrameDecoder | None = None,
    ) -> None:
        self.start = start
        self.step = 0
        """Primary bodies since the trial began, as of the last safe point."""
        self.epoch = 0
        self.begun = False
        """Whether user code has called `resume`."""
        self.stopped: StopTraining | None = None
        """The stop that was raised; from then on it is the attempt's outcome, whatever the function returns."""
        self.restored = _open_restored(start, restore_fd)
        self.on_finish: Callable[[], None] | None = None
        self._channel = channel
        self._control = control
        self._staging = StagingFile(staging_fd)
        self._clock = clock
        self._decoder = decoder or FrameDecoder()
        self._pid = os.getpid()
        self._safe_points = 0
        self._stop: Stop | None = None
        self._stop_deadline_s: float | None = None
        self._decided: int | None = None
        self._wanted = False
        self._due_s = float("inf")
        self._next_seq = start.first_seq
        self._in_flight: int | None = None
        self._failures = 0
        self._sealed_at: tuple[int, int] | None = None

    # -- what training asks -------------------------------------------------------------------------------------------

    @property
    def seconds_left(self) -> float | None:
        """Seconds until this machine is taken; None while nothing is known about it."""
        if self._stop_deadline_s is None:
            return None
        return max(0.0, self._stop_deadline_s - self._clock.monotonic_s())

    def begin(self) -> None:
        """`resume` was called: saves are possible from now on, and the cadence starts."""
        self.begun = True
        self._control.mark_stateful()
        self._due_s = self._clock.monotonic_s() + self.start.every_s

    def raise_if_stopped(self) -> None:
        """Raise the stop again if one was raised before (stops latch)."""
        if self.stopped is not None:
            raise self.stopped

    def request_save(self) -> None:
        """Want a save at the next save point."""
        self._wanted = True

    def safe_point(self, *, step: int, epoch: int, point: SavePoint | None) -> None:
        """Act on what is due. `point` is None where the position cannot be saved.

        A stop that wants a save first is raised at the next point that can be saved; training goes on until then (the
        end of a loader's last body is followed by the end of the epoch, or of the whole function).

        Raises:
            StopTraining: the worker asked for it.
        """
        self._refuse_forks()
        self.step = step
        self.epoch = epoch
        self._safe_points += 1
        self._control.publish(step=step, epoch=epoch, safe_points=self._safe_points)
        if self._control.inbox:
            self._read_inbox()
        if self.start.trace and self._in_flight is not None:
            self.wait_saved(SAVE_WAIT_S)  # a check compares the state at every save point, not at those it had time for
        if self._stop is None and (self._in_flight is not None or not (self._wanted or self._is_due())):
            return  # one save in flight; a newer wish waits as a flag
        self._act(point)

    def poll(self) -> None:
        """Act on a stop here and now, without a save."""
        self._refuse_forks()
        self.raise_if_stopped()
        if self._control.inbox:
            self._read_inbox()
        if self._stop is not None:
            self._raise_stop(self._stop)

    def report(self, *, step: int, at_step: int, value: float, metrics: dict[str, float], save_ahead: bool) -> None:
        """Send an intermediate value, and act on a stop that needs no save.

        Where reports wait, this returns once the search has decided on this one; any stop ends the wait, so that an
        eviction finds its way to the next save point.

        Args:
            step: in the user's unit.
            at_step: in training steps.
            value: the objective.
            metrics: further numbers.
            save_ahead: whether a save point comes by itself; a stop that wants a save is left to it.

        Raises:
            StopTraining: the worker asked for it.
        """
        self.send(Reported(step=step, at_step=at_step, value=value, metrics=metrics))
        if self.start.reports_wait:
            self._await_decision(step)
        elif self._control.inbox:
            self._read_inbox()
        if self._stop is not None and not (save_ahead and self._stop.save):
            self._raise_stop(self._stop)

    # -- what the child's main asks -----------------------------------------------------------------------------------

    def finish(self) -> None:
        """The user's function has ended: stage the final state if it is being traced. Call before the last message.

        Raises:
            StateMismatch: it never came to the place of the checkpoint that it was to continue from.
        """
        if self.restored is not None and not self.begun:
            raise StateMismatch(
                "there is a checkpoint of this trial, but the function did not call sweeper.resume(...)"
            )
        if self.on_finish is not None:
            finish, self.on_finish = self.on_finish, None
            finish()

    def send(self, message: ToWorker) -> None:
        """Send a message.

        Raises:
            Cancelled: the worker is gone; nothing that this process does can count any more.
        """
        self._refuse_forks()
        try:
            self._channel.sendall(encode(message))
        except (BrokenPipeError, ConnectionResetError):
            self._latch(Cancelled("the worker is gone"))

    def stage(self, capture: Capture) -> None:
        """Write a snapshot into the staging file and seal it. Only when none is in flight."""
        seq = self._next_seq
        try:
            place = self._staging.write(capture.value)
        except (UnsavableValue, OSError, MemoryError) as error:
            self._save_failed(str(error))
            return
        self._next_seq += 1
        self._in_flight = seq
        facts = asdict(capture.facts) | {"seq": seq}
        self.send(Sealed(seq=seq, layout_offset=place.offset, layout_bytes=place.size_bytes, facts=facts))

    def wait_saved(self, limit_s: float) -> bool:
        """Wait until no save is in flight; whether that came true within `limit_s` seconds."""
        end_s = self._clock.monotonic_s() + limit_s
        while self._in_flight is not None:
            left_s = end_s - self._clock.monotonic_s()
            if left_s <= 0 or not _readable(self._channel, left_s):
                return False
            self._control.clear_inbox()
            self._read(block=True)
        return True

    # -- inside -------------------------------------------------------------------------------------------------------

    def _await_decision(self, step: int) -> None:
        """However long it takes: the worker keeps the lease and looks, and a worker that is gone ends the wait."""
        self._decided = None
        while self._stop is None and self._decided != step:
            self._control.clear_inbox()
            self._read(block=True)

    def _act(self, point: SavePoint | None) -> None:
        stop = self._stop
        if point is not None and (self._wanted or (stop is not None and stop.save) or self._is_due()):
            obstacle = point.obstacle(forced=stop is not None and stop.save)
            if obstacle is not None:
                if stop is None or not stop.save:
                    return
                point = None
            else:
                self._save(point, forced=stop is not None and stop.save)
        if stop is not None and (point is not None or not stop.save):
            self._raise_stop(stop)

    def _is_due(self) -> bool:
        return self._clock.monotonic_s() >= self._due_s

    def _save(self, point: SavePoint, *, forced: bool) -> None:
        if forced and self._sealed_at == (self.step, self.epoch):
            return
        if self._in_flight is not None and not (forced and self.wait_saved(self._patience_s())):
            return
        self._wanted = False
        self._due_s = self._clock.monotonic_s() + self.start.every_s
        try:
            capture = point.capture()
        except UnsavableValue as error:
            self._save_failed(str(error))
            return
        self.stage(capture)
        self._sealed_at = (self.step, self.epoch)

    def _patience_s(self) -> float:
        left_s = self.seconds_left
        return SAVE_WAIT_S if left_s is None else left_s

    def _save_failed(self, detail: str) -> None:
        log.warning("save failed step=%d: %s", self.step, detail)
        self.send(SaveFailed(seq=self._next_seq, detail=detail))
        self._back_off()

    def _back_off(self) -> None:
        self._failures += 1
        self._sealed_at = None
        wait_s = min(self.start.every_s, BACKOFF_FIRST_S * 2.0 ** min(self._failures, 10))
        self._due_s = self._clock.monotonic_s() + wait_s

    def _refuse_forks(self) -> None:
        """Only one process may speak to the worker: another one's words would run into its own."""
        if os.getpid() != self._pid:
            raise UserError(
                "the run of a trial is used in a process that was forked from the trial's",
                remedy="give numbers back to the trial's own process, and report them there",
            )

    def _raise_stop(self, stop: Stop) -> None:
        self._latch(stop_for(stop.kind, stop.reason))

    def _latch(self, stopped: StopTraining) -> None:
        if self.stopped is None:
            self.stopped = stopped
        raise self.stopped

    def _read_inbox(self) -> None:
        self._control.clear_inbox()  # before reading: a message that comes meanwhile raises it again
        while _readable(self._channel, 0.0):
            self._read(block=False)

    def _read(self, *, block: bool) -> None:
        try:
            data = self._channel.recv(_READ_BYTES, 0 if block else socket.MSG_DONTWAIT)
        except ConnectionResetError:  # it died with something of ours unread
            data = b""
        if not data:
            self._latch(Evicted("the worker is gone"))
        for message in self._decoder.feed(data):
            self._take(message)

    def _take(self, message: ToChild | ToWorker) -> None:
        match message:
            case Saved():
                self._take_saved(message)
            case SaveNow():
                self._wanted = True
            case Stop():
                self._stop = message
                if message.seconds_left is not None:
                    self._stop_deadline_s = self._clock.monotonic_s() + message.seconds_left
            case Decided():
                self._decided = message.step
            case _:
                log.error("unexpected message %s", type(message).__name__)

    def _take_saved(self, saved: Saved) -> None:
        if saved.seq != self._in_flight:
            return
        self._in_flight = None
        if saved.ok:
            self._failures = 0
        else:
            self._back_off()


def receive_start(channel: socket.socket) -> Start:
    """Read the worker's first message and not a byte more, so that the session finds the rest.

    Raises:
        ConnectionError: the worker is gone.
        ValueError: the first message is not `Start`.
    """
    decoder = FrameDecoder()
    wanted = 4
    header = b""
    while True:
        data = channel.recv(wanted)
        if not data:
            raise ConnectionError("the worker is gone")
        messages = decoder.feed(data)
        if messages:
            break
        wanted -= len(data)
        header = (header + data)[:4]
        if wanted == 0:
            wanted = int.from_bytes(header, "big")
    if not isinstance(messages[0], Start):
        raise ValueError(f"the first message is {type(messages[0]).__name__}, not Start")
    return messages[0]


def _readable(channel: socket.socket, within_s: float) -> bool:
    watch = select.poll()
    watch.register(channel.fileno(), select.POLLIN)
    return bool(watch.poll(within_s * 1000))


def _open_restored(start: Start, restore_fd: int | None) -> Restored | None:
    if start.restore is None or restore_fd is None:
        return None
    return Restored(restore_fd, Restore(**start.restore), size_bytes=os.fstat(restore_fd).st_size)


_installed: list[Session] = []
"""The process's one session: `resume` has no other way to find it, since user code calls it without arguments."""


def install(session: Session) -> None:
    """Make this the process's session; there can be one.

    Raises:
        RuntimeError: one is installed already.
    """
    if _installed:
        raise RuntimeError("a session is installed already")
    _installed.append(session)


def uninstall() -> None:
    """Forget the process's session; for tests and for a process that runs several attempts."""
    _installed.clear()


def current_session() -> Session | None:
    """The process's session; None outside a sweep."""
    return _installed[0] if _installed else None
