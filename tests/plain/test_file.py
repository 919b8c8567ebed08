"""A sweep's file: the same words as `sweeper.sweep`, and one message with its place for whatever is wrong (CLEAR)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from sweeper.errors import UserError
from sweeper.plain.file import read_file, request_from_file
from sweeper.plain.space import Choice, Float, Int

MINIMAL = """\
objective: plainly:train
name: mine
space:
  lr: {low: 1e-5, high: 1e-1, log: true}
"""
FULL = """\
# every key
objective: plainly:train
name: everything
n_trials: 7
direction: maximize
sampler: {kind: tpe, n_startup_trials: 3}
pruner: median
space:
  lr: {low: 1e-5, high: 1e-1, log: true}
  width: {low: 16, high: 128, step: 16}
  dropout: {low: 0, high: 0.5, step: 0.1}
  optimizer: [adam, sgd]
  layers: [[64], [64, 64]]
base:
  epochs: 3
  when: 2020-01-01
constraints: [latency_ms <= 20]
enqueue: [{lr: 0.01}]
stop: {value: 0.99, timeout_s: 60}
max_failure_rate: 0.5
deterministic: false
workers: 2
seed: 3
store: here
directory: ../there
retry: {max_crashes: 1}
checkpoint: {every_s: 1}
identity: {version: v2, ignore: [epochs]}
"""


def written(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plainly.py").write_text("def train(config):\n    return config['lr']\n")
    path = folder / "sweep.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_bounds_are_mappings_and_choices_are_lists(tmp_path: Path) -> None:
    _, given = read_file(written(tmp_path, FULL))
    assert given["space"] == {
        "lr": Float(1e-5, 1e-1, log=True),
        "width": Int(16, 128, step=16),
        "dropout": Float(0, 0.5, step=0.1),
        "optimizer": Choice(["adam", "sgd"]),
        "layers": Choice([[64], [64, 64]]),
    }
    assert given["base"] == {"epochs": 3, "when": "2020-01-01"}


def test_a_whole_file_is_a_whole_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPER_HOME", str(tmp_path / "home"))
    request = request_from_file(written(tmp_path / "folder", FULL))
    spec = request.plan.spec
    assert (request.name, spec.n_trials, [d.value for d in spec.directions]) == ("everything", 7, ["maximize"])
    assert spec.sampler == {
        "_target_": "optuna.samplers.TPESampler",
        "constant_liar": True,
        "n_startup_trials": 3,
    }
    assert spec.pruner == {"_target_": "optuna.pruners.MedianPruner"}
    assert (request.plan.limits.value, request.plan.limits.timeout_s) == (0.99, 60.0)
    assert request.plan.limits.max_failure_rate == 0.5
    assert request.plan.enqueue == ({"lr": 0.01},)
    assert spec.fixed == ('when="2020-01-01"',)
    assert request.function({"lr": 0.25}) == 0.25
    assert request.task.name == "plainly:train"


def test_relative_paths_count_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same file means the same, from wherever it is run."""
    path = written(tmp_path / "folder", FULL)
    monkeypatch.chdir(tmp_path)
    request = request_from_file(Path("folder/sweep.yaml"))
    assert request.settings.places.store_url == (path.parent / "here").as_uri()
    assert request.directory.resolve() == (tmp_path / "there").resolve()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no mapping"),
        ("- a\n", "holds no mapping"),
        ("a: [1\n", "sweep.yaml:2 is not plain YAML"),
        (MINIMAL + "name: other\n", "sweep.yaml:5 is not plain YAML: 'name' is there twice"),
        (MINIMAL + "a: !!python/object/apply:os.system [echo]\n", "sweep.yaml:5 is not plain YAML"),
        (MINIMAL + "1: 2\n", "not text"),
        (MINIMAL + "\n\nn_trial: 3\n", "sweep.yaml:7"),
        (MINIMAL + "n_trial: 3\n", "did you mean n_trials?"),
        ("objective: plainly:train\nname: x\n", "has no space"),
        (MINIMAL.replace("name: mine", "name:"), "has no name"),
        (MINIMAL.replace("plainly:train", "plainly.train"), "package.module:function"),
        (MINIMAL.replace("plainly:train", "plainly:test"), "plainly has no test"),
        (MINIMAL.replace("plainly:train", "plainlys:train"), "no module plainlys"),
        (MINIMAL.replace("log", "logarithmic"), "'logarithmic' among the bounds of the parameter 'lr'"),
        (MINIMAL.replace("{low: 1e-5, high: 1e-1, log: true}", "0.1"), "belongs into base"),
        (MINIMAL.replace("{low: 1e-5, high: 1e-1, log: true}", "{low: 1, high: a}"), "high='a'"),
        (MINIMAL.replace("{low: 1e-5, high: 1e-1, log: true}", "{low: 1.5, high: 1}"), "from 1.5 to 1"),
        (MINIMAL + "n_trials: 0\n", "n_trials is 0"),
        (MINIMAL + "n_trials: ten\n", "n_trials is 'ten'"),
        (MINIMAL + "direction: up\n", "direction is 'up'"),
        (MINIMAL + "direction: []\n", "direction"),
        (MINIMAL + "sampler: tpee\n", "did you mean tpe?"),
        (MINIMAL + "sampler: {n_startup_trials: 3}\n", "sampler.kind"),
        (MINIMAL + "sampler: {kind: tpe, seed: 3}\n", "sampler.seed"),
        (MINIMAL + "scheduler: ashaa\n", "scheduler.kind"),
        (MINIMAL + "scheduler: {kind: asha, most: 3}\n", "no setting of asha"),
        (MINIMAL + "direction: [minimize, minimize]\nscheduler: asha\n", "objectives"),
        (MINIMAL + "constraints: [latency]\n", "latency"),
        (MINIMAL + "constraints: latency <= 3\n", "list"),
        (MINIMAL + "enqueue: [{learning_rate: 1}]\n", "'learning_rate' in the space"),
        (MINIMAL + "enqueue: {lr: 1}\n", "list of mappings"),
        (MINIMAL + "stop: 3\n", "stop is 3"),
        (MINIMAL + "stop: {timeout: 3}\n", "did you mean timeout_s?"),
        (MINIMAL + "stop: {timeout_s: 0}\n", "above 0"),
        (MINIMAL + "max_failure_rate: 2\n", "from 0 to 1"),
        (MINIMAL + "deterministic: 1\n", "true or false"),
        (MINIMAL + "workers: 0\n", "workers=0"),
        (MINIMAL + "base: 3\n", "base is 3"),
        (MINIMAL + "base: {lr: {x: 1}}\nidentity: {versions: 1}\n", "'versions' in identity"),
        (MINIMAL + "base: {a.b: 1}\n", "'a.b'"),
        (MINIMAL.replace("lr:", "lr.x:") + "base: {lr: 1}\n", "lies inside 'lr', which is 1"),
    ],
)
def test_bad_input_is_told_with_its_place(tmp_path: Path, text: str, told: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    with pytest.raises(UserError) as refused:
        request_from_file(written(tmp_path, text))
    assert told in str(refused.value)
    assert "sweep.yaml" in str(refused.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.yaml cannot be read: No such file"):
        read_file(tmp_path / "nowhere.yaml")
