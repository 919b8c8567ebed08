"""`sweeper.sweep` from a script, with real processes: the promises of the Hydra face, without Hydra."""

from __future__ import annotations

import csv
import json
import signal
from typing import Any

import pytest

from sweeper.model.states import TrialState
from tests.hydra.running import finish, wait_until
from tests.plain.desk import Desk, assert_goes_on, kill_at, result_of

pytestmark = pytest.mark.slow


def test_a_search_gives_its_results_and_the_same_call_again_trains_nothing(desk: Desk) -> None:
    """ONCE, TRUTH; and neither side ever imports Hydra."""
    desk.script()
    first = result_of(desk.sweep(directory=str(desk.root / "out")))
    trained = desk.counted()
    assert len(trained) == 4
    assert set(trained.values()) == {1}
    assert [abs(params["x"] - 0.3) for params in first["params"]] == first["values"]
    assert first["best"][1] == min(first["values"])
    assert first["hydra"] == []
    with (desk.root / "out" / "results.csv").open() as file:
        assert [float(row["value"]) for row in csv.DictReader(file)] == first["values"]
    assert sorted(path.name for path in (desk.root / "out").iterdir() if path.is_dir()) == ["0", "1", "2", "3"]
    again = desk.sweep()
    assert result_of(again) == first
    assert "nothing to train" in again.stderr
    assert desk.counted() == trained


def test_a_larger_total_adds_to_what_there_is(desk: Desk) -> None:
    """OP-05: `n_trials` is a total, and the search goes on where it was (SAME)."""
    desk.script()
    straight = result_of(desk.sweep(name="straight", n_trials=7))
    desk.sweep(n_trials=3)
    more = result_of(desk.sweep(n_trials=7))
    assert more["params"] == straight["params"]
    assert len(desk.counted()) == 7  # the same configs under both names


def test_a_search_that_is_killed_goes_on_in_the_middle_of_its_trials(desk: Desk) -> None:
    """ONCE, RESUME, SAME: the same configs and values, and no step of a finished trial again."""
    desk.script()
    keywords: dict[str, Any] = {"base": {"steps": 20, "pause_s": 0.02}, "checkpoint": {"every_s": 0.05}}
    straight = result_of(desk.sweep(name="straight", **keywords))
    (desk.root / "counter.txt").unlink()
    kills = [
        kill_at(desk, desk.start("python", "search.py", _json(**keywords)), steps=steps, saved=True)
        for steps in (25, 55)
    ]
    found = result_of(desk.sweep(**keywords))
    assert (found["params"], found["values"]) == (straight["params"], straight["values"])
    assert len(desk.counted()) == 80
    for killed in kills:
        assert_goes_on(killed, desk.counted())
    assert [trial.state for trial in desk.trials()] == [TrialState.COMPLETED] * 4


def test_a_process_that_is_told_to_leave_leaves_with_75_and_nothing_after_the_call_runs(desk: Desk) -> None:
    """FAIR; `except Exception` does not swallow it, and nobody takes half a result for a whole one."""
    prolog = (
        "def guarded(*given, **keywords):\n"
        "    try:\n        return real(*given, **keywords)\n"
        "    except Exception:\n        print('SWALLOWED')\n"
        "real, sweeper.sweep = sweeper.sweep, guarded\n"
    )
    desk.script(prolog=prolog)
    keywords: dict[str, Any] = {
        "base": {"steps": 200, "pause_s": 0.02},
        "identity": {"ignore": ["pause_s"]},
        "checkpoint": {"every_s": 0.05},
        "n_trials": 2,
    }
    process = desk.start("python", "search.py", _json(**keywords))
    wait_until(lambda: len(desk.counted()) >= 10 or process.poll() is not None, 60)
    process.send_signal(signal.SIGTERM)
    ended = finish(process)
    assert ended.status == 75, ended.printed
    assert ended.stdout == ""
    assert "goes on from there" in ended.stderr
    (trial,) = desk.trials()
    assert (trial.state, trial.crashes) == (TrialState.PENDING, 0)
    assert trial.step > 0
    assert len(result_of(desk.sweep(**keywords | {"base": {"steps": 200}}))["values"]) == 2


def test_any_function_can_be_forked_and_sweeps_of_one_script_do_not_disturb_one_another(desk: Desk) -> None:
    """A lambda, a partial, one of the script's own; each in a sweep of its own, the later ones built on the first."""
    desk.write(
        "all.py",
        "import functools, sweeper\n"
        "def shifted(config, by=0):\n    return config['x'] + by\n"
        "if __name__ == '__main__':\n"
        "    grid = {'sampler': 'grid'}\n"
        "    first = sweeper.sweep(shifted, {'x': [0.1, 0.2]}, name='first', **grid)\n"
        "    x = first.best.params['x']\n"
        "    second = sweeper.sweep(functools.partial(shifted, by=1), {'x': [x]}, name='second', **grid)\n"
        "    third = sweeper.sweep(lambda config: config['x'] * 2, {'x': [x]}, name='third', **grid)\n"
        "    print([trial.value for each in (first, second, third) for trial in each.trials])\n",
    )
    ended = desk.run("python", "all.py")
    assert ended.stdout == "[0.1, 0.2, 1.1, 0.2]\n", ended.printed


def test_the_config_is_a_dict_of_its_own_with_nested_keys_and_values_of_their_type(desk: Desk) -> None:
    """TRUTH, SAFE: what the ledger says ran is what the function was given; where the ledger is, it is not told."""
    prolog = (
        "import os\n"
        "def shown(config):\n"
        "    assert not [name for name in os.environ if name.startswith('SWEEPER_') and name.endswith('_URL')]\n"
        "    count(repr(config).replace(' ', '') + ' 0')\n"
        "    config['opt']['layers'].append('changed')\n"
        "    return float(len(config))\n"
    )
    space = '{"opt.lr": [1, 1.0], "opt.layers": [[64, 64]], "seed": [None], "mode": ["1", True]}'
    desk.script(prolog=prolog, objective="shown", space=space)
    result_of(desk.sweep(sampler="grid", n_trials=10, base={"opt": {"lr": 0, "name": "é"}}))
    expected = {
        f"{{'opt':{{'lr':{lr!r},'name':'é','layers':[64,64]}},'seed':None,'mode':{mode!r}}}"
        for lr in (1, 1.0)
        for mode in ("1", True)
    }
    assert {text for text, _ in desk.counted()} == expected
    assert [trial.params["opt.lr"] for trial in desk.trials()] == [1, 1, 1.0, 1.0]


def test_other_fixed_values_are_refused_as_long_as_a_trial_with_the_old_ones_is_unfinished(desk: Desk) -> None:
    """CLEAR: no worker would run it, so it is said before one is started, with both ways out."""
    desk.script()
    old: dict[str, Any] = {"base": {"steps": 30, "pause_s": 0.02}, "n_trials": 2}
    kill_at(desk, desk.start("python", "search.py", _json(**old)), steps=5)
    new = old | {"base": {"steps": 3}}
    refused = desk.sweep(**new)
    assert refused.status == 1
    assert "base (or identity.version)" in refused.stderr
    assert "sweeper cancel mine 0" in refused.stderr
    assert desk.run("sweeper", "cancel", "mine", "0").status == 0
    ended = desk.sweep(**new)
    assert len(result_of(ended)["values"]) == 2
    assert "trial 0 began with other values than base" in ended.stderr
    assert [trial.state for trial in desk.trials()] == [TrialState.CANCELLED, TrialState.COMPLETED]


def test_a_failing_function_fails_its_trials_and_says_how(desk: Desk) -> None:
    """CLEAR; the call still gives its result."""
    prolog = (
        "def fails(config):\n    if config['x'] == 1:\n        raise ValueError('bad idea')\n    return config['x']\n"
    )
    desk.script(prolog=prolog, objective="fails", space='{"x": [0, 1, 2]}')
    ended = desk.sweep(sampler="grid", retry={"max_crashes": 1})
    assert result_of(ended)["values"] == [0.0, None, 2.0]
    assert "bad idea" in ended.stderr
    assert "sweeper retry mine" in ended.stderr


def test_a_search_whose_function_returns_nothing_ends_at_once_with_an_error(desk: Desk) -> None:
    """OP-07."""
    desk.script(prolog="def forgot(config):\n    config['x'] * 2\n", objective="forgot")
    ended = desk.sweep(n_trials=10)
    assert ended.status == 1
    assert "SweepFailed" in ended.stderr
    assert "return" in ended.stderr
    assert len(desk.trials()) == 1


@pytest.mark.parametrize(
    ("second", "told"),
    [
        ({"direction": "maximize"}, "direction"),
        ({"space": {"x": [0.0, 1.0]}}, "x was"),
    ],
)
def test_a_search_that_is_another_one_is_refused_by_name(desk: Desk, second: dict[str, Any], told: str) -> None:
    """OP-06, CLEAR."""
    space = second.pop("space", None)
    desk.script()
    desk.sweep(n_trials=1)
    desk.script(space='{"x": sweeper.Float(0, 1)}' if space is None else repr(space["x"]).join(("{'x': ", "}")))
    ended = desk.sweep(n_trials=1, **second)
    assert ended.status == 1
    assert "UserError" in ended.stderr
    assert told in ended.stderr


def _json(**keywords: Any) -> str:
    return json.dumps(keywords)
