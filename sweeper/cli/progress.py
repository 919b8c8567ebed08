"""Progress of a sweep as it works: a live display on a terminal, one line per transition elsewhere.

Everything goes to the error stream, so that a script's own output can still be piped. The display is drawn only when
the coordinator's turn ends: there is no refreshing thread, which would be one more thing alive beside a fork.

Between two pictures the cursor rests at the first one's beginning, so whatever else is written to the terminal (by a
worker, which is another process) lands above the next picture and is never drawn over.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sweeper.cli.texts import STATE_STYLES, duration_text, value_text
from sweeper.model.progress import ProgressSink, RunningTrial, SearchProgress, SweepProgress, Transition
from sweeper.model.states import AttemptOutcome, TrialState

_ENDINGS = (AttemptOutcome.CRASHED, AttemptOutcome.LOST, AttemptOutcome.EVICTED, AttemptOutcome.ENVIRONMENT)
ABOVE_DISPLAY: Final = "\r\x1b[J"
"""Written before any text on a terminal with the display: clears what was drawn, so that no rest of it stays beside."""
ROWS = 12
"""Most running trials that the display lists."""


def open_progress(console: Console | None = None) -> ProgressSink:
    """Give the sink that suits the error stream: live on a terminal, else lines."""
    console = console or Console(stderr=True, soft_wrap=True)
    return LiveProgress(console) if is_live(console) else LineProgress(console)


def is_live(console: Console | None = None) -> bool:
    """Tell whether the error stream gets the live display."""
    console = console or Console(stderr=True)
    return console.is_terminal and not console.is_dumb_terminal and os.environ.get("CI") is None


class LineProgress:
    """One line per transition, with nothing a log file cannot hold."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def transition(self, event: Transition) -> None:
        """Write the transition's line."""
        self._say(transition_text(event))

    def turn(self, snapshot: SweepProgress) -> None:
        """Nothing: transitions tell the story."""

    def note(self, text: str) -> None:
        """Write the text on a line of its own."""
        self._say(text)

    def close(self) -> None:
        """Nothing to put back."""

    def _say(self, text: str) -> None:
        self._console.print(Text(f"sweeper: {text}"), soft_wrap=True, highlight=False)


class LiveProgress:
    """Trials by state, and what each worker does, redrawn in place each turn; what went wrong scrolls by above."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._picture: list[str] = []
        self._shown = False

    def transition(self, event: Transition) -> None:
        """Tell of failures and interruptions; the rest is seen in the counts."""
        if event.state is TrialState.FAILED or event.outcome in _ENDINGS:
            style = STATE_STYLES[event.state] if event.state is TrialState.FAILED else "yellow"
            self._say(Text(transition_text(event), style=style))

    def turn(self, snapshot: SweepProgress) -> None:
        """Redraw, cut to the terminal, and go back to where the drawing began."""
        self._picture = self._drawn(snapshot)
        up = f"\x1b[{len(self._picture) - 1}A" if len(self._picture) > 1 else ""
        self._write("\n".join(self._picture) + "\r" + up)
        self._shown = True

    def note(self, text: str) -> None:
        """Write the text above the display."""
        self._say(Text(text, style="bold"))

    def close(self) -> None:
        """Leave the last picture, and the cursor below it."""
        if self._shown:
            self._write("\n".join(self._picture) + "\n")
            self._shown = False

    def _drawn(self, snapshot: SweepProgress) -> list[str]:
        with self._console.capture() as captured:
            self._console.print(progress_view(snapshot), soft_wrap=False, no_wrap=True, overflow="ellipsis", crop=True)
        return captured.get().splitlines()[: max(1, self._console.height - 1)]

    def _say(self, text: Text) -> None:
        with self._console.capture() as captured:
            self._console.print(text, soft_wrap=True, highlight=False)
        self._write(captured.get())

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone; the sweep is not
            self._console.file.write((ABOVE_DISPLAY if self._shown else "") + text)
            self._console.file.flush()


def transition_text(event: Transition) -> str:
    """Tell a transition in one line."""
    subject = f"trial {event.number}"
    if event.overrides:
        subject += f" ({' '.join(event.overrides)})"
    step = f" at step {event.step}" if event.step else ""
    match event.state:
        case TrialState.RUNNING:
            resumed = f", resumed from step {event.step}" if event.step else ""
            return f"{subject} running, attempt {event.attempt}{resumed}"
        case TrialState.COMPLETED:
            return f"{subject} completed{step}: {value_text(event.value)}"
        case TrialState.PRUNED:
            return f"{subject} pruned{step}"
        case TrialState.PENDING if event.outcome is AttemptOutcome.PAUSED:
            return f"{subject} promoted: goes on{f' from step {event.step}' if event.step else ''}"
        case TrialState.PENDING if event.outcome is None:
            return f"{subject} interrupted{step}, pending again"
        case _:
            how = f": attempt {event.attempt} {event.outcome.value}{step}" if event.outcome else ""
            return f"{subject} {event.state.value}{how}{f', {event.reason}' if event.reason else ''}"


def progress_view(snapshot: SweepProgress) -> RenderableType:
    """Draw a sweep at one moment."""
    total = sum(snapshot.counts.values())
    done = sum(count for state, count in snapshot.counts.items() if state.final)
    search = snapshot.search
    if search is not None:  # of all that it may propose; numbers without a trial of their own are used up at once
        done, total = search.proposed - (total - done), search.n_trials
    head = Table.grid(padding=(0, 1))
    head.add_row(
        Text(snapshot.name, style="bold"),
        ProgressBar(total=max(total, 1), completed=min(done, total), width=30),
        Text(f"{done}/{total}"),
        Text(_asides(snapshot), style="yellow"),
    )
    rows: list[RenderableType] = [head, counts_text(snapshot.counts)]
    rows += [Text(search_text(search))] if search is not None else []
    return Group(*rows, running_table(snapshot.running)) if snapshot.running else Group(*rows)


def counts_text(counts: Mapping[TrialState, int]) -> Text:
    """Write how many trials are in each state, leaving out states without any."""
    text = Text()
    for state in TrialState:
        if counts.get(state):
            text.append(f"{counts[state]} {state.value}  ", style=STATE_STYLES[state])
    return text


def search_text(search: SearchProgress) -> str:
    """Tell in one line how far a search is."""
    parts = [f"proposed {search.proposed} of {search.n_trials}"]
    parts += [f"{search.repeats} repeat{'s'[: search.repeats != 1]}"] if search.repeats else []
    if search.best is not None:
        parts.insert(0, f"best {search.best[1]:.6g} (trial {search.best[0]})")
    parts += [f"Optuna study {search.mirror_lag} behind"] if search.mirror_lag else []
    return ", ".join(parts)


def _asides(snapshot: SweepProgress) -> str:
    parts = [f"{snapshot.evictions} eviction{'s'[: snapshot.evictions != 1]}"] if snapshot.evictions else []
    parts += [f"{snapshot.not_requested} not requested"] if snapshot.not_requested else []
    return ", ".join(parts)


def running_table(running: tuple[RunningTrial, ...]) -> Table:
    """Draw what each worker does; longer lists are cut."""
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("worker", "trial", "attempt", "step", "last value", "checkpoint"):
        table.add_column(column, justify="left" if column == "worker" else "right", no_wrap=True)
    for trial in running[:ROWS]:
        table.add_row(
            trial.worker,
            str(trial.number),
            str(trial.attempt),
            str(trial.step),
            "–" if trial.last_value is None else f"{trial.last_value:.6g}",
            "none yet" if trial.checkpoint_age_s is None else f"{duration_text(trial.checkpoint_age_s)} ago",
        )
    if len(running) > ROWS:
        table.add_row(f"… {len(running) - ROWS} more")
    return table
