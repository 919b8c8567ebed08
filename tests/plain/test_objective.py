"""The function: what it is called, what is refused, and where a fresh interpreter finds it."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sweeper.errors import UserError
from sweeper.plain.objective import Reference, describe_objective, find, read_reference, reference_to


def objective(config: dict[str, Any]) -> float:
    return float(config["x"])


class Trainer:
    @staticmethod
    def train(config: dict[str, Any]) -> float:
        return float(config["x"])

    def __call__(self, config: dict[str, Any]) -> float:
        return float(config["x"])


def test_a_function_is_known_by_module_and_name() -> None:
    task = describe_objective(objective)
    assert task.name == f"{__name__}:objective"
    assert task.file == Path(__file__).resolve()
    assert describe_objective(functools.partial(objective)).name == task.name
    assert describe_objective(Trainer()).name == f"{__name__}:Trainer"


@pytest.mark.parametrize("function", [objective, Trainer.train])
def test_an_importable_function_is_found_again(function: Any) -> None:
    assert find(reference_to(function)) is function


@pytest.mark.parametrize(
    "function", [lambda config: config["x"], functools.partial(objective), Trainer(), Trainer().__call__]
)
def test_what_has_no_name_of_its_own_cannot_be_imported_and_the_remedy_is_told(function: Any) -> None:
    with pytest.raises(UserError, match="def"):
        reference_to(function)


@pytest.mark.parametrize("function", [lambda: 1, lambda x, y: 1, lambda *, config: 1, "train", None])
def test_what_cannot_be_called_with_one_config_is_refused_before_any_trial(function: Any) -> None:
    """CLEAR."""
    with pytest.raises(UserError, match="objective"):
        describe_objective(function)


@pytest.mark.parametrize("text", ["train", "a:b:c", "a.b", ":f", "a:", "a b:c", "a:b()", None, 3])
def test_a_reference_is_module_colon_function(text: Any) -> None:
    with pytest.raises(UserError, match=r"package\.module:function"):
        read_reference(text)


def test_a_missing_module_or_name_is_told() -> None:
    assert read_reference("a.b:C.d") == Reference(module="a.b", qualified_name="C.d")
    with pytest.raises(UserError, match=r"no module no_such\.module"):
        find(read_reference("no_such.module:f"))
    with pytest.raises(UserError, match="json has no loadss"):
        find(read_reference("json:loadss"))
    with pytest.raises(UserError, match="cannot be called"):
        find(read_reference("sys:path"))


def test_a_module_that_fails_to_import_something_else_says_so_itself(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "needs_more.py").write_text("import no_such_package_of_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_package_of_all"):
        find(read_reference("needs_more:f"))


def test_a_scripts_function_is_found_by_running_the_script_as_a_module(tmp_path: Path) -> None:
    script = tmp_path / "search.py"
    script.write_text(
        "from sweeper.plain.objective import find, reference_to\n"
        "class Box: pass\n"
        "def train(config): return Box\n"
        "if __name__ == '__main__':\n"
        "    import dataclasses\n"
        "    found = find(reference_to(train))\n"
        "    print(found.__module__, found is train, found({}).__module__)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["__mp_main__", "False", "__mp_main__"]
