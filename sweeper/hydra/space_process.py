"""The process in which `custom_search_space` runs: the user's function, forked anew for each trial.

One frame asks for a trial; the function's calls go back one frame each and are answered one frame each; the last frame
says that it has returned, or how it failed. Nothing but JSON passes. Since each call runs in a fork of the process that
imported the function, what it leaves behind in its module cannot make a proposal depend on earlier ones (SAME).
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from omegaconf import DictConfig

from sweeper.errors import UserError
from sweeper.model.tagged import from_tagged, to_tagged
from sweeper.model.trial import Json
from sweeper.search.nodes import imported
from sweeper.trial.frames import receive_frame, send_frame
from sweeper.trial.kernel import erase_environment, thread_count
from sweeper.trial.spawning import HIDDEN_VARIABLES, Role, leave

SPACE_ROLE: Final = "space"
SETTING: Final = "hydra.sweeper.custom_search_space"

Function = Callable[[DictConfig, "TrialHere"], object]


class TrialHere:
    """The trial that a define-by-run function is given: the calls of `optuna.Trial` that choose, and `drop`."""

    def __init__(self, channel: socket.socket, question: Mapping[str, Any]) -> None:  # Any: JSON
        self.number: int = question["number"]
        """The number that the config gets if it is new."""
        self.params = Params({name: from_tagged(value) for name, value in question["params"].items()})
        """All parameters so far, by name."""
        self.user_attrs: dict[str, str] = dict(question["fixed"])
        """Fixed values by name, as their overrides have them."""
        self._channel = channel

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """Choose a float from `low` to `high`, both included."""
        size = None if step is None else float(step)
        return float(self._choose("float", name, low=float(low), high=float(high), step=size, log=bool(log)))

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """Choose an integer from `low` to `high`, both included."""
        return int(self._choose("int", name, low=int(low), high=int(high), step=int(step), log=bool(log)))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:  # Any: values of any kind
        """Choose one of several values: text, numbers, booleans, None, lists, mappings."""
        return self._choose("choice", name, choices=to_tagged(list(choices)))

    def drop(self, name: str) -> None:
        """Say that a parameter does not apply to this trial; its job gets no override for it."""
        self._ask({"call": "drop", "name": name})
        self.params.pop(plain_name(name), None)

    def set_user_attr(self, key: str, value: object) -> None:
        """Taken and not kept: what a trial's database entry says of it is what ran."""
        self._ask({"call": "attribute", "name": key})

    def _choose(self, kind: str, name: str, **arguments: Json) -> Any:  # Any: values of any kind
        value = from_tagged(self._ask({"call": kind, "name": name, "arguments": arguments}))
        self.params[plain_name(name)] = value
        return value

    def _ask(self, question: dict[str, Json]) -> Json:
        send_frame(self._channel, question)
        answer = receive_frame(self._channel)
        if answer is None:
            raise SystemExit(1)
        body = answer[0]
        if "error" in body:
            raise ValueError(body["error"])
        value: Json = body["value"]
        return value


class Params(dict[str, Any]):  # Any: values of any kind
    """Parameters by name; `+w` finds `w`, as functions written for the Optuna plugin have it."""

    def __missing__(self, name: str) -> Any:  # Any: values of any kind
        if plain_name(name) == name:
            raise KeyError(name)
        return self[plain_name(name)]


def plain_name(name: str) -> str:
    """Give a parameter's name without the prefix that says how its override is written."""
    return name.lstrip("+")


def space_role(config: DictConfig, target: str) -> Role:
    """Give the role of the process; its descriptor is the socket on which trials are asked for."""

    def main(payload: Json, descriptors: tuple[int, ...]) -> int:
        for name in HIDDEN_VARIABLES:
            erase_environment(name)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with socket.socket(fileno=descriptors[0]) as channel:
            _serve(channel, config, target)
        return 0

    return Role(main=main)


def find_function(target: str) -> Function:
    """Import the function; one that lives in the script itself is taken from there instead of running it again.

    Raises:
        UserError: there is none of that name.
    """
    name = target.lstrip(".")
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    module, _, attribute = name.rpartition(".")
    if file is not None and module in ("__main__", Path(file).stem):
        found: Any = getattr(main, attribute, None)  # Any: whatever the script has under that name
        if callable(found):
            return found  # type: ignore[no-any-return]
    return imported(name, what=SETTING)


def _serve(channel: socket.socket, config: DictConfig, target: str) -> None:
    function: Function | None = None
    while (asked := receive_frame(channel)) is not None:
        try:
            function = function or find_function(target)
        except UserError as error:
            send_frame(channel, {"failed": str(error)})
            return
        except BaseException as error:  # importing runs the user's code
            send_frame(channel, {"failed": f"it cannot be imported:\n{_told(error)}"})
            return
        if thread_count() > 1:  # importing started threads, so a fork could hang: this process serves one trial
            _call(function, channel, config, asked[0])
            return
        pid = os.fork()
        if pid == 0:
            _call_and_leave(function, channel, config, asked[0])
        _, status = os.waitpid(pid, 0)
        if status != 0:
            send_frame(channel, {"failed": f"its process ended with status {status}"})


def _call_and_leave(function: Function, channel: socket.socket, config: DictConfig, question: Any) -> NoReturn:
    status = 1  # Any: JSON
    try:
        _call(function, channel, config, question)
        status = 0
    finally:
        leave(status)


def _call(function: Function, channel: socket.socket, config: DictConfig, question: Any) -> None:  # Any: JSON
    try:
        function(config, TrialHere(channel, question))
    except BaseException as error:  # whatever user code raises is told, with its traceback
        send_frame(channel, {"failed": f"it raised:\n{_told(error)}"})
    else:
        send_frame(channel, {"returned": True})


def _told(error: BaseException) -> str:
    """The user's traceback, without our own frames above it."""
    trace = error.__traceback__
    own = str(Path(__file__))
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename == own:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace)).rstrip()
