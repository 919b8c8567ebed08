"""What a search leaves beside its trials: `optimization_results.yaml` and `results.csv`."""

from __future__ import annotations

import csv
import io
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from sweeper.model.tagged import to_tagged
from sweeper.results.cells import cell_text
from sweeper.results.columns import columns_of
from sweeper.results.records import SweepResult

YAML_NAME: Final = "optimization_results.yaml"
CSV_NAME: Final = "results.csv"


def write_results(result: SweepResult, folder: Path) -> None:
    """Write both files, each under a temporary name and renamed, so that nobody ever reads half of one.

    Raises:
        OSError: the folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / YAML_NAME, yaml_text(optimization_results(result)))
    _replace(folder / CSV_NAME, csv_text(result))


def optimization_results(result: SweepResult) -> dict[str, Any]:  # Any: what YAML holds
    """Give what the Optuna sweeper plugin of Hydra writes: `best_params` and `best_value`, or `solutions`.

    Where it has nothing to say, since no trial completed, that is said under `reason`.
    """
    best = result.best_trials
    found: dict[str, Any] = {"name": "optuna"}
    if len(result.directions) == 1:
        found["best_params"] = _plain_params(best[0].params) if best else None
        found["best_value"] = best[0].value if best else None
    else:
        found["solutions"] = [
            {"params": _plain_params(trial.params), "values": list(trial.values or ())} for trial in best
        ]
    return found if best else {**found, "reason": no_best_reason(result)}


def no_best_reason(result: SweepResult) -> str:
    """Say why no trial is the best."""
    completed = len(result.completed)
    if completed:
        trials = "1 completed trial does" if completed == 1 else f"{completed} completed trials do"
        return f"the {trials} not keep the constraints"
    counts = ", ".join(f"{count} {state.value}" for state, count in result.counts().items())
    return f"no trial completed ({counts})" if counts else "there are no trials"


def csv_text(result: SweepResult) -> str:
    """Give one line for each trial: number, state, values, parameters, attempts, step, hash, overrides.

    Cells keep the types of parameters apart (`sweeper.results.cells`); the overrides are one cell, in shell quotes.
    """
    columns = columns_of(result)
    texts = {name: [_cell(name, cell) for cell in cells] for name, cells in columns.items()}
    texts["overrides"] = [shlex.join(trial.overrides) for trial in result.trials]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(texts)
    writer.writerows(zip(*texts.values(), strict=True))
    return out.getvalue()


def yaml_text(document: Mapping[str, Any]) -> str:  # Any: what YAML holds
    """Write YAML as OmegaConf does: text that it would read as a number or a boolean is in quotes."""
    return yaml.dump(dict(document), Dumper=_Dumper, default_flow_style=False, allow_unicode=True, sort_keys=False)


class _Dumper(yaml.SafeDumper):
    """PyYAML reads numbers by YAML 1.1, OmegaConf more widely (`1e3`): both have to read text as text."""

    def ignore_aliases(self, data: Any) -> bool:  # Any: as the base class has it
        """Write equal values out twice, rather than `&id001`."""
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "'" if text.lower() in _BOOLEANS or _is_number(text) else None
    if any(character in text for character in _UNICODE_BREAKS):  # PyYAML folds them everywhere but in double quotes
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_BOOLEANS: Final = frozenset({"y", "yes", "n", "no", "true", "false", "on", "off"})
_UNICODE_BREAKS: Final = "\x85\u2028\u2029\ufeff"
_Dumper.add_representer(str, _represent_text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _cell(name: str, cell: Any) -> str:  # Any: of every type
    """A column of values is empty where there is none; a parameter's `null` is a value."""
    if cell is None and not name.startswith("params_"):
        return ""
    return cell_text(cell) if name.startswith("params_") else str(cell)


def _plain_params(params: Mapping[str, Any]) -> dict[str, Any]:  # Any: parameters are of every type
    return {name: _plain(value) for name, value in params.items()}


def _plain(value: Any) -> Any:  # Any: any plain value
    """YAML's own kinds as they are; everything else as tagged JSON, which is exact."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [_plain(item) for item in value]
        case dict() if all(isinstance(key, str | int | float | bool) for key in value):
            return {key: _plain(item) for key, item in value.items()}
        case _:
            return to_tagged(value)


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
