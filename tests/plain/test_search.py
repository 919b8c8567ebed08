"""A search in Python's words: the tables agree with the search's own, and defaults with the other face's."""

from __future__ import annotations

import importlib
import inspect

import pytest

from sweeper.errors import UserError
from sweeper.hydra import search_nodes
from sweeper.model.short_names import PRUNERS, SAMPLERS
from sweeper.plain.search import DEFAULTS, read_search
from sweeper.plain.space import read_space

SPACE = read_space({"x": [1, 2]})


def test_every_short_name_is_a_group_of_the_other_face_too() -> None:
    assert set(search_nodes.SAMPLERS) == set(SAMPLERS)
    assert set(search_nodes.PRUNERS) - {"none"} == set(PRUNERS) - {"none"}


@pytest.mark.parametrize("name", sorted(SAMPLERS))
def test_what_is_left_out_is_the_same_as_in_the_other_face(name: str) -> None:
    """A sampler that is only named behaves alike, whoever names it."""
    module, _, kind = SAMPLERS[name].rpartition(".")
    parameters = inspect.signature(getattr(importlib.import_module(module), kind)).parameters
    for argument, value in search_nodes.SAMPLERS[name].items():
        if argument in parameters and argument != "search_space":
            ours = DEFAULTS.get(name, {}).get(argument, parameters[argument].default)
            assert value in (ours, None), argument


def test_a_class_of_ones_own_is_named_by_its_path() -> None:
    spec = read_search({"sampler": {"kind": "mine.Sampler", "size": 3}}, SPACE, workers=1, fixed=())
    assert spec.sampler == {"_target_": "mine.Sampler", "size": 3}


def test_a_pruner_inside_a_pruner_is_named_the_same_way() -> None:
    pruner = {"kind": "patient", "patience": 2, "wrapped_pruner": {"kind": "median"}}
    spec = read_search({"pruner": pruner}, SPACE, workers=1, fixed=())
    assert spec.pruner == {
        "_target_": "optuna.pruners.PatientPruner",
        "patience": 2,
        "wrapped_pruner": {"_target_": "optuna.pruners.MedianPruner"},
    }


@pytest.mark.parametrize(
    ("workers", "asked", "deterministic", "lag"),
    [(1, None, True, 1), (4, None, False, 1), (4, True, True, 4), (1, False, False, 1), (None, None, False, 1)],
)
def test_one_workers_search_is_deterministic_and_more_have_to_ask(
    workers: int | None, asked: bool | None, deterministic: bool, lag: int
) -> None:
    """SAME."""
    spec = read_search({"deterministic": asked}, SPACE, workers=workers, fixed=())
    assert (spec.deterministic, spec.lag) == (deterministic, lag)


def test_a_deterministic_search_needs_to_know_its_workers_and_has_no_scheduler_for_several() -> None:
    """CLEAR."""
    with pytest.raises(UserError, match="number of workers"):
        read_search({"deterministic": True}, SPACE, workers=None, fixed=())
    with pytest.raises(UserError, match="one worker only"):
        read_search({"deterministic": True, "scheduler": "asha"}, SPACE, workers=2, fixed=())
