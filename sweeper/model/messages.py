"""What a worker and its child say to each other: one JSON object per frame on a Unix stream socket.

A frame is a 4-byte big-endian length and that many bytes of UTF-8 JSON (`encode`/`decode`). Large trees do not travel
here: a sealed save's layout lies in the staging file behind the tensor bytes. Besides the socket the two share a
*control page* (`sweeper.model.control`), so that a step with nothing to do costs no system call.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from sweeper.model.trial import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """A verified checkpoint, in the staging file that accompanies `Start`: tensor bytes, then the layout's JSON."""

    step: int
    seq: int
    layout_offset: int
    layout_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Worker to child, first: what to run. Descriptors beside it: control page, staging file, restore file if any."""

    number: int
    config_hash: str
    overrides: list[str]
    sweep_dir: str
    output_subdir: str
    """The trial's own directory below `sweep_dir`, the same in every attempt."""
    attempt: int
    fence: int
    seed: int
    threads: int
    gpu: str | None
    every_s: float
    restore: dict[str, int] | None
    """`Restore` as a mapping, or None."""
    first_seq: int
    objectives: int = 0
    """How many numbers the function must return (a search); 0: anything that tagged JSON carries (a plain grid)."""
    reports_wait: bool = False
    """Whether a report waits for what the search decides on it (`Decided`), so that nothing depends on timing."""
    inherited: bool = False
    """Whether the checkpoint to restore is another trial's, trained with another config."""
    trace: bool = False
    """Whether the child keeps a record of every batch and stages its final state (`sweeper check` only)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """Worker to child: the staging file may be reused. `ok` says whether save `seq` was committed."""

    seq: int
    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveNow:
    """Worker to child: take a save at the next save point."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Worker to child: leave at the next safe point, or report if no save is wanted. `kind` is evicted, pruned, paused
    or cancelled. A later one takes the place of an earlier one."""

    kind: str
    reason: str
    save: bool
    seconds_left: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """Worker to child, where reports wait: the search has decided on the report of `step`, and training goes on.

    When it does not go on, `Stop` comes instead.
    """

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """Child to worker, first: the config composed to the expected hash and user code is about to run."""

    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Child to worker: could not even start; not the trial's fault unless `reason` is `config`."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """Child to worker: an intermediate value."""

    step: int
    at_step: int
    value: float
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """Child to worker: a save lies complete in the staging file; it may be read even if the child dies now."""

    seq: int
    layout_offset: int
    layout_bytes: int
    facts: dict[str, Any]
    """`sweeper.model.staging.SaveFacts` as a mapping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveFailed:
    """Child to worker: a wanted save could not be taken; training goes on."""

    seq: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Child to worker, last: the function returned. `value` is tagged JSON."""

    value: Json
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Invalid:
    """Child to worker, last: the function returned what cannot be a result."""

    detail: str
    step: int
    fault: str | None = None
    """`ObjectiveFault` of a value that is no objective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """Child to worker, last: the child left at a safe point as asked. `kind` as in `Stop`."""

    kind: str
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Child to worker, last: user code raised. `category` is error, import, memory, mismatch or exit."""

    category: str
    summary: str
    traceback: str
    step: int


ToChild = Start | Saved | SaveNow | Stop | Decided
ToWorker = Started | Refused | Reported | Sealed | SaveFailed | Finished | Invalid | Stopped | Failed
LAST_MESSAGES: Final = (Refused, Finished, Invalid, Stopped, Failed)

_BY_NAME: Final[dict[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (Start, Saved, SaveNow, Stop, Decided, Started, Refused, Reported, Sealed, SaveFailed, Finished,
                 Invalid, Stopped, Failed)
}  # fmt: skip
MAX_FRAME_BYTES: Final = 64 << 20


def encode(message: ToChild | ToWorker) -> bytes:
    """Give the message's frame, length included."""
    body = json.dumps([type(message).__name__, asdict(message)], separators=(",", ":")).encode()
    if len(body) > MAX_FRAME_BYTES:
        raise ValueError(f"message of {len(body)} bytes is over the limit of {MAX_FRAME_BYTES}")
    return len(body).to_bytes(4, "big") + body


class FrameDecoder:
    """Turns a byte stream back into messages, whatever the pieces it arrives in."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[ToChild | ToWorker]:
        """Take bytes as they came; give the messages that are now complete.

        Raises:
            ValueError: the stream is not ours (unknown message, absurd length).
        """
        self._buffer += data
        messages: list[ToChild | ToWorker] = []
        while len(self._buffer) >= 4:
            length = int.from_bytes(self._buffer[:4], "big")
            if length > MAX_FRAME_BYTES:
                raise ValueError(f"frame of {length} bytes is over the limit of {MAX_FRAME_BYTES}")
            if len(self._buffer) < 4 + length:
                break
            frame = bytes(self._buffer[4 : 4 + length])
            del self._buffer[: 4 + length]
            messages.append(_parse(frame))
        return messages


def _parse(frame: bytes) -> ToChild | ToWorker:
    """Read one frame's body. Fields that a newer peer added are left out."""
    try:
        name, body = json.loads(frame)
        kind = _BY_NAME[name]
        known = {field.name for field in fields(kind)}
        message: ToChild | ToWorker = kind(**{key: value for key, value in body.items() if key in known})
    except KeyError as error:
        raise ValueError(f"unknown message {error}") from error
    except (TypeError, AttributeError) as error:
        raise ValueError(f"not a message: {error}") from error
    return message
