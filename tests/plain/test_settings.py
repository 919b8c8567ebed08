"""The launcher's settings without Hydra: no name, default or check of their own."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from hydra_plugins.sweeper_plugin.launcher import SweeperLauncherConf
from sweeper.errors import UserError
from sweeper.plain.settings import SETTINGS, read_settings, read_values

ONLY_HYDRA = {"identity.unstable_resolvers": [], "identity.allow_missing": False}
"""They are about interpolations and `???`, which a plain mapping does not have."""


def flat(values: Any, prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def test_both_faces_have_the_same_settings_and_defaults() -> None:
    hydra = flat(dataclasses.asdict(SweeperLauncherConf()))
    del hydra["_target_"]
    assert flat(read_values({})) == hydra
    assert set(SETTINGS) == hydra.keys() - ONLY_HYDRA.keys()


def test_a_group_is_a_mapping_and_what_it_leaves_out_has_its_default() -> None:
    values = read_values({"workers": 2, "retry": {"max_crashes": 1}, "checkpoint": None})
    assert values["workers"] == 2
    assert values["retry"] == {"max_crashes": 1, "max_no_progress": 10}
    assert values["checkpoint"] == {"every_s": 300.0, "keep": 3}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"workers": "two"}, "workers is 'two'"),
        ({"workers": True}, "an integer"),
        ({"workers": 0}, "workers=0 must be at least 1"),
        ({"lease_s": "60"}, "a number"),
        ({"lease_s": 5.0}, "heartbeat"),
        ({"fail_fast": 1}, "true or false"),
        ({"signals": "TERM"}, "a list of texts"),
        ({"signals": ["KILL"]}, "signals=KILL"),
        ({"engine": "slurm"}, "engine=slurm"),
        ({"retry": 3}, "a mapping"),
        ({"retry": {"max_crash": 3}}, "did you mean max_crashes?"),
        ({"retry": {"max_crashes": 0}}, "retry.max_crashes=0"),
        ({"checkpoint": {"every_s": 0.0}}, "checkpoint.every_s=0"),
        ({"identity": {"version": 2}}, "identity.version is 2"),
        ({"name": "a\nb"}, "cannot be shown"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_the_settings_own_name(given: dict[str, Any], told: str) -> None:
    """CLEAR."""
    with pytest.raises(UserError) as refused:
        read_settings(read_values(given))
    assert told in str(refused.value)
    assert "hydra" not in str(refused.value)
