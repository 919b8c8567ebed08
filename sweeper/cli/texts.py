"""Values, durations and sizes as people read them; values keep their type ("on" and true look different)."""

from __future__ import annotations

import json
from collections.abc import Callable

from sweeper.cli.records import result_values
from sweeper.model.states import TrialState
from sweeper.model.trial import Json, Trial

STATE_STYLES = {
    TrialState.PENDING: "dim",
    TrialState.RUNNING: "cyan",
    TrialState.PAUSED: "yellow",
    TrialState.COMPLETED: "green",
    TrialState.PRUNED: "magenta",
    TrialState.FAILED: "bold red",
    TrialState.CANCELLED: "dim red",
}


def value_text(value: Json) -> str:
    """Write a tagged value so that its type shows: text in quotes, 1 and 1.0 apart, tags as what they stand for."""
    if isinstance(value, list):
        return f"[{_joined(value)}]"
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, default=repr)
    tag = next(iter(value), "")
    if len(value) == 1 and tag in _TAGS:
        return _TAGS[tag](value[tag])
    inner = ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {value_text(item)}" for key, item in value.items())
    return f"{{{inner}}}"


def _joined(items: Json) -> str:
    return ", ".join(value_text(item) for item in items) if isinstance(items, list) else value_text(items)


def _pairs(items: Json) -> str:
    pairs = [pair for pair in items if isinstance(pair, list) and len(pair) == 2] if isinstance(items, list) else []
    return "{" + ", ".join(f"{value_text(key)}: {value_text(item)}" for key, item in pairs) + "}"


_TAGS: dict[str, Callable[[Json], str]] = {
    "$int": str,
    "$float": str,
    "$complex": lambda body: f"complex({_joined(body)})",
    "$bytes": lambda body: f"bytes({body})",
    "$tuple": lambda body: f"({_joined(body)})",
    "$set": lambda body: f"set({_joined(body)})",
    "$dict": _pairs,
    "$expression": str,
    "$missing": lambda _: "???",
}


def result_text(trial: Trial) -> str:
    """Write a trial's result: its values, else whatever it returned, else nothing."""
    if trial.state is not TrialState.COMPLETED:
        return ""
    values = result_values(trial)
    return ", ".join(value_text(value) for value in values) if values else value_text(trial.result)


def params_text(trial: Trial) -> str:
    """Write what distinguishes a trial: its typed params, else its overrides."""
    if trial.params:
        return " ".join(f"{key}={value_text(value)}" for key, value in trial.params.items())
    return " ".join(trial.overrides)


def state_text(trial: Trial) -> str:
    """Write a trial's state; an unfinished trial that nobody asks for says so."""
    if trial.requested or trial.state.final:
        return trial.state.value
    return f"{trial.state.value}, not requested"


def duration_text(seconds: float | None) -> str:
    """Write a duration in the two largest units that matter."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{max(seconds, 0):.0f} s"
    minutes, rest_s = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest_s} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def bytes_text(size: int) -> str:
    """Write a size with a binary unit."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
