"""The search space from Hydra's override grammar: what each form means, and that every value comes back exactly."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from sweeper.errors import UserError
from sweeper.hydra.grammar import allow_null_choices
from sweeper.hydra.search_arguments import SearchArguments, read_arguments
from sweeper.hydra.search_params import params_lines, refuse_old_space
from sweeper.hydra.space_syntax import SweptReader
from sweeper.hydra.value_texts import value_text
from sweeper.model.space import Choices, Dimension, FloatRange, IntRange
from sweeper.model.tagged import from_tagged, to_tagged

allow_null_choices()
PARSER = OverridesParser.create()


def read(*task: str, params: object = None, grid: bool = False, seed: int = 0) -> SearchArguments:
    parse = PARSER.parse_override
    reader = SweptReader(seed=seed, grid=grid, parse=parse, options=lambda group: ["adam", "adamw", "sgd"])
    return read_arguments(params_lines(params, parse), task, reader=reader, parse=parse, seed=seed)


def dimension(line: str, *, grid: bool = False) -> Dimension:
    (found,) = read(line, grid=grid).space.values()
    return found


def choices(*values: object) -> Choices:
    return Choices(values=tuple(to_tagged(value) for value in values))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # the Optuna plugin's own examples
        ("key=choice(1,2)", choices(1, 2)),
        ("key=choice(true, false)", choices(True, False)),
        ("key=choice('hello', 'world')", choices("hello", "world")),
        ("key=range(1,3)", IntRange(low=1, high=3)),
        ("key=interval(1, 5)", FloatRange(low=1.0, high=5.0)),
        ("key=int(interval(1, 5))", IntRange(low=1, high=5)),
        ("key=tag(log, interval(1, 5))", FloatRange(low=1.0, high=5.0, log=True)),
        ("key=tag(log, int(interval(1, 5)))", IntRange(low=1, high=5, log=True)),
        ("key=range(0.5, 5.5, step=1)", FloatRange(low=0.5, high=5.5, step=1.0)),
        # intervals
        ("key=interval(-1e-3,1e3)", FloatRange(low=-0.001, high=1000.0)),
        ("key=tag(int,interval(1,5))", IntRange(low=1, high=5)),
        ("key=tag(int,interval(0.5,5.5))", IntRange(low=0, high=5)),
        ("key=tag(log,int,interval(1,5))", IntRange(low=1, high=5, log=True)),
        ("key=tag(log,tag(int,interval(1,5)))", IntRange(low=1, high=5, log=True)),
        ("key=int(tag(log,interval(1,5)))", IntRange(low=1, high=5, log=True)),
        ("key=float(interval(1,5))", FloatRange(low=1.0, high=5.0)),
        ("key=interval(2,2)", FloatRange(low=2.0, high=2.0)),
        # ranges: the end is included where the step reaches it
        ("key=range(4)", IntRange(low=0, high=4)),
        ("key=range(1,10,4)", IntRange(low=1, high=9, step=4)),
        ("key=range(1,12,step=4)", IntRange(low=1, high=9, step=4)),
        ("key=range(0,1,0.1)", FloatRange(low=0.0, high=1.0, step=0.1)),
        ("key=range(-5.5,5.5,step=0.5)", FloatRange(low=-5.5, high=5.5, step=0.5)),
        ("key=range(0,1,0.3)", FloatRange(low=0.0, high=0.9, step=0.3)),
        ("key=float(range(1,4))", FloatRange(low=1.0, high=4.0, step=1.0)),
        ("key=int(range(1.0,4.0))", IntRange(low=1, high=4)),
        ("key=tag(int,range(1.0,4.0))", IntRange(low=1, high=4)),
        ("key=tag(log,range(1,64))", IntRange(low=1, high=64, log=True)),
        ("key=range(3,3)", IntRange(low=3, high=3)),
        # … but not where Hydra's own order of values was asked for
        ("key=range(5,1,-1)", IntRange(low=2, high=5)),
        ("key=range(1,0,-0.25)", FloatRange(low=0.25, high=1.0, step=0.25)),
        ("key=sort(range(1,4))", IntRange(low=1, high=3)),
        ("key=sort(range(1,4),reverse=true)", IntRange(low=1, high=3)),
        ("key=sort(range(5,1,-1))", IntRange(low=2, high=5)),
        # choices
        ("key=a,b,c", choices("a", "b", "c")),
        ("key=choice(a)", choices("a")),
        ("key=1,1.0,true,'1'", choices(1, 1.0, True, "1")),
        ("key=1e-3,0.1,inf,-inf", choices(0.001, 0.1, float("inf"), float("-inf"))),
        ("key=sort(3,1,2)", choices(1, 2, 3)),
        ("key=sort(choice(b,a),reverse=true)", choices("b", "a")),
        ("key=int(1.7,'2')", choices(1, 2)),
        ("key=float(1,2)", choices(1.0, 2.0)),
        ("key=float(choice(1,2))", choices(1.0, 2.0)),
        ("key=str(1,true,1.50)", choices("1", "true", "1.5")),
        ("key=bool(0,'true')", choices(False, True)),
        ("key=[1,2],[3],[]", choices([1, 2], [3], [])),
        ("key=choice([1,'2'],[])", choices([1, "2"], [])),
        ("key={a:1},{b:2}", choices({"a": 1}, {"b": 2})),
        ("key=choice({a:{b:'null'}},{})", choices({"a": {"b": "null"}}, {})),
        ("key='李明','ö'", choices("李明", "ö")),
        ("key=${other},1", choices("${other}", 1)),
        ("key=glob(*)", choices("adam", "adamw", "sgd")),
        ("key=glob([ada*,s*],exclude=*w)", choices("adam", "sgd")),
        # null, in both spellings, and the word (OP-08)
        ("key=choice(a,null)", choices("a", None)),
        ("key=a,null", choices("a", None)),
        ("key=a,'null'", choices("a", "null")),
        ("key=choice('null',null)", choices("null", None)),
    ],
)  # fmt: skip
def test_a_dimension(line: str, expected: Dimension) -> None:
    assert dimension(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("key=range(1,3)", IntRange(low=1, high=2)),
        ("key=range(1,10,4)", IntRange(low=1, high=9, step=4)),
        ("key=range(1,9,4)", IntRange(low=1, high=5, step=4)),
        ("key=range(0,1,0.1)", FloatRange(low=0.0, high=0.9, step=0.1)),
        ("key=range(0,0.9,0.3)", FloatRange(low=0.0, high=0.6, step=0.3)),
        ("key=range(3,0,-1)", choices(3, 2, 1)),
        ("key=sort(range(1,4),reverse=true)", choices(3, 2, 1)),
        ("key=2,1", choices(2, 1)),
    ],
)
def test_a_grid_has_exactly_hydras_values(line: str, expected: Dimension) -> None:
    assert dimension(line, grid=True) == expected


def test_shuffled_values_are_hydras_in_an_order_of_the_sweeps_seed() -> None:
    """SAME: the command given again finds the same order, and other code's random numbers are left alone."""
    random.seed(1)
    expected = random.random()
    random.seed(1)
    lines = ("a=shuffle(range(1,9))", "b=shuffle(1,2,3,4,5,6)", "c=shuffle([1,2,3,4,5,6])", "d=shuffle(choice(x,null))")
    first, second = read(*lines, seed=3), read(*lines, seed=3)
    assert random.random() == expected
    assert (first.space, first.fixed) == (second.space, second.fixed)
    assert read(*lines, seed=4).space != first.space
    ranged = first.space["a"]
    assert isinstance(ranged, Choices)
    assert sorted(ranged.values, key=repr) == [1, 2, 3, 4, 5, 6, 7, 8]
    (fixed,) = first.fixed
    assert sorted(PARSER.parse_override(fixed).value()) == [1, 2, 3, 4, 5, 6]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("x=interval(5,1)", "empty"),
        ("x=interval(0,inf)", "inf"),
        ("x=interval(nan,1)", "nan"),
        ("x=tag(log,interval(0,1))", "above 0"),
        ("x=tag(log,int(interval(0,5)))", "above 0"),
        ("x=tag(log,range(1,9,2))", "step"),
        ("x=tag(log,range(1.0,9.0))", "log"),
        ("x=range(5,1)", "empty"),
        ("x=range(1,5,-1)", "empty"),
        ("x=range(1,5,0)", "step"),
        ("x=tag(int,range(0.5,4.5))", "0.5"),
        ("x=int(interval(0,1e300))", "tell apart"),
        ("x=shuffle(range(0,1000000))", "10000"),
        ("x=glob(z*)", "no config in group 'x'"),
        ("~x=1,2", "deletion"),
        ("hydra.job.chdir=true,false", "Hydra's own settings"),
        (f"{'p' * 513}=1,2", "513"),
        (f"{'p' * 600}=1", "600"),
        ("x=choice(", "cannot be read"),
    ],
)
def test_what_cannot_be_searched_is_refused_by_name(line: str, part: str) -> None:
    """CLEAR, OP-14."""
    with pytest.raises(UserError, match=part) as refused:
        read(line)
    assert line.split("=")[0][:60] in str(refused.value)


@pytest.mark.parametrize(
    "line",
    [
        "c=choice(a,null)",
        "c=a,null",
        "c=a,'null'",
        "c='a,b','c=d'",
        "c='it\\'s','','trailing '",
        'c="it\'s","say \\"x\\""',
        "c=[1,2],[3]",
        "c={a:1},{b:2}",
        "c=choice('it\\'s','',' leading','trailing ','null','1','true','1.0',1,true,1.0,null)",
        "c=choice('a\\\\','b\\\\\\'c')",
        "c=1,1.0,true,-0.0,1e16,1e-7,123456789012345678901234567890",
        "c='${x}',${x}",
        "c='李明','\t','a\nb'",
        "c=[{a:'null'},[null,'1',1]],x",
    ],
)
def test_an_emitted_choice_is_read_back_as_exactly_that_value(line: str) -> None:
    """TRUTH, OP-08: value and type, byte for byte."""
    arguments = read(line)
    (found,) = arguments.space.values()
    assert isinstance(found, Choices)
    for value in found.values:
        (override,) = arguments.overrides({"c": value})
        assert to_tagged(PARSER.parse_override(override).value()) == value
        assert repr(PARSER.parse_override(override).value()) == repr(from_tagged(value))


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("group1=file1,file2", ["group1=file1", "group1=file2"]),
        ("bar=100,200", ["bar=100", "bar=200"]),
        ("db@src=mysql,pg", ["db@src=mysql", "db@src=pg"]),
        ("+a=0,1", ["+a=0", "+a=1"]),
        ("++a.b=x,null", ["++a.b=x", "++a.b=null"]),
        ("c='a,b',x", ["c='a,b'", "c=x"]),
        ("c=choice('a b',x)", ["c=a\\ b", "c=x"]),
    ],
)
def test_choices_are_emitted_as_the_user_wrote_them(line: str, texts: list[str]) -> None:
    arguments = read(line)
    ((name, found),) = arguments.space.items()
    assert isinstance(found, Choices)
    assert not name.startswith("+"), "the prefix says how to write the override, not which parameter it is"
    assert [arguments.overrides({name: value}) for value in found.values] == [[text] for text in texts]


@pytest.mark.parametrize("value", [0.1, 1.0, -0.0, 1e-7, 1e22, 5e-324, 123456789.123456789, 3])
def test_a_drawn_number_is_read_back_to_the_last_bit(value: float) -> None:
    arguments = read("lr=int(interval(0,9))" if isinstance(value, int) else "lr=interval(-1,1e23)")
    (override,) = arguments.overrides({"lr": value})
    assert repr(PARSER.parse_override(override).value()) == repr(value)


def test_a_float_range_gives_floats_also_where_a_value_is_whole() -> None:
    assert read("x=interval(0,2)").overrides({"x": 1}) == ["x=1.0"]
    assert read("x=interval(0,2)").first() == {"x": 0.0}


def test_fixed_values_keep_their_place_and_text() -> None:
    arguments = read("a=1e-3", "b=1,2", "~d", "+e=[x,'y']", "f='q'", "g=")
    assert arguments.fixed == ("a=1e-3", "~d", "+e=[x,'y']", "f='q'", "g=")
    assert arguments.overrides({"b": 2}) == ["a=1e-3", "b=2", "~d", "+e=[x,'y']", "f='q'", "g="]
    assert arguments.overrides({}) == ["a=1e-3", "~d", "+e=[x,'y']", "f='q'", "g="], "what is absent gets no override"


def test_parameters_that_a_function_added_come_last() -> None:
    arguments = read("b=1,2")
    assert arguments.overrides({"b": 1, "w": 0.5, "z": "null"}, {"w": "+w"}) == ["b=1", "+w=0.5", "++z='null'"]


def test_the_command_line_wins_over_the_config() -> None:
    params = {"x": "interval(0,1)", "y": "choice(-5,0,5)", "z": "1,2", "+w": "a,b"}
    arguments = read("y=0", "~z", "w=c,d", "v=1,2", params=params)
    assert list(arguments.space) == ["x", "w", "v"]
    assert arguments.fixed == ("y=0", "~z")
    assert arguments.overrides({"x": 0.5, "w": "d", "v": 1}) == ["x=0.5", "y=0", "~z", "w=d", "v=1"]


@pytest.mark.parametrize(
    ("params", "lines"),
    [
        (None, []),
        ({}, []),
        ({"x": "interval(0,1)", "y": 5, "z": 0.5, "b": True}, ["x=interval(0,1)", "y=5", "z=0.5", "b=true"]),
        ({"n": None, "l": [1, "a,b", None], "~gone": None}, ["n=null", "l=[1,a\\,b,null]", "~gone"]),
        ({"m": {"lr": "1,2", "opt": {"beta": 0.9}}, "empty": {}}, ["m.lr=1,2", "m.opt.beta=0.9", "empty={}"]),
        ({"+a": {"b": "x,y"}}, ["+a.b=x,y"]),
    ],
)  # fmt: skip
def test_params_in_any_kind_of_yaml(params: object, lines: list[str]) -> None:
    assert params_lines(params, PARSER.parse_override) == lines


@pytest.mark.parametrize(
    ("entry", "today"),
    [
        ({"type": "float", "low": -5.5, "high": 5.5, "step": 0.5}, "range(-5.5,5.5,step=0.5)"),
        ({"type": "float", "low": 0.1, "high": 1, "log": True}, "tag(log,interval(0.1,1))"),
        ({"type": "int", "low": 1, "high": 4}, "int(interval(1,4))"),
        ({"type": "categorical", "choices": [1, "a"]}, "choice(1,a)"),
    ],
)
def test_the_plugins_former_search_space_gets_a_message(entry: dict[str, Any], today: str) -> None:
    for call in (lambda: refuse_old_space({"x": entry}), lambda: params_lines({"x": entry}, PARSER.parse_override)):
        with pytest.raises(UserError) as refused:
            call()
        assert f"x: {today}" in str(refused.value)


def test_a_choice_given_twice_counts_once_and_is_told() -> None:
    arguments = read("x=1,2,1,1.0")
    assert arguments.space["x"] == choices(1, 2, 1.0)
    (notice,) = arguments.notices
    assert notice == "x: 1 is given more than once and counts once"


@pytest.mark.parametrize("line", ["x=tag(lgo,interval(1,5))", "x=tag(log,choice(1,2))"])
def test_a_tag_without_effect_is_told(line: str) -> None:
    (notice,) = read(line).notices
    assert "tag" in notice
    assert line in notice


def test_a_text_of_the_config_that_is_no_override_names_the_setting() -> None:
    with pytest.raises(UserError, match=r"hydra\.sweeper\.params.*x=choice\(ä,ö\)"):
        read(params={"x": "choice(ä,ö)"})


def test_a_value_that_the_grammar_cannot_write_is_refused() -> None:
    with pytest.raises(UserError, match="cannot be written"):
        value_text({"1": 2}, PARSER.parse_override)
