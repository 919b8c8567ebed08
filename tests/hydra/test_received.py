"""TRUTH: dimensions are in the types that the config declares, so what is recorded is what the job received."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Optional, Union

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from sweeper.errors import UserError
from sweeper.hydra.received import as_received, check_received
from sweeper.hydra.search_arguments import SearchArguments, grid_size, read_arguments
from sweeper.hydra.space_syntax import SweptReader
from sweeper.model.space import Choices, Dimension, FloatRange, IntRange
from sweeper.model.tagged import to_tagged

PARSER = OverridesParser.create()


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclass
class Inner:
    lr: float = 0.1


@dataclass
class Config:
    f: float = 0.0
    n: int = 0
    s: str = ""
    b: bool = False
    o: Optional[float] = None  # noqa: UP045 OmegaConf reads the annotation
    u: Union[int, str] = 0  # noqa: UP007
    c: Colour = Colour.RED
    p: Path = Path()
    a: Any = None
    lf: list[float] = field(default_factory=list)
    la: list[Any] = field(default_factory=list)
    d: dict[str, float] = field(default_factory=dict)
    m: Inner = field(default_factory=Inner)


CONFIG: DictConfig = OmegaConf.structured(Config)


def received(*lines: str) -> SearchArguments:
    reader = SweptReader(seed=0, grid=False, parse=PARSER.parse_override, options=lambda _: [])
    arguments = read_arguments([], lines, reader=reader, parse=PARSER.parse_override, seed=0)
    return as_received(arguments, CONFIG, is_group=lambda name: name == "group")


def choices(*values: object) -> Choices:
    return Choices(values=tuple(to_tagged(value) for value in values))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("f=1,10", choices(1.0, 10.0)),
        ("f='1',2.5", choices(1.0, 2.5)),
        ("f=nan,inf", choices(float("nan"), float("inf"))),
        ("m.lr=1,0.5", choices(1.0, 0.5)),
        ("n='3',4", choices(3, 4)),
        ("s=1,true,x", choices("1", "True", "x")),
        ("b=0,'true'", choices(False, True)),
        ("o=null,1", choices(None, 1.0)),
        ("u=1,'1'", choices(1, "1")),
        ("c=RED,2", choices("RED", "BLUE")),
        ("p=x/y,z", choices("x/y", "z")),
        ("a=1,1.0,'1',true,null", choices(1, 1.0, "1", True, None)),
        ("lf=[1,2],[3]", choices([1.0, 2.0], [3.0])),
        ("la=[1,2],[3.0]", choices([1, 2], [3.0])),
        ("d={x:1},{x:2}", choices({"x": 1}, {"x": 2})),
        ("f=${n},2", choices("${n}", 2.0)),
        ("+new.key=1,'1'", choices(1, "1")),
        ("group=1,2", choices(1, 2)),
        ("f=interval(0,1)", FloatRange(low=0.0, high=1.0)),
        ("f=range(0,4)", FloatRange(low=0.0, high=4.0, step=1.0)),
        ("f=int(interval(0,4))", FloatRange(low=0.0, high=4.0, step=1.0)),
        ("n=range(0,4)", IntRange(low=0, high=4)),
        ("a=range(0,4)", IntRange(low=0, high=4)),
    ],
)  # fmt: skip
def test_a_dimension_becomes_what_the_config_makes_of_it(line: str, expected: Dimension) -> None:
    (found,) = received(line).space.values()
    assert found == expected


def test_the_users_own_text_is_still_what_is_emitted() -> None:
    arguments = received("f=1,10", "c=RED,2")
    assert arguments.overrides({"f": 10.0, "c": "BLUE"}) == ["f=10", "c=2"]


def test_choices_that_the_config_makes_equal_count_once() -> None:
    arguments = received("f=1,1.0,2")
    assert arguments.space["f"] == choices(1.0, 2.0)
    assert arguments.notices == ("f: 1.0 is the same as another choice once the config takes it",)


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("f=1,abc", "f=abc"),
        ("n=null,1", "n=null"),
        ("c=RED,GREEN", "c=GREEN"),
        ("s=interval(0,1)", "'0.0'"),
        ("b=range(0,1)", "False"),
        ("f=tag(log,int(interval(1,8)))", "1.0"),
    ],
)
def test_what_the_config_cannot_take_is_refused(line: str, part: str) -> None:
    """CLEAR: before the first row."""
    with pytest.raises(UserError, match=part):
        received(line)


def test_where_a_group_may_declare_another_type_it_is_left_to_the_proposal() -> None:
    assert received("group=x,y", "f=1,abc").space["f"] == choices(1.0, "abc")


def test_a_proposal_that_arrives_as_something_else_is_refused() -> None:
    check_received(
        {"a": 1, "b": [1], "c": "${x}", "d": {"$float": "nan"}}, {"a": 1, "b": [1.0], "c": 5, "d": {"$float": "nan"}}
    )
    with pytest.raises(UserError, match=r"a was proposed as 1, and the config makes 1\.0 of it"):
        check_received({"a": 1}, {"a": 1.0})


def test_the_size_of_a_grid() -> None:
    assert grid_size(received("a=1,2", "n=range(0,9,3)", "f=range(0,1,0.25)").space) == 2 * 4 * 5
