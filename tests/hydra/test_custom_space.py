"""`custom_search_space`: user code in a process of its own, with a time limit, its result as data (OP-09)."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from sweeper.clock import SystemClock
from sweeper.errors import UserError
from sweeper.hydra.first_trial import FirstTrial
from sweeper.hydra.space_function import SpaceFunction
from sweeper.hydra.space_process import SPACE_ROLE, find_function, space_role
from sweeper.model.trial import Json
from sweeper.trial.spawning import ForkUnsafe, Spawned
from sweeper.trial.warm_parent import WarmParent

CONFIG = OmegaConf.create({"most": 0.3})
calls: list[int] = []


def suggesting(cfg: DictConfig, trial: Any) -> None:
    low = trial.params["x"] - cfg.most
    trial.suggest_float("z", low, low + 1, step=0.25)
    trial.suggest_int("n", 2, 8, log=True)
    trial.suggest_float("+w", 0.0, 1.0)
    trial.suggest_categorical("c", [[1, 2], {"a": None}, "null", None])
    assert trial.params["+w"] == trial.params["w"] == 0.0
    assert trial.params["c"] == [1, 2]
    trial.set_user_attr("note", "kept nowhere")


def dropping(cfg: DictConfig, trial: Any) -> None:
    if not trial.params["use"]:
        trial.drop("dropout")


def raising(cfg: DictConfig, trial: Any) -> None:
    trial.suggest_float("z", 0, 1)
    raise KeyError(f"number {trial.number}")


def overlapping(cfg: DictConfig, trial: Any) -> None:
    assert trial.user_attrs == {"y": "5"}
    trial.suggest_float("y", 0, 1)


def hanging(cfg: DictConfig, trial: Any) -> None:
    if trial.number == 0:
        time.sleep(60)  # noqa: TID251 it is killed
    trial.suggest_int("n", 1, 2)


def dying(cfg: DictConfig, trial: Any) -> None:
    if trial.number == 0:
        os._exit(3)
    trial.suggest_int("n", 1, 2)


def counting(cfg: DictConfig, trial: Any) -> None:
    calls.append(trial.number)
    trial.suggest_int("calls", len(calls), 9)


def meddling(cfg: DictConfig, trial: Any) -> None:
    hidden = [name for name in os.environ if name.startswith("SWEEPER_DATABASE")]
    trial.suggest_categorical("seen", [hidden, "nothing"])


def choosing_an_object(cfg: DictConfig, trial: Any) -> None:
    trial.suggest_categorical("o", [object()])


class Numbered(FirstTrial):
    """A trial that is not the first."""

    def __init__(self, params: dict[str, Json], number: int) -> None:
        super().__init__(params)
        self.number = number


Make = Callable[..., SpaceFunction]


@pytest.fixture
def function_of() -> Iterator[Make]:
    made: list[SpaceFunction] = []
    parents: list[WarmParent] = []

    def make(
        name: str, *, fixed: dict[str, str] | None = None, limit_s: float = 20.0, notes: list[str] | None = None
    ) -> Any:
        parents.append(WarmParent.fork({SPACE_ROLE: space_role(CONFIG, f"{__name__}.{name}")}))
        note = (notes if notes is not None else []).append
        made.append(
            SpaceFunction(parents[-1], None, fixed=fixed or {}, clock=SystemClock(), note=note, limit_s=limit_s)
        )
        return made[-1]

    yield make
    for each in (*made, *parents):
        each.close()


def test_it_suggests_more_with_optunas_signatures(function_of: Make) -> None:
    notes: list[str] = []
    function, trial = function_of("suggesting", notes=notes), FirstTrial({"x": 0.5})
    function.suggest(trial)
    assert trial.stored == {"x": 0.5, "z": 0.5 - 0.3, "n": 2, "w": 0.0, "c": [1, 2]}
    assert function.keys == {"z": "z", "n": "n", "w": "+w", "c": "c"}, "a prefix says how the override is written"
    function.suggest(FirstTrial({"x": 0.5}))
    assert len(notes) == 1, "told once"
    assert "'note'" in notes[0]


def test_a_parameter_that_does_not_apply_is_dropped(function_of: Make) -> None:
    """OP-09."""
    function = function_of("dropping")
    for use, left in ((True, {"use": True, "dropout": 0.2}), (False, {"use": False})):
        trial = FirstTrial({"use": use, "dropout": 0.2})
        function.suggest(trial)
        assert trial.stored == left


def test_what_it_raises_is_told_with_its_traceback_and_refuses_one_number(function_of: Make) -> None:
    function = function_of("raising")
    with pytest.raises(UserError) as failed:
        function.suggest(FirstTrial({}))
    text = str(failed.value)
    assert text.rstrip().endswith("KeyError: 'number 0'")
    assert 'raise KeyError(f"number {trial.number}")' in text
    assert "space_process" not in text, "no frames of ours"
    trial = Numbered({}, 4)
    function(trial)
    assert trial.stored == {"z": 0.0}
    assert "number 4" in str(function.failure(4))
    assert function.failure(0) is None


def test_a_fixed_value_cannot_be_suggested_as_well(function_of: Make) -> None:
    with pytest.raises(UserError, match="'y' has a fixed value"):
        function_of("overlapping", fixed={"y": "5"}).suggest(FirstTrial({}))


def test_a_function_that_hangs_is_ended_and_the_next_number_is_asked_anew(function_of: Make) -> None:
    function = function_of("hanging", limit_s=1.0)
    with pytest.raises(UserError, match="longer than 1 s"):
        function.suggest(FirstTrial({}))
    trial = Numbered({}, 1)
    function.suggest(trial)
    assert trial.stored == {"n": 1}


def test_a_process_that_dies_is_told_and_the_next_number_is_asked_anew(function_of: Make) -> None:
    function = function_of("dying")
    with pytest.raises(UserError, match="ended with status"):
        function.suggest(FirstTrial({}))
    trial = Numbered({}, 1)
    function.suggest(trial)
    assert trial.stored == {"n": 1}


def test_what_it_leaves_behind_changes_no_later_proposal(function_of: Make) -> None:
    """SAME: each call is the first."""
    function = function_of("counting")
    for number in range(3):
        trial = Numbered({}, number)
        function.suggest(trial)
        assert trial.stored == {"calls": 1}
    assert calls == []


def test_it_has_no_business_with_our_credentials(function_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """SAFE."""
    monkeypatch.setenv("SWEEPER_DATABASE_URL", "postgresql://me:hunter2@host/db")
    trial = FirstTrial({})
    function_of("meddling").suggest(trial)
    assert trial.stored == {"seen": []}


def test_a_choice_that_no_config_can_hold_is_told(function_of: Make) -> None:
    with pytest.raises(UserError, match="object"):
        function_of("choosing_an_object").suggest(FirstTrial({}))


@pytest.mark.parametrize("target", ["tests.nowhere.f", f"{__name__}.missing"])
def test_a_function_that_is_not_there_is_told_by_name(function_of: Make, target: str) -> None:
    function = function_of(target.rpartition(".")[2])
    function._spawner = WarmParent.fork({SPACE_ROLE: space_role(CONFIG, target)})
    with pytest.raises(UserError, match=target):
        function.suggest(FirstTrial({}))
    function._spawner.close()


def test_a_function_of_the_script_is_taken_from_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing the script's module again would run it again."""
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__file__", "/somewhere/train-it.py", raising=False)
    monkeypatch.setattr(main, "configure", suggesting, raising=False)
    for target in ("train-it.configure", ".train-it.configure", "__main__.configure"):
        assert find_function(target) is suggesting


def test_the_other_spawner_serves_where_forking_is_unsafe(function_of: Make) -> None:
    class Unsafe:
        def spawn(
            self, role: str, payload: Json, descriptors: Sequence[int] = (), *, output: int | None = None
        ) -> Spawned:
            raise ForkUnsafe("threads")

        def close(self) -> None: ...

    forked = function_of("dropping")
    function = SpaceFunction(
        Unsafe(), forked._spawner, fixed={}, clock=SystemClock(), note=lambda _: None, limit_s=20.0
    )
    trial = FirstTrial({"use": False, "dropout": 0.1})
    function.suggest(trial)
    function.close()
    assert trial.stored == {"use": False}
