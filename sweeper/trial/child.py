"""A trial's child process, from the first instruction to its last message.

The child only trains. It holds a socket to its worker, shared memory, the worker's life lock and its own output file;
it has no connection, no credentials and no signal handling of ours beyond ignoring what the worker acts upon.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import socket
import sys
from collections.abc import Callable
from typing import Any, Final, Protocol

from sweeper.clock import Clock, SystemClock
from sweeper.errors import SweeperError
from sweeper.model.control import ControlPage
from sweeper.model.messages import (
    Failed,
    Finished,
    Invalid,
    Refused,
    Start,
    Started,
    Stopped,
    ToWorker,
    encode,
)
from sweeper.model.trial import Json
from sweeper.trial.descendants import shield_from_signals, tie_forks_to_this_process
from sweeper.trial.kernel import erase_environment
from sweeper.trial.seeding import seed_everything, set_threads
from sweeper.trial.session import Session, install, receive_start
from sweeper.trial.spawning import HIDDEN_VARIABLES, Role
from sweeper.trial.stops import StopTraining
from sweeper.trial.verdict import message_for_error, message_for_value

LAST_MESSAGE_S: Final = 60.0
"""How long the last message may take to leave; a worker that does not read for so long is as good as gone."""

LastMessage = Refused | Finished | Invalid | Stopped | Failed


class ConfigDiffers(SweeperError):
    """The config composed here is not the one that was asked for; the text names the difference."""


class TrialTask(Protocol):
    """How a face (Hydra) turns a `Start` into the user's function call."""

    def prepare(self, start: Start) -> Callable[[], object]:
        """Compose the config and check its hash; the callable then runs user code.

        The callable returns the function's value, or raises what the function raised.

        Raises:
            ConfigDiffers: the config's hash is not `start.config_hash`.
        """
        ...


def child_role(task: TrialTask) -> Role:
    """The role under which `ChildStarter` starts children that run `task`; register it as `spawning.CHILD_ROLE`."""

    def main(payload: Json, descriptors: tuple[int, ...]) -> int:
        held = iter(descriptors)
        channel = socket.socket(fileno=next(held))
        control_fd, staging_fd = next(held), next(held)
        parts = payload if isinstance(payload, dict) else {}
        if parts.get("lock"):
            next(held)  # only to be held: the lock lasts as long as this process and its forks
        restore_fd = next(held) if parts.get("restore") else None
        return run_child(task, channel=channel, control_fd=control_fd, staging_fd=staging_fd, restore_fd=restore_fd)

    return Role(main=main)


def run_child(
    task: TrialTask,
    *,
    channel: socket.socket,
    control_fd: int,
    staging_fd: int,
    restore_fd: int | None,
    clock: Clock | None = None,
) -> int:
    """Live one attempt and say how it ended; gives the exit status (0, 75 when it may go on elsewhere, 1 when failed).

    Standard output and error are the attempt's file already. The caller leaves the process with `os._exit`.
    """
    shield_from_signals()
    tie_forks_to_this_process()
    for name in HIDDEN_VARIABLES:
        erase_environment(name)
    _rebind_streams()
    channel.setblocking(True)
    start = receive_start(channel)
    if start.gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = start.gpu
    control = ControlPage(control_fd)
    os.close(control_fd)
    session = Session(
        start,
        channel=channel,
        control=control,
        staging_fd=staging_fd,
        restore_fd=restore_fd,
        clock=clock or SystemClock(),
    )
    pid = os.getpid()
    message = _attempt(task, start, session, channel, control)
    _flush()
    if os.getpid() == pid:  # a fork that user code made may come back here too: it is not the trial
        _send_last(channel, message)
    return _status(message)


def _attempt(
    task: TrialTask, start: Start, session: Session, channel: socket.socket, control: ControlPage
) -> LastMessage:
    try:
        call = task.prepare(start)
    except ConfigDiffers as error:
        return Refused(reason="config", detail=str(error))
    except Exception as error:
        failed = message_for_error(error, step=0)
        print(failed.traceback, file=sys.stderr)
        return Refused(reason="prepare", detail=failed.summary)
    install(session)
    set_threads(start.threads)
    seed_everything(start.seed, start.config_hash)
    channel.sendall(encode(Started(pid=os.getpid())))
    return _run_user_code(call, start, session, control)


def _run_user_code(call: Callable[[], object], start: Start, session: Session, control: ControlPage) -> LastMessage:
    """Call the function. A stop that was raised is the outcome, whatever became of the exception on its way."""
    ended: StopTraining | None = None
    message: LastMessage
    try:
        value = call()
        session.finish()
        message = message_for_value(value, objectives=start.objectives, step=control.step)
    except StopTraining as stop:
        ended = stop
    except BaseException as error:  # user code may raise anything; this is where it ends
        message = message_for_error(error, step=control.step)
        if session.stopped is None:
            print(message.traceback, file=sys.stderr)
    ended = session.stopped or ended
    if ended is not None:
        return Stopped(kind=ended.kind, step=control.step)
    return message


def _status(message: LastMessage) -> int:
    match message:
        case Stopped(kind="evicted" | "paused"):
            return 75
        case Finished() | Stopped():
            return 0
        case _:
            return 1


def _send_last(channel: socket.socket, message: ToWorker) -> None:
    with contextlib.suppress(OSError):  # the worker is gone; nobody is left to tell
        channel.settimeout(LAST_MESSAGE_S)
        channel.sendall(encode(message))


def _rebind_streams() -> None:
    """Point Python's streams, and log handlers that hold the old ones, at descriptors 1 and 2 as they are now."""
    old: dict[int, Any] = {}
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        new = open(descriptor, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
        for holder in (name, f"__{name}__"):
            old[id(getattr(sys, holder))] = new
            setattr(sys, holder, new)
    for handler in _log_handlers():
        if id(handler.stream) in old:
            handler.setStream(old[id(handler.stream)])
    faulthandler.enable(file=sys.stderr)


def _log_handlers() -> list[logging.StreamHandler[Any]]:
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    handlers = [handler for logger in loggers if isinstance(logger, logging.Logger) for handler in logger.handlers]
    return [handler for handler in handlers if type(handler) is logging.StreamHandler]


def _flush() -> None:
    """What was printed must be in the file when the worker reads the last message."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
