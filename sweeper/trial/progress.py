"""What a run knows about itself besides registered objects: counters, user state, means, reports; plain and savable."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sweeper.errors import UserError
from sweeper.trial.refill import refill
from sweeper.trial.tensors import is_tensor

MAX_STEP: Final = 2**53


@dataclass(slots=True)
class Mean:
    """A running mean: sum of weighted values, and of weights."""

    total: float = 0.0
    weight: float = 0.0

    @property
    def value(self) -> float:
        """The mean so far; NaN before the first value."""
        return self.total / self.weight if self.weight else math.nan


@dataclass(slots=True)
class Progress:
    """Counters and small state of one trial."""

    step: int = 0
    """Primary bodies begun since the trial began."""
    epoch: int = 0
    """Index of the current epoch in its loop."""
    batch: int = 0
    """Index of the current batch in its epoch."""
    epochs_done: int = 0
    """Epochs completed, over all loops."""
    state: dict[str, Any] = field(default_factory=dict)
    """The user's own values."""
    means: dict[str, Mean] = field(default_factory=dict)
    """Of the current epoch."""
    report_unit: str | None = None
    """`epoch` or `step`: what the first report without a step was counted in."""
    finite: bool = True
    """Whether the last report was finite."""
    inexact: list[str] = field(default_factory=list)
    """Why this trial is not bit-exact with an undisturbed one, as far as is known."""
    trace: list[list[Any]] = field(default_factory=list)
    """`[epoch, batch, digest]` of every primary batch, when tracing."""

    def doubt(self, *reasons: str) -> None:
        """Note reasons for not being bit-exact, each once."""
        self.inexact += [reason for reason in reasons if reason not in self.inexact]

    def add_to_mean(self, name: str, value: Any, weight: Any) -> None:
        """Add a value to the mean of that name."""
        number, weight = _number(value, f"run.mean({name!r})"), _number(weight, f"run.mean({name!r}, weight=...)")
        mean = self.means.setdefault(name, Mean())
        mean.total += number * weight
        mean.weight += weight

    def report_step(self, *, in_batch: bool, in_epoch: bool) -> int:
        """The default step of a report made here: completed epochs (from 1) outside batches, else training steps."""
        if self.report_unit is None:
            self.report_unit = "step" if in_batch else "epoch"
        if self.report_unit == "step":
            return self.step
        return self.epochs_done + (1 if in_epoch else 0)

    def to_value(self) -> dict[str, Any]:
        """Give a plain mapping of it."""
        return {
            "step": self.step, "epoch": self.epoch, "epochs_done": self.epochs_done,
            "state": self.state, "means": {name: (mean.total, mean.weight) for name, mean in self.means.items()},
            "report_unit": self.report_unit, "finite": self.finite, "inexact": self.inexact, "trace": self.trace,
        }  # fmt: skip

    def load(self, value: Mapping[str, Any]) -> None:
        """Read back what `to_value` gave, in place: the user may hold `state`, and containers in it."""
        self.step, self.epoch, self.epochs_done = value["step"], value["epoch"], value["epochs_done"]
        self.report_unit, self.finite = value["report_unit"], value["finite"]
        self.inexact, self.trace = list(value["inexact"]), list(value["trace"])
        self.means = {name: Mean(total, weight) for name, (total, weight) in value["means"].items()}
        refill(self.state, value["state"])


def report_numbers(value: Any, metrics: Mapping[str, Any]) -> tuple[float, dict[str, float]]:
    """Give a report's value and metrics as floats.

    Raises:
        UserError: one of them is not a number.
    """
    return _number(value, "run.report"), {
        name: _number(metric, f"run.report {name}") for name, metric in metrics.items()
    }


def report_step(step: Any) -> int:
    """Give a report's step as an integer that a database holds.

    Raises:
        UserError: not a whole number from 0 on.
    """
    number = _number(step, "run.report step")
    if not 0 <= number < MAX_STEP or number != int(number):
        raise UserError(
            f"run.report was given the step {step!r:.80}, which is not a whole number from 0 to 2^53",
            remedy="leave the step out, or count epochs or batches",
        )
    return int(number)


def _number(value: Any, where: str) -> float:
    """Numbers, and 0-dimensional tensors and arrays; not text, which float() would read."""
    try:
        if isinstance(value, (str, bytes, type(None))):
            raise TypeError(type(value).__name__)
        return float(value.detach() if is_tensor(value) else value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise UserError(
            f"{where} was given {value!r:.80}, which is not a number", remedy="pass a float, an int or a 0-d tensor"
        ) from error
