"""What a search leaves beside its trials, for people and programs."""

import csv
import io
import json
import math
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from sweeper.model.search import Direction
from sweeper.model.states import TrialState
from sweeper.model.tagged import from_tagged
from sweeper.results.cells import cell_text
from sweeper.results.files import csv_text, optimization_results, write_results, yaml_text
from tests.results.making import sweep, trial

AWKWARD: dict[str, Any] = {
    "lr": 1e-5,
    "layers": 3,
    "amp": True,
    "kind": None,
    "text": "null",
    "number": "1e3",
    "switch": "on",
    "comma": "a,b",
    "apostrophe": "it's",
    "quotes": 'say "x"',
    "lines": "two\nlines",
    "empty": "",
    "space": "trailing ",
    "sizes": [1, 2.0, "3"],
    "map": {"a": 1, "b": None},
    "more": "größer",
}


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_one_objective_is_written_as_the_optuna_plugin_writes_it() -> None:
    """As its `_impl.py` saves it: name, best_params, best_value, in this order."""
    result = sweep(trial(0, 0.5, params={"x": 1.0}), trial(1, 0.25, params=AWKWARD))
    written = optimization_results(result)
    assert list(written) == ["name", "best_params", "best_value"]
    assert written == {"name": "optuna", "best_params": AWKWARD, "best_value": 0.25}
    assert yaml_text(written) == OmegaConf.to_yaml(OmegaConf.create(written))


def test_several_objectives_are_written_as_the_plugin_writes_them() -> None:
    both = (Direction.MINIMIZE, Direction.MAXIMIZE)
    result = sweep(
        trial(0, 1.0, 1.0, params={"x": 1}), trial(1, 2.0, 0.5), trial(2, 2.0, 2.0, params={"x": 2}), directions=both
    )
    written = optimization_results(result)
    assert written == {
        "name": "optuna",
        "solutions": [{"params": {"x": 1}, "values": [1.0, 1.0]}, {"params": {"x": 2}, "values": [2.0, 2.0]}],
    }
    assert yaml_text(written) == OmegaConf.to_yaml(OmegaConf.create(written))


plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8", exclude_characters="$")),
    st.sampled_from(
        ["1", "1e3", "1_000", ".5", "nan", "Infinity", "yes", "No", "null", "~", "2020-01-01", "0x1f", "1:30"]
    ),
)


@given(params=st.dictionaries(st.from_regex(r"[a-z][a-z_.]{0,8}", fullmatch=True), st.one_of(plain, st.lists(plain))))
def test_every_value_is_read_back_as_what_it_was(params: dict[str, Any]) -> None:
    """TRUTH, also where PyYAML and OmegaConf take different texts for numbers."""
    text = yaml_text(optimization_results(sweep(trial(0, 0.5, params=params))))
    read = OmegaConf.to_container(OmegaConf.create(text))
    assert isinstance(read, dict)
    assert repr(read["best_params"]) == repr(params)


def test_without_a_completed_trial_the_file_says_so() -> None:
    result = sweep(*(trial(number, state=TrialState.FAILED) for number in range(3)), trial(3, state=TrialState.PRUNED))
    assert optimization_results(result) == {
        "name": "optuna",
        "best_params": None,
        "best_value": None,
        "reason": "no trial completed (1 pruned, 3 failed)",
    }
    both = (Direction.MINIMIZE, Direction.MINIMIZE)
    assert optimization_results(sweep(directions=both)) == {
        "name": "optuna",
        "solutions": [],
        "reason": "there are no trials",
    }


def test_when_no_trial_keeps_the_constraints_the_file_says_so() -> None:
    result = sweep(trial(0, 0.5, feasible=False))
    assert optimization_results(result)["reason"] == "the 1 completed trial does not keep the constraints"


def test_every_trial_has_one_row_with_values_parameters_and_how_it_went() -> None:
    result = sweep(
        trial(0, 0.5, params={"lr": 0.1, "kind": "a"}, attempts=2, step=30),
        trial(1, state=TrialState.FAILED, params={"lr": 0.2, "kind": "b"}),
        trial(2, 0.75, state=TrialState.PRUNED, params={"lr": 1e-05}),
    )
    assert csv_text(result).splitlines() == [
        "number,state,value,params_lr,params_kind,attempts,step,config_hash,overrides",
        f"0,completed,0.5,0.1,a,2,30,{0:064x},lr=0.1 kind=a",
        f"1,failed,,0.2,b,1,10,{1:064x},lr=0.2 kind=b",
        f"2,pruned,0.75,1e-05,,1,10,{2:064x},lr=1e-05",
    ]


def test_several_objectives_are_several_columns() -> None:
    both = (Direction.MINIMIZE, Direction.MAXIMIZE)
    row = rows_of(csv_text(sweep(trial(0, 0.5, math.inf), directions=both)))[0]
    assert (row["values_0"], row["values_1"]) == ("0.5", "inf")


def test_cells_survive_commas_quotes_and_lines_and_keep_types_apart() -> None:
    """OP-08: null and "null", 1 and "1", a trailing space and an empty text are told apart in the file."""
    row = rows_of(csv_text(sweep(trial(0, 0.5, params=AWKWARD))))[0]
    cells = {name: row[f"params_{name}"] for name in AWKWARD}
    assert cells == {
        "lr": "1e-05",
        "layers": "3",
        "amp": "true",
        "kind": "null",
        "text": '"null"',
        "number": '"1e3"',
        "switch": "on",
        "comma": "a,b",
        "apostrophe": "it's",
        "quotes": 'say "x"',
        "lines": "two\nlines",
        "empty": '""',
        "space": '"trailing "',
        "sizes": '[1, 2.0, "3"]',
        "map": '{"a": 1, "b": null}',
        "more": "größer",
    }
    overrides = [f"{name}={value}" for name, value in AWKWARD.items()]
    assert shlex.split(row["overrides"]) == overrides


@given(value=st.one_of(plain, st.lists(plain, max_size=3)))
def test_a_cell_tells_which_value_it_is(value: Any) -> None:
    text = cell_text(value)
    try:
        read = from_tagged(json.loads(text)) if text not in ("inf", "-inf") else float(text)
    except ValueError:
        read = text
    assert repr(read) == repr(value)


def test_files_are_replaced_as_a_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "multirun"
    write_results(sweep(trial(0, 0.5)), folder)
    write_results(sweep(trial(0, 0.5), trial(1, 0.25, params={"x": "ä"})), folder)
    assert sorted(path.name for path in folder.iterdir()) == ["optimization_results.yaml", "results.csv"]
    assert len(rows_of((folder / "results.csv").read_text(encoding="utf-8"))) == 2
    assert OmegaConf.load(folder / "optimization_results.yaml").best_params.x == "ä"


def test_a_folder_that_cannot_be_written_keeps_what_it_had(tmp_path: Path) -> None:
    write_results(sweep(trial(0, 0.5)), tmp_path)
    before = (tmp_path / "results.csv").read_text()
    (tmp_path / "optimization_results.yaml").unlink()
    (tmp_path / "optimization_results.yaml").mkdir()
    with pytest.raises(OSError, match="optimization_results"):
        write_results(sweep(trial(0, 0.5), trial(1, 0.1)), tmp_path)
    assert (tmp_path / "results.csv").read_text() == before
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".tmp")]
