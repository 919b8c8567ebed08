"""`sweeper.sweep` and a file have one list of words, with the defaults of Hydra's nodes."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

import sweeper
from hydra_plugins.sweeper_plugin.launcher import SweeperLauncherConf
from hydra_plugins.sweeper_plugin.sweeper import SweeperSweeperConf
from sweeper.plain.file import OBJECTIVE
from sweeper.plain.request import KEYS

KEYWORDS = inspect.signature(sweeper.sweep).parameters
NAMED_ELSEWHERE = {"n_jobs", "study_name", "storage", "search_space", "params", "custom_search_space"}
"""Names of the Optuna plugin that mean `workers`, `name`, `database` and `space`, and what needs Hydra."""
BATCHES = {"max_batch_size"}
"""Of Hydra's own callers."""


def defaults(node: Any) -> dict[str, Any]:
    found = {name: value for name, value in dataclasses.asdict(node()).items() if name[0] != "_"}
    return {name: None if isinstance(value, dict) else value for name, value in found.items()}


def test_the_file_has_the_keywords_of_the_function() -> None:
    assert KEYWORDS.keys() == {OBJECTIVE, *KEYS}


def test_every_keyword_is_explained() -> None:
    text = inspect.getdoc(sweeper.sweep) or ""
    assert [name for name in KEYWORDS if f"\n    {name}: " not in text] == []


@pytest.mark.parametrize("node", [SweeperLauncherConf, SweeperSweeperConf])
def test_whoever_leaves_a_setting_out_gets_the_same_in_both_faces(node: Any) -> None:
    for name, default in defaults(node).items():
        if name in NAMED_ELSEWHERE | BATCHES | {"defaults", "sampler", "pruner", "scheduler", "name"}:
            continue
        ours = KEYWORDS[name].default
        assert (list(ours) if isinstance(ours, tuple) else ours) == default, name
    groups = {
        next(iter(entry)): next(iter(entry.values())) for entry in SweeperSweeperConf().defaults if entry != "_self_"
    }
    assert [KEYWORDS[name].default or "none" for name in ("sampler", "pruner", "scheduler")] == [
        groups[name] for name in ("sampler", "pruner", "scheduler")
    ]
