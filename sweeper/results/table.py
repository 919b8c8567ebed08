"""The last thing that a person sees of a search: the best trials, and how the rest ended."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sweeper.model.search import Direction
from sweeper.results.cells import cell_text
from sweeper.results.columns import ABSENT
from sweeper.results.files import no_best_reason
from sweeper.results.records import SweepResult, TrialResult

MOST_ROWS = 10
MOST_CELL_CHARACTERS = 40


def results_table(result: SweepResult, *, limit: int = MOST_ROWS) -> RenderableType:
    """Draw the best completed trials, the best first (of several objectives, the Pareto front first).

    Never longer than `limit` rows; below it, a line counts all trials and says where to find them.
    """
    shown = _ranked(result)[:limit]
    caption = Text(_caption(result, shown=len(shown)))
    return Group(_table(result, shown), caption) if shown else caption


def _table(result: SweepResult, shown: Sequence[TrialResult]) -> Table:
    count = max(len(result.directions), 1)
    names = list(dict.fromkeys(name for trial in shown for name in trial.params))
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("trial", *(["value"] if count == 1 else [f"value {at}" for at in range(count)]), *names, "step"):
        table.add_column(column, overflow="fold")
    best = {trial.number for trial in result.best_trials} if result.directions else set()
    for trial in shown:
        cells = [str(trial.number), *(f"{value:.6g}" for value in trial.values or ())]
        cells += [_shortened(cell_text(trial.params.get(name, ABSENT))) for name in names]
        style = "green" if trial.number in best else ""
        table.add_row(*(Text(cell, style=style) for cell in (*cells, str(trial.step))))
    return table


def _caption(result: SweepResult, *, shown: int) -> str:
    counts = ", ".join(f"{count} {state.value}" for state, count in result.counts().items())
    lines = [f"{shown} of {len(result.trials)} trials ({counts}); `sweeper trials {result.name}` lists all"]
    if result.directions and not result.best_trials:
        lines.insert(0, no_best_reason(result))
    return "\n".join(lines)


def _ranked(result: SweepResult) -> list[TrialResult]:
    """Completed trials with values: the best first, those that break a constraint last."""
    best = {trial.number for trial in result.best_trials} if result.directions else set()
    signs = [1.0 if direction is Direction.MINIMIZE else -1.0 for direction in result.directions]

    def key(trial: TrialResult) -> tuple[bool, bool, tuple[float, ...], int]:
        values = tuple(sign * value for sign, value in zip(signs, trial.values or (), strict=False))
        return (not trial.feasible, trial.number not in best, values if len(signs) == 1 else (), trial.number)

    return sorted((trial for trial in result.completed if trial.values is not None), key=key)


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_CELL_CHARACTERS else f"{text[: MOST_CELL_CHARACTERS - 1]}…"
