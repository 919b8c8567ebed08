"""Every moment of a search renders: the dashboard answers 200 with strict JSON (DB-02)."""

from __future__ import annotations

import json
import math
import warnings
from typing import Any

import optuna
import pytest

from sweeper.ledger.commands import retry_trials
from sweeper.model.search import Constraint, Direction
from sweeper.model.space import Choices, FloatRange
from sweeper.model.states import AttemptOutcome
from tests.dashboard.api import Api
from tests.mirror.world import SearchWorld

PARAMS = {"lr": 0.1, "layers": 3, "act": "relu"}


PLOTS = ("plot_parallel_coordinate", "plot_slice", "plot_contour", "plot_edf", "plot_rank", "plot_timeline")


def draw(study: optuna.Study, *plots: str, reference_point: list[float] | None = None) -> None:
    """Draw with Optuna's own plots; they warn of infinities and go on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for plot in plots:
            more = (reference_point,) if plot == "plot_hypervolume_history" else ()
            assert json.loads(getattr(optuna.visualization, plot)(study, *more).to_json())["data"]


@pytest.mark.slow
def test_every_moment_of_a_trials_life_renders(world: SearchWorld, api: Api) -> None:
    mirroring = world.mirroring()

    def seen(*, turns: int = 2) -> list[Any]:
        world.turn(mirroring, turns)
        trials: list[Any] = api.study()["trials"]
        return trials

    assert seen(turns=4) == []  # no trials at all
    world.study().enqueue_trial({"lr": 0.5})
    assert api.study()["trials"][0]["state"] == "Waiting"
    (claimed,) = seen()
    assert (claimed["state"], claimed["params"]) == ("Running", [])  # running without parameters
    grant = world.start(**PARAMS)
    assert seen()[1]["state"] == "Running"
    world.report(grant, math.inf, -math.inf, math.nan, 0.5)
    values = [one["value"] for one in seen()[1]["intermediate_values"]]
    assert values == ["inf", "-inf", "nan", 0.5]
    world.release(grant, AttemptOutcome.EVICTED)
    assert seen()[1]["state"] == "Running"
    grant = world.lease()  # resumed: what was reported is void
    world.report(grant, 0.4)
    resumed = seen()[1]
    assert [one["value"] for one in resumed["intermediate_values"]] == [0.4, "nan", "nan", "nan"]
    world.release(grant, AttemptOutcome.PAUSED)
    assert seen()[1]["state"] == "Running"
    world.fail(world.start(lr=0.2, layers=1, act=None), "Traceback\nValueError: \x00 NaN \N{SNOWMAN} </script>")
    assert seen()[2]["state"] == "Fail"
    pruned = world.start(lr=0.3, layers=1, act=None)
    world.report(pruned, 0.9)
    world.prune(pruned)
    assert seen()[3]["values"] == [0.9]
    for value in (math.inf, -math.inf, 0.25):
        world.complete(world.start(lr=0.4 + (0.1 if value == 0.25 else value > 0) / 10, layers=1, act="tanh"), value)
    assert [one["values"] for one in seen()[4:]] == [["inf"], ["-inf"], [0.25]]
    study = world.study()
    study.set_user_attr("theirs", {"loss": math.nan, "list": [math.inf]})
    study.add_trial(optuna.trial.create_trial(value=1.0, user_attrs={"loss": math.nan}))
    retry_trials(world.db, world.sweep.sweep_id, [1], from_zero=False)
    assert len(seen(turns=6)) == 8
    api.study(plots=True)
    draw(world.study(), *PLOTS, "plot_optimization_history", "plot_intermediate_values")
    assert world.notes == []
    mirroring.close()


@pytest.mark.slow
def test_two_objectives_and_constraints_render(world: SearchWorld, api: Api) -> None:
    two = SearchWorld.build(
        world.db,
        world.url,
        name="two",
        directions=(Direction.MINIMIZE, Direction.MAXIMIZE),
        constraints=(Constraint(metric="ms", at_most=20.0),),
    )
    for number, ms in enumerate((10.0, 30.0, math.nan, math.inf)):
        grant = two.start(lr=0.1 + number / 10, layers=1 + number, act="relu")
        two.report(grant, 0.5, ms=ms)
        two.complete(grant, [float(number), -math.inf if number == 2 else 1.0])
    two.show()
    detail = api.study("two", plots=True)
    assert detail["directions"] == ["minimize", "maximize"]
    assert [one["constraints"][0] > 0 for one in detail["trials"]] == [False, True, True, True]
    assert [one["number"] for one in detail["best_trials"]] == [0]
    draw(two.study(), "plot_pareto_front", "plot_timeline", "plot_hypervolume_history", reference_point=[9.0, -9.0])
    two.close()


@pytest.mark.slow
def test_odd_choices_render(world: SearchWorld, api: Api) -> None:
    """DB-03: a single value; booleans; None; `1`, `1.0` and `"1"` in one choice; lists and mappings."""
    space = {
        "single": Choices(values=("only",)),
        "flag": Choices(values=(True, False)),
        "maybe": Choices(values=(None, 0.5)),
        "ones": Choices(values=(1, 1.0, "1")),
        "net": Choices(values=([8, 8], {"a": [1, None]}, [])),
        "x": FloatRange(low=0.0, high=1.0),
    }
    odd = SearchWorld.build(world.db, world.url, name="odd", space=space)
    for number in range(6):
        chosen = {
            name: dimension.values[number % len(dimension.values)]
            for name, dimension in space.items()
            if isinstance(dimension, Choices)
        }
        odd.complete(odd.start(**chosen, x=number / 10), number / 7)
    odd.show()
    detail = api.study("odd", plots=True)
    shown = {one["name"]: one["param_external_value"] for one in detail["trials"][1]["params"]}
    assert shown == {
        "single": "only",
        "flag": "False",
        "maybe": "0.5",
        "ones": "1.0",
        "net": '{"a":[1,null]}',
        "x": "0.1",
    }
    assert len(detail["intersection_search_space"]) == len(space)
    draw(odd.study(), *PLOTS, "plot_optimization_history", "plot_param_importances")
    odd.close()
