"""Fast copies of configs equal deep copies, node by node."""

from __future__ import annotations

import copy
import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.base import Node

from sweeper.hydra.cloning import clone
from tests.hydra.composing import Application


class Color(enum.Enum):
    RED = 1


@dataclass
class Inner:
    value: int | str = 3
    maybe: float | None = None


@dataclass
class Typed:
    count: int = 1
    color: Color = Color.RED
    path: Path = Path("/x")
    raw: bytes = b"x"
    inner: Inner = field(default_factory=Inner)
    table: dict[str, Inner] = field(default_factory=lambda: {"a": Inner()})
    items: list[int] = field(default_factory=lambda: [1, 2])
    missing: str = "???"
    reference: str = "${path}"


def same(left: Any, right: Any, path: str = "") -> None:
    assert type(left) is type(right), path
    if not isinstance(left, Node):
        assert left == right, path
        return
    assert left._metadata == right._metadata, path
    assert left._metadata is not right._metadata
    mine, theirs = left.__dict__.get("_content", left.__dict__.get("_val")), None
    theirs = right.__dict__.get("_content", right.__dict__.get("_val"))
    if isinstance(mine, dict):
        assert list(mine) == list(theirs)
        for key, child in mine.items():
            assert child._get_parent() is left, path
            same(child, theirs[key], f"{path}.{key}")
    elif isinstance(mine, list):
        assert len(mine) == len(theirs)
        for index, child in enumerate(mine):
            assert child._get_parent() is left
            same(child, theirs[index], f"{path}[{index}]")
    else:
        same(mine, theirs, path)


def test_a_clone_equals_a_deep_copy(application: Application) -> None:
    configs = [application.master("lr=1,2"), OmegaConf.structured(Typed), OmegaConf.create({"a": [1, {"b": None}]})]
    OmegaConf.set_readonly(configs[2], True)
    odd = OmegaConf.create({"o": 1}, flags={"allow_objects": True})
    odd.o = {1, 2}
    for config in (*configs, odd):
        same(clone(config), copy.deepcopy(config))


def test_a_clone_is_independent(application: Application) -> None:
    config = application.master()
    made = clone(config)
    made.nested.a = 9
    made.nested.b.append(3)
    with open_dict(made):
        made.new = 1
    assert config.nested == {"a": 1, "b": [1, 2]}
    assert "new" not in config
    assert made.ref == config.lr
    made.lr = 5
    assert made.ref == 5


def test_only_some_keys(application: Application) -> None:
    config = application.master()
    task = clone(config, keep=lambda key: key != "hydra")
    assert "hydra" not in task
    assert "hydra" in config
    assert isinstance(task, DictConfig)
    assert isinstance(task.nested.b, ListConfig)
    assert list(clone(config, keep=lambda key: key == "hydra")) == ["hydra"]
