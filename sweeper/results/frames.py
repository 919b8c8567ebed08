"""Results as a pandas frame. pandas is an extra, imported at use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sweeper.errors import UserError
from sweeper.results.columns import ABSENT, columns_of
from sweeper.results.records import SweepResult

if TYPE_CHECKING:
    import pandas as pd


def frame_of(result: SweepResult) -> pd.DataFrame:
    """Give one row for each trial; columns that mix types keep each value as it is (TRUTH).

    Raises:
        UserError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise UserError(
            "a frame needs pandas, which is not installed", remedy="pip install 'sweeper[frames]'"
        ) from error
    columns = columns_of(result)
    columns["overrides"] = [list(trial.overrides) for trial in result.trials]
    columns["error"] = [trial.error for trial in result.trials]
    columns["started_at"] = [trial.started_at for trial in result.trials]
    columns["finished_at"] = [trial.finished_at for trial in result.trials]
    # None of the series is left to pandas' guess where that would turn 1 into 1.0 or a list into rows.
    series = {name: pd.Series(_cells(cells), dtype=_kind(name, cells)) for name, cells in columns.items()}
    return pd.DataFrame(series)


def _cells(cells: list[Any]) -> list[Any]:  # Any: of every type
    return [None if cell is ABSENT else cell for cell in cells]


def _kind(name: str, cells: list[Any]) -> Any:  # Any: what pandas takes as a type
    if name == "value" or name.startswith("values_"):
        return "float64"
    if name in ("started_at", "finished_at"):
        return "datetime64[us, UTC]"
    kinds = {type(cell) for cell in cells}
    return {int: "int64", float: "float64", bool: "bool"}.get(next(iter(kinds)), object) if len(kinds) == 1 else object
