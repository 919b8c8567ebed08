"""What a search says at its end: why it proposes no more, the best trials, and where everything is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from sweeper.results.cells import cell_text
from sweeper.results.files import CSV_NAME, YAML_NAME
from sweeper.results.records import SweepResult
from sweeper.results.table import results_table

_WIDTH_WITHOUT_TERMINAL: Final = 200
_MOST_NAMED: Final = 10


def say_search_end(result: SweepResult, reason: str, folder: Path) -> None:
    """Write the last lines and the table of the best trials to the error stream, where progress goes too.

    Args:
        result: the search's results.
        reason: why it ended.
        folder: where the results were written.
    """
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for line in closing_lines(result, reason, folder):
        console.print(line, markup=False)
    wide = console if console.is_terminal else Console(stderr=True, highlight=False, width=_WIDTH_WITHOUT_TERMINAL)
    wide.print(results_table(result))


def closing_lines(result: SweepResult, reason: str, folder: Path) -> Iterator[str]:
    """Give the lines above the table; arguments as in `say_search_end`."""
    yield f"search {result.name!r} ended: {reason}"
    best = result.best_trials
    if len(result.directions) == 1 and best:
        yield f"best: {best[0].value!r} by trial {best[0].number} with {_params_text(best[0].params)}"
    elif best:
        numbers = ", ".join(str(trial.number) for trial in best[:_MOST_NAMED])
        more = f" and {len(best) - _MOST_NAMED} more" if len(best) > _MOST_NAMED else ""
        trials = "trial" if len(best) == 1 else "trials"
        yield f"best: {trials} {numbers}{more}; none is better in one objective and as good in the others"
    if result.completed:
        for name in result.unreported:
            yield f"no trial reported {name!r}, which a constraint bounds: run.report(value, {name}=…)"
    yield f"results: {folder / YAML_NAME}, {folder / CSV_NAME}"


def _params_text(params: Mapping[str, Any]) -> str:  # Any: parameters of any kind
    return ", ".join(f"{name}={cell_text(value)}" for name, value in params.items()) or "no parameters"
