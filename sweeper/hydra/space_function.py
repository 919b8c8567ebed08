"""`custom_search_space` as the search sees it: a function that suggests more, with a time limit, in another process."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from sweeper.clock import Clock
from sweeper.errors import UserError
from sweeper.hydra.space_process import SETTING, SPACE_ROLE, plain_name
from sweeper.model.space import MAX_NAME_CHARACTERS
from sweeper.model.tagged import from_tagged, to_tagged
from sweeper.trial.frames import receive_frame, send_frame
from sweeper.trial.spawning import ForkUnsafe, Spawned, Spawner, SpawnFailed

LIMIT_S: Final = 60.0
_MOST_CALLS: Final = 10_000


class Suggesting(Protocol):
    """A trial that can be asked for more parameters (`sweeper.search.define_by_run.TrialProxy`)."""

    number: int

    @property
    def params(self) -> Mapping[str, Any]:
        """Parameters so far, as plain values."""
        ...

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """Choose a float."""
        ...

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """Choose an integer."""
        ...

    def suggest_categorical(self, name: str, choices: Sequence[object]) -> Any:
        """Choose one of several values."""
        ...

    def drop(self, name: str) -> None:
        """Leave a parameter out."""
        ...


class SpaceFunction:
    """Calls the user's function for a trial; a failure is kept for who composes that number.

    All calls come from the thread that made it.
    """

    def __init__(
        self,
        spawner: Spawner,
        fallback: Spawner | None,
        *,
        fixed: Mapping[str, str],
        clock: Clock,
        note: Callable[[str], None],
        limit_s: float = LIMIT_S,
    ) -> None:
        """Remember how to reach it; nothing is started before the first call.

        Args:
            spawner: starts the process in role `space`.
            fallback: does so where forking proved impossible.
            fixed: values that every trial has, by name; they cannot be suggested.
            clock: for the time limit.
            note: tells people something once.
            limit_s: how long one call may take.
        """
        self._spawner = spawner
        self._fallback = fallback
        self._fixed = fixed
        self._clock = clock
        self._note = note
        self._limit_s = limit_s
        self._process: Spawned | None = None
        self._channel: socket.socket | None = None
        self._failures: dict[int, str] = {}
        self._told_attribute = False
        self.keys: dict[str, str] = {}
        """How the function writes each name that it suggested (`+w`)."""

    def __call__(self, trial: Suggesting) -> None:
        """Let the function suggest. If it fails, its trial keeps what was suggested until then."""
        self._failures.pop(trial.number, None)
        try:
            self.suggest(trial)
        except UserError as error:
            self._failures[trial.number] = str(error)

    def failure(self, number: int) -> str | None:
        """How the function failed for a number, if it did."""
        return self._failures.get(number)

    def suggest(self, trial: Suggesting) -> None:
        """Let the function suggest.

        Raises:
            UserError: it raised (with its traceback), took too long, or its process died.
        """
        channel = self._open()
        end_s = self._clock.monotonic_s() + self._limit_s
        params = {name: to_tagged(value) for name, value in trial.params.items()}
        try:
            send_frame(channel, {"number": trial.number, "params": params, "fixed": dict(self._fixed)})
            for _ in range(_MOST_CALLS):
                channel.settimeout(max(end_s - self._clock.monotonic_s(), 0.001))
                received = receive_frame(channel)
                if received is None:
                    break
                body = received[0]
                if "failed" in body:
                    raise UserError(f"{SETTING}: {body['failed'].removeprefix(f'{SETTING}: ')}")
                if "returned" in body:
                    return
                send_frame(channel, self._answer(trial, body))
        except TimeoutError:
            self.close()
            raise UserError(
                f"{SETTING} took longer than {self._limit_s:g} s",
                remedy="it should only choose parameters; whatever else it does belongs into the task",
            ) from None
        except OSError as error:
            self.close()
            raise UserError(f"{SETTING}: its process is gone: {error}") from error
        self.close()
        raise UserError(f"{SETTING}: its process died, or asked for more than {_MOST_CALLS} parameters")

    def close(self) -> None:
        """End the process, if there is one."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            self._process.close()
            self._process = None

    def _open(self) -> socket.socket:
        if self._process is not None and self._process.exit_status() is not None:
            self.close()  # it served one trial only, or died between two
        if self._channel is None:
            ours, theirs = socket.socketpair()
            with theirs:
                self._process = self._spawn(theirs.fileno())
            self._channel = ours
        return self._channel

    def _spawn(self, descriptor: int) -> Spawned:
        try:
            return self._spawner.spawn(SPACE_ROLE, None, [descriptor])
        except (ForkUnsafe, SpawnFailed):
            if self._fallback is None:
                raise
            self._spawner, self._fallback = self._fallback, None
            return self._spawner.spawn(SPACE_ROLE, None, [descriptor])

    def _answer(self, trial: Suggesting, body: Mapping[str, Any]) -> dict[str, Any]:  # Any: JSON
        key, call = str(body["name"]), body["call"]
        name = plain_name(key)
        if call == "attribute":
            if not self._told_attribute:
                self._note(f"{SETTING}: user attributes that it sets ({key!r}) are not kept")
            self._told_attribute = True
            return {"value": None}
        if name in self._fixed:
            return {"error": f"{name!r} has a fixed value ({name}={self._fixed[name]}) and cannot be suggested as well"}
        if len(name) > MAX_NAME_CHARACTERS:
            return {"error": f"{name[:60]!r}… has {len(name)} characters; {MAX_NAME_CHARACTERS} is the most"}
        try:
            value = _suggested(trial, call, name, body.get("arguments", {}))
        except (UserError, ValueError, TypeError) as error:
            return {"error": str(error)}
        if call != "drop":
            self.keys[name] = key
        return {"value": value}


def _suggested(trial: Suggesting, call: str, name: str, arguments: Mapping[str, Any]) -> Any:  # Any: JSON
    match call:
        case "float":
            return to_tagged(trial.suggest_float(name, **arguments))
        case "int":
            return to_tagged(trial.suggest_int(name, **arguments))
        case "choice":
            return to_tagged(trial.suggest_categorical(name, from_tagged(arguments["choices"])))
        case _:
            trial.drop(name)
            return None
