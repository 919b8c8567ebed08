"""Configs from fixed values and parameters: the same identity as everywhere, and the same config again in a child."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sweeper
from sweeper.errors import UserError
from sweeper.model.config_hash import hash_text
from sweeper.plain.config import Configs, check_places, check_secrets, override_line, read_overrides
from sweeper.plain.space import read_space
from sweeper.settings import IdentitySettings, Places

BASE: dict[str, Any] = {
    "epochs": 3,
    "optimizer": {"lr": 0.1, "betas": [0.9, 0.999]},
    "layers": [{"width": 8, "name": "first"}, {"width": 16, "name": "second"}],
    "nothing": None,
    "empty": {},
}


def configs(base: Any = BASE, **identity: Any) -> Configs:
    return Configs(base, IdentitySettings(**identity))


@pytest.mark.parametrize(
    "base",
    [
        {},
        BASE,
        {"a": 1, "b": 1.0, "c": True, "d": "1"},
        {"x": float("nan"), "y": -0.0, "z": 2**70},
        {"keys": {1: "one", "$tagged": "no"}},
        {"path": Path("a/b"), "pair": (1, 2)},
        {"text": "é ☃ \\ ' \" ="},
    ],
)
def test_a_config_has_the_hash_that_the_public_function_gives_it(base: Any) -> None:
    """The same rules, without Hydra."""
    made = configs(base, version="v1").identify({"added.inner": 0.5})
    config = configs(base).build({"added.inner": 0.5})
    assert made.config_hash == sweeper.config_hash(config, version="v1")
    assert made.config_hash == hash_text(made.config_text)


def test_text_with_a_dollar_brace_is_text_here() -> None:
    """Interpolation is Hydra's; nothing is resolved here."""
    assert configs({"a": "${b}"}).build({}) == {"a": "${b}"}
    assert configs({"a": "???"}).identify({}).config_text == '{"config":{"a":"???"},"format":1,"version":null}'


@pytest.mark.parametrize("ignored", ["optimizer.lr", "layers[0].name", "layers[1]", "nothing", "epochs"])
def test_what_is_left_out_of_the_identity_is_the_same_as_everywhere(ignored: str) -> None:
    made = configs(ignore=(ignored,)).identify({})
    assert made.config_hash == sweeper.config_hash(BASE, ignore=[ignored])
    assert made.config_hash != sweeper.config_hash(BASE)


def test_dots_lead_to_nested_keys_and_make_them_where_there_are_none() -> None:
    config = configs().build({"optimizer.lr": 0.3, "new.deep.key": "x", "epochs": 5})
    assert config["optimizer"] == {"lr": 0.3, "betas": [0.9, 0.999]}
    assert config["new"] == {"deep": {"key": "x"}}
    assert config["epochs"] == 5
    assert BASE["optimizer"]["lr"] == 0.1


def test_a_trial_cannot_change_what_the_next_one_gets() -> None:
    made = configs()
    made.build({})["layers"][0]["width"] = 99
    assert made.build({})["layers"][0]["width"] == 8


@pytest.mark.parametrize(
    "value", [None, True, 1, 1.0, float("nan"), -0.0, 2**70, "", "a=b", "é\n", [1, "2"], {"a": [None]}, {1: 2}, (1,)]
)
def test_a_parameter_comes_back_from_its_stored_line_value_and_type(value: Any) -> None:
    """TRUTH."""
    (dimension,) = read_space({"x.y": [value]}).values()
    tagged = dimension.values[0]  # type: ignore[union-attr]
    line = override_line("x.y", tagged)
    built = configs({}).build(read_overrides([line]))["x"]["y"]
    assert repr(built) == repr(value)


def test_the_ledger_gets_typed_parameters_and_one_line_for_each() -> None:
    made = configs().identify({"optimizer.lr": 0.01, "name": "adam", "layers": [{"width": 1}]})
    assert made.overrides == ("optimizer.lr=0.01", 'name="adam"', 'layers=[{"width":1}]')
    assert made.params == {"optimizer.lr": 0.01, "name": "adam", "layers": [{"width": 1}]}


def test_fixed_values_are_told_one_by_one() -> None:
    lines = configs({"a": {"b": 1, "c": {}}, "d": [1], "secret": "s"}, ignore=("secret",)).fixed_lines()
    assert lines == ("a.b=1", "a.c={}", "d=[1]")


@pytest.mark.parametrize(
    ("base", "space", "told"),
    [
        ({"a": 1}, {"a.b": [1]}, "'a', which is 1"),
        ({"a": {"b": [1]}}, {"a.b.c": [1]}, "'a.b', which is"),
        ({}, {"a": sweeper.Float(0, 1), "a.b": [1]}, "not always a mapping"),
        ({}, {"a": [{"b": 1}, None], "a.b": [1]}, "not always a mapping"),
        ({}, {"a.b": [1], "a": [{"b": 1}]}, "name 'a' first"),
    ],
)
def test_parameters_that_have_no_place_are_refused_before_any_trial(base: Any, space: Any, told: str) -> None:
    """CLEAR."""
    with pytest.raises(UserError, match="a") as refused:
        check_places(configs(base), read_space(space))
    assert told in str(refused.value)


def test_a_parameter_inside_a_chosen_mapping_is_put_there() -> None:
    made = configs({})
    space = read_space({"opt": [{"name": "adam"}, {"name": "sgd"}], "opt.lr": sweeper.Float(0, 1)})
    check_places(made, space)
    assert made.build({"opt": {"name": "sgd"}, "opt.lr": 0.5}) == {"opt": {"name": "sgd", "lr": 0.5}}


@pytest.mark.parametrize("base", [{"a.b": 1}, {1: 2}])
def test_keys_at_the_top_are_text_without_dots(base: Any) -> None:
    with pytest.raises(UserError, match="base has the key"):
        configs(base)


def test_an_object_in_the_config_is_refused_naming_its_key_and_the_way_out() -> None:
    with pytest.raises(UserError, match=r"optimizer\.hook.*") as refused:
        configs({"optimizer": {"hook": print}}).identify({})
    assert "hydra" not in str(refused.value)
    assert "identity" in str(refused.value)


def test_a_config_that_spells_out_our_password_is_refused_without_repeating_it() -> None:
    """SAFE."""
    url = "postgresql://me:secret@db/x"
    places = Places(home=Path("/h"), database_url=url, store_url="file:///s")
    text = configs({"url": url}).identify({}).config_text
    with pytest.raises(UserError, match="password") as refused:
        check_secrets([text], places)
    assert "secret" not in str(refused.value)
    check_secrets([configs({"url": "other"}).identify({}).config_text], places)
