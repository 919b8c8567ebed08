"""Which config is the same config, on real OmegaConf configs."""

from __future__ import annotations

import enum
import itertools
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hydra.core.utils import setup_globals
from omegaconf import MISSING, DictConfig, OmegaConf

import sweeper
from sweeper.errors import UserError
from sweeper.hydra.compose import TemplateLoader
from sweeper.hydra.identity import canonical_text
from sweeper.hydra.jobs import identify
from sweeper.model.tagged import from_tagged
from sweeper.settings import IdentitySettings
from tests.hydra.composing import Application


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass
class Typed:
    x: float = 1.0
    color: Color = Color.RED
    path: Path = Path("/data")
    names: tuple[str, ...] = ("a", "b")
    sizes: dict[int, str] = field(default_factory=dict)


@pytest.fixture(autouse=True)
def _resolvers() -> Iterator[None]:
    setup_globals()
    yield
    OmegaConf.clear_resolvers()
    setup_globals()


def h(**values: Any) -> str:
    return sweeper.config_hash(OmegaConf.create(values))


def text(cfg: DictConfig | dict[str, Any], **settings: Any) -> str:
    return canonical_text(cfg, IdentitySettings(**settings))


def test_a_hash_is_64_hex_digits_and_the_same_for_a_mapping() -> None:
    values = {"a": 1, "b": {"c": [1, 2.0, None, "x"]}, "p": Path("/x"), "s": {"u", "v"}, "t": (1, 2)}
    digest = sweeper.config_hash(values)
    assert len(digest) == 64
    assert set(digest) <= set("0123456789abcdef")
    assert digest == sweeper.config_hash(OmegaConf.create(values, flags={"allow_objects": True}))


def test_types_count_unless_a_structured_config_declares_them() -> None:
    """CH-02: from the typed, composed value and never from the text."""
    assert len({h(x=1), h(x=1.0), h(x=True), h(x="1")}) == 4
    declared = [OmegaConf.merge(OmegaConf.structured(Typed), {"x": value}) for value in (1, 1.0, "1", "1e0")]
    assert len({sweeper.config_hash(cfg) for cfg in declared if isinstance(cfg, DictConfig)}) == 1
    with pytest.raises(ValueError):
        OmegaConf.merge(OmegaConf.structured(Typed), {"x": "on"})


def test_the_hydra_node_is_left_out() -> None:
    assert h(a=1, hydra={"job": {"num": 3}}) == h(a=1)


def test_structured_values_count_plainly() -> None:
    typed = OmegaConf.structured(Typed(sizes={3: "c"}))
    plain = {"x": 1.0, "color": "RED", "path": "/data", "names": ["a", "b"], "sizes": {3: "c"}}
    assert sweeper.config_hash(typed) == sweeper.config_hash(plain)


def test_ignored_keys_do_not_count_and_versions_do() -> None:
    cfg = {"a": 1, "log": {"dir": "/x", "level": 3}, "items": [{"k": 1}, {"k": 2}]}
    assert sweeper.config_hash(cfg, ignore=["log"]) == sweeper.config_hash({**cfg, "log": 5}, ignore=["log"])
    assert sweeper.config_hash(cfg, ignore=["log.dir"]) != sweeper.config_hash(cfg)
    assert sweeper.config_hash(cfg, ignore=["items[1].k"]) == sweeper.config_hash(
        {**cfg, "items": [{"k": 1}, {"k": 9}]}, ignore=["items[1].k"]
    )
    assert sweeper.config_hash(cfg, version="2") != sweeper.config_hash(cfg)


def test_interpolations_count_by_their_resolved_value() -> None:
    """CH-06."""
    assert h(fold=1, pre="ckpt/${fold}") == h(fold=1, pre="ckpt/1")
    assert h(fold=1, pre="ckpt/${fold}") != h(fold=2, pre="ckpt/${fold}")
    assert h(a={"x": 1}, b="${a}") == h(a={"x": 1}, b={"x": 1})
    assert h(n=3, m="${n}") == h(n=3, m=3), "a bare reference keeps the type"


def identity_probes() -> dict[str, str]:
    return {
        "oc.env": "${oc.env:PROBE}",
        "oc.env with default": "${oc.env:PROBE_UNSET,${oc.env:PROBE}}",
        "inside text": "x-${oc.env:PROBE}-y",
        "now": "${now:%Y%m%d%H%M%S%f}",
        "hydra resolver": "${hydra:job.num}",
        "reference": "${secret}",
        "reference to reference": "${indirect}",
        "oc.select": "${oc.select:secret}",
        "oc.decode": "${oc.decode:${oc.env:PROBE}}",
        "custom resolver": "${shout:${oc.env:PROBE}}",
        "custom resolver on a reference": "${shout:${secret}}",
        "custom resolver on a list": "${shout:[1,${secret}]}",
        "custom resolver on a mapping": "${shout:{a:${secret}}}",
        "custom resolver on a node": "${shout:${group}}",
        "custom resolver that reads the root": "${peek:}",
        "dict values": "${oc.dict.values:group}",
        "key made of it": "${table.${oc.env:PROBE}}",
        "random": "${random:}",
        "random, cached": "${cached:}",
        "counter": "${counter:}",
        "container": "${group}",
        "random container": "${bag:}",
    }


@pytest.mark.parametrize("name", identity_probes())
def test_what_depends_on_machine_or_moment_counts_by_expression_and_never_leaks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CH-06: identity by difference."""
    counter = itertools.count()
    OmegaConf.register_new_resolver("shout", lambda value: f"{value}!".upper(), replace=True)
    OmegaConf.register_new_resolver("peek", lambda *, _root_: f"<{_root_.secret}>", replace=True)
    OmegaConf.register_new_resolver("random", lambda: uuid.uuid4().hex, replace=True)
    OmegaConf.register_new_resolver("cached", lambda: uuid.uuid4().hex, use_cache=True, replace=True)
    OmegaConf.register_new_resolver("counter", lambda: next(counter), replace=True)
    OmegaConf.register_new_resolver("bag", lambda: {"id": uuid.uuid4().hex, "k": 1}, replace=True)

    def one(token: str) -> str:
        monkeypatch.setenv("PROBE", token)
        cfg = OmegaConf.create(
            {
                "secret": "${oc.env:PROBE}",
                "indirect": "${secret}",
                "group": {"token": "${secret}", "k": 1},
                "table": {"hunter2": 1, "swordfish": 2},
                "probe": identity_probes()[name],
            }
        )
        return text(cfg)

    first, second = one("hunter2"), one("swordfish")
    assert first == second
    assert '"secret":{"$expression":"${oc.env:PROBE}"}' in first
    assert "hunter2" not in first.replace('"hunter2":1', "")


def test_custom_resolvers_count_by_value_and_are_never_called_with_marks() -> None:
    calls: list[object] = []

    def double(value: object) -> object:
        calls.append(value)
        return value * 2 if isinstance(value, int) else f"{value}{value}"

    OmegaConf.register_new_resolver("double", double, replace=True)
    assert h(n=2, x="${double:${n}}") == h(n=2, x=4)
    calls.clear()
    h(x="${double:${oc.env:HOME}}", y="${double:[${now:%H}]}", z="${double:a${hydra:job.num}}")
    assert calls == []


def test_listed_resolvers_do_not_count() -> None:
    answers = iter(["one", "two", "three", "four"])
    current = [next(answers)]
    OmegaConf.register_new_resolver("host", lambda: current[0], replace=True)
    cfg = OmegaConf.create({"x": "${host:}"})
    before = [text(cfg), text(cfg, unstable_resolvers=("host",))]
    current[0] = next(answers)
    assert text(cfg) != before[0]
    assert text(cfg, unstable_resolvers=("host",)) == before[1]


def test_the_configs_own_resolver_cache_is_left_as_it_was() -> None:
    OmegaConf.register_new_resolver("cached", lambda: uuid.uuid4().hex, use_cache=True, replace=True)
    cfg = OmegaConf.create({"x": "${cached:}", "t": "${now:%f}"})
    before = (cfg.x, cfg.t)
    text(cfg)
    assert (cfg.x, cfg.t) == before


def test_a_reference_into_the_hydra_node_counts_as_the_task_sees_it() -> None:
    assert h(n="${hydra.job.num}", hydra={"job": {"num": 1}}) == h(n="${hydra.job.num}", hydra={"job": {"num": 2}})


def test_what_cannot_be_resolved_counts_by_expression() -> None:
    assert '{"$expression":"${nowhere}"}' in text({"x": "${nowhere}"})
    assert '{"$expression":"${f:1}"}' in text({"x": "${f:1}"})
    cycle = text({"a": {"x": "${b}"}, "b": {"y": "${a}"}})
    assert "$expression" in cycle


def test_a_typed_leaf_from_the_environment_counts_by_expression(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = OmegaConf.merge(OmegaConf.structured(Typed), {"x": "${oc.env:X}", "color": "${oc.env:C}"})
    monkeypatch.setenv("X", "2.5")
    monkeypatch.setenv("C", "BLUE")
    assert isinstance(cfg, DictConfig)
    assert '"x":{"$expression":"${oc.env:X}"}' in text(cfg)
    assert "BLUE" not in text(cfg)


def test_missing_values_are_refused_naming_the_key_unless_allowed() -> None:
    """HY-03."""
    cfg = {"data": {"path": "???", "list": ["a", "???"]}}
    with pytest.raises(UserError, match=r"'data\.path'"):
        sweeper.config_hash(cfg)
    with pytest.raises(UserError, match=r"'data\.list\[1\]'"):
        sweeper.config_hash(cfg, ignore=["data.path"])
    assert sweeper.config_hash(cfg, allow_missing=True) != sweeper.config_hash({"data": {"path": "x", "list": []}})


@dataclass
class NeedsPath:
    path: str = MISSING
    inner: Typed = MISSING


def test_missing_nodes_of_structured_configs_are_refused() -> None:
    with pytest.raises(UserError, match="'path'"):
        sweeper.config_hash(OmegaConf.structured(NeedsPath))
    with pytest.raises(UserError, match="'inner'"):
        sweeper.config_hash(OmegaConf.structured(NeedsPath(path="x")))


def test_objects_are_refused_naming_the_key() -> None:
    cfg = OmegaConf.create({"a": {"b": 1}}, flags={"allow_objects": True})
    cfg.a.b = object()
    with pytest.raises(UserError, match=r"'a\.b'.*object"):
        sweeper.config_hash(cfg)


def test_composed_and_decomposed_text_are_two_configs() -> None:
    """CH-08: text is taken as is."""
    assert h(s="caf\u00e9") != h(s="cafe\u0301")
    assert "李明" in text({"s": "李明"})


_SEED_SCRIPT = """
import sys
from dataclasses import dataclass, field
from omegaconf import OmegaConf
import sweeper

names = {"alpha", "beta", "gamma", "delta", "epsilon"}

@dataclass
class Config:
    weights: dict[str, int] = field(default_factory=lambda: {name: len(name) for name in names})

groups = [{"model": {"kind": "cnn"}}, {"data": {"kind": "digits"}}]
if sys.argv[1] == "reversed":
    groups.reverse()
cfg = OmegaConf.merge(OmegaConf.structured({"c": Config}), *groups)
print(sweeper.config_hash(cfg), sweeper.config_hash({"s": names, "f": frozenset(names)}))
"""


@pytest.mark.slow
def test_the_hash_seed_of_the_interpreter_does_not_count(tmp_path: Path) -> None:
    """CH-07."""
    script = tmp_path / "seeds.py"
    script.write_text(_SEED_SCRIPT)
    outputs = set()
    for seed in range(20):
        command = [sys.executable, str(script), "reversed" if seed % 2 else "straight"]
        environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
        outputs.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(outputs) == 1


@pytest.mark.parametrize(
    ("token", "in_file", "as_override"),
    [
        ("on", True, "on"),
        ("yes", True, "yes"),
        ("no", False, "no"),
        ("0x10", 16, "0x10"),
        ("007", 7, "007"),
        ("1:30", 90, "1:30"),
        (".inf", float("inf"), ".inf"),
        ("inf", "inf", float("inf")),
        ("None", "None", "None"),
        ("null", None, None),
        ("1e-4", 1e-4, 1e-4),
    ],
)
def test_a_token_counts_as_the_value_it_becomes(
    application: Application, token: str, in_file: object, as_override: object
) -> None:
    """CH-02: in a file and on the command line the same token may be two values, and then it is two configs."""
    path = application.root / "conf" / "config.yaml"
    path.write_text(path.read_text() + f"token: {token}\ngiven: 0\n")
    master = application.master()
    loader = TemplateLoader(application.hydra.config_loader)
    from_file = loader.compose(master, [], position=0)
    from_line = loader.compose(master, [f"token={token}"], position=1)
    assert (type(from_file.token), from_file.token) == (type(in_file), in_file)
    assert (type(from_line.token), from_line.token) == (type(as_override), as_override)
    equal = sweeper.config_hash(from_file) == sweeper.config_hash(from_line)
    assert equal is (repr(in_file) == repr(as_override))
    shown = identify(loader, master, from_line, [f"token={token}"], IdentitySettings()).params["token"]
    assert type(from_tagged(shown)) is type(as_override)


def test_infinity_in_the_file_and_on_the_line_are_one_trial() -> None:
    """CH-02."""
    assert sweeper.config_hash(OmegaConf.create("x: .inf")) == h(x=float("inf"))
