"""From what user code did (returned, raised) to the one last message that says so."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Final

import sweeper
from sweeper.errors import StateMismatch
from sweeper.model.messages import Failed, Finished, Invalid
from sweeper.model.objective import Fault, objective_values
from sweeper.model.tagged import to_tagged
from sweeper.model.trial import Json

MAX_RESULT_BYTES: Final = 1 << 20
MAX_TRACEBACK_CHARACTERS: Final = 64_000
_MAX_SUMMARY_CHARACTERS: Final = 500
_FITTING: Final = (
    "undo what was changed since and `sweeper retry SWEEP TRIAL`, "
    "or give the checkpoint up and train from the first step: `sweeper retry SWEEP TRIAL --from-zero`"
)


def message_for_value(value: object, *, objectives: int, step: int) -> Finished | Invalid:
    """Judge a return value.

    In a search it must be its objectives (`sweeper.model.objective`), so many as it has; what is stored is the value as
    it was returned. In a plain grid (no objectives) it may be anything tagged JSON carries; anything else is dropped
    with a line on standard error. Zero-dimensional arrays and tensors count as their number.
    """
    plain = _plain(value)
    if not objectives:
        return Finished(value=_carried(plain), step=step)
    found = objective_values(plain, objectives)
    if isinstance(found, Fault):
        return Invalid(detail=found.detail, step=step, fault=found.fault.value)
    return Finished(value=to_tagged(plain), step=step)


def message_for_error(error: BaseException, *, step: int) -> Failed:
    """Describe an exception by the user's own frames, without ours and without Hydra's on the way to them."""
    shown = traceback.TracebackException.from_exception(error, compact=True)
    _strip(shown, set())
    text = _storable("".join(shown.format()))
    if len(text) > MAX_TRACEBACK_CHARACTERS:
        half = MAX_TRACEBACK_CHARACTERS // 2
        text = f"{text[:half]}\n  […]\n{text[-half:]}"
    if isinstance(error, StateMismatch):
        text = f"{text.rstrip()}\n  {_FITTING}\n"
    lines = "".join(shown.format_exception_only()).strip().splitlines() or [type(error).__qualname__]
    summary = lines[-1] if isinstance(error, SyntaxError) else lines[0]
    return Failed(
        category=category_of(error), summary=_storable(summary)[:_MAX_SUMMARY_CHARACTERS], traceback=text, step=step
    )


def category_of(error: BaseException) -> str:
    """Give the error's category: error, import, memory, mismatch or exit. By type, never by text."""
    if isinstance(error, StateMismatch):
        return "mismatch"
    if isinstance(error, ImportError):
        return "import"
    if isinstance(error, SystemExit):
        return "exit"
    # torch.OutOfMemoryError and its kin, by name: torch need not be imported to know them
    if isinstance(error, MemoryError) or any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return "memory"
    return "error"


def _plain(value: object) -> object:
    """Replace NumPy scalars and zero-dimensional tensors by Python numbers, also inside containers."""
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    for container in (list, tuple, set, frozenset):
        if type(value) is container:
            return container(_plain(item) for item in value)
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "shape", None) == ():
        number: object = item()
        return number
    return value


def _carried(value: object) -> Json:
    """The value's tagged form, or null with a warning where it has none or an absurd size."""
    try:
        tagged = to_tagged(value)
        if (size := len(json.dumps(tagged))) <= MAX_RESULT_BYTES:
            return tagged
        why = f"it takes {size} bytes of JSON, over the limit of {MAX_RESULT_BYTES}"
    except (TypeError, ValueError, RecursionError) as error:
        why = str(error)
    print(f"sweeper: the function's return value is dropped and null stored instead: {why}", file=sys.stderr)
    return None


def _strip(shown: traceback.TracebackException, seen: set[int]) -> None:
    if id(shown) in seen:
        return
    seen.add(id(shown))
    frames = [frame for frame in shown.stack if not _within(frame.filename, _our_folders())]
    while len(frames) > 1 and _within(frames[0].filename, _hydra_folders()):
        del frames[0]
    if frames:  # else the fault is ours, and our frames are what tells
        shown.stack = traceback.StackSummary.from_list(frames)
    for other in (shown.__cause__, shown.__context__, *(getattr(shown, "exceptions", None) or ())):
        if other is not None:
            _strip(other, seen)


def _our_folders() -> tuple[Path, ...]:
    package = Path(sweeper.__file__).parent
    return (package, package.parent / "hydra_plugins" / "sweeper_plugin")


def _hydra_folders() -> tuple[Path, ...]:
    files = [getattr(sys.modules.get(name), "__file__", None) for name in ("hydra", "omegaconf")]
    return tuple(Path(file).parent for file in files if file)


def _within(filename: str, folders: tuple[Path, ...]) -> bool:
    return any(Path(filename).is_relative_to(folder) for folder in folders)


def _storable(text: str) -> str:
    """Text that Postgres holds: no NUL, no lone surrogates."""
    return text.replace("\0", "�").encode("utf-8", "replace").decode()
