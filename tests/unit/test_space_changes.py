"""What may change between two runs of a search (OP-06)."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from sweeper.model.search import Constraint, Direction, SearchSpec
from sweeper.model.space import Choices, Dimension, FloatRange, IntRange
from sweeper.model.space_changes import SearchChanges, search_changes

LR = FloatRange(low=1e-5, high=0.1, log=True)
SPACE: Mapping[str, Dimension] = {
    "lr": LR,
    "layers": IntRange(low=1, high=3),
    "kind": Choices(values=("a", "b", None)),
}
SPEC = SearchSpec(space=SPACE, sampler={"_target_": "optuna.samplers.TPESampler", "n_startup_trials": 10})
ASHA = {"kind": "asha", "mode": "promote"}


def with_dimension(name: str, dimension: Dimension) -> SearchSpec:
    return replace(SPEC, space={**SPACE, name: dimension})


def test_the_same_search_changes_nothing() -> None:
    assert search_changes(SPEC, SearchSpec.from_json(SPEC.as_json())) == SearchChanges()


@pytest.mark.parametrize(
    "new",
    [
        replace(SPEC, n_trials=200),
        replace(SPEC, n_trials=2),
        with_dimension("kind", Choices(values=(None, "b", "a"))),
        replace(SPEC, space=dict(reversed(SPACE.items()))),
    ],
)
def test_another_total_and_another_order_are_accepted_without_a_word(new: SearchSpec) -> None:
    assert search_changes(SPEC, new) == SearchChanges()


@pytest.mark.parametrize(
    ("new", "told"),
    [
        (replace(SPEC, directions=(Direction.MAXIMIZE,)), ["direction was minimize and is now maximize"]),
        (
            replace(SPEC, directions=(Direction.MINIMIZE, Direction.MAXIMIZE)),
            ["minimize and is now minimize, maximize"],
        ),
        (replace(SPEC, sampler={"_target_": "optuna.samplers.RandomSampler"}), ["TPESampler", "RandomSampler"]),
        (
            replace(SPEC, sampler={"_target_": "optuna.samplers.TPESampler", "n_startup_trials": 5}),
            ["sampler.n_startup_trials was 10 and is now 5"],
        ),
        (
            replace(SPEC, sampler={**SPEC.sampler, "multivariate": True}),
            ["sampler.multivariate was not set and is now true"],
        ),
        (replace(SPEC, pruner={"_target_": "optuna.pruners.MedianPruner"}), ["pruner was none", "MedianPruner"]),
        (replace(SPEC, scheduler=ASHA), ["scheduler was none and is now asha"]),
        (
            replace(SPEC, constraints=(Constraint(metric="latency_ms", at_most=20),)),
            ["constraints was none and is now latency_ms <= 20"],
        ),
        (replace(SPEC, custom_space="package.space"), ["custom_search_space was not set and is now package.space"]),
        (
            with_dimension("kind", Choices(values=("a", "b", None, "c"))),
            ['one of "a", "b", null and is now one of "a", "b", null, "c" (with "c")'],
        ),
        (with_dimension("kind", Choices(values=("a", "b", "null"))), ['without null, with "null"']),
        (with_dimension("kind", Choices(values=("a", None))), ['without "b"']),
        (
            with_dimension("layers", FloatRange(low=1, high=3)),
            ["an integer from 1 to 3 and is now a float from 1 to 3"],
        ),
        (with_dimension("layers", Choices(values=(1, 2, 3))), ["an integer from 1 to 3 and is now one of 1, 2, 3"]),
        (with_dimension("layers", IntRange(low=1, high=3, step=2)), ["to 3 and is now an integer", "in steps of 2"]),
        (with_dimension("lr", replace(LR, log=False)), ["on a log scale and is now a float from 1e-05 to 0.1"]),
        (with_dimension("dropout", FloatRange(low=0, high=0.5)), ["dropout (a float from 0 to 0.5) is new"]),
        (replace(SPEC, space={"lr": LR, "kind": SPACE["kind"]}), ["layers (an integer from 1 to 3) is gone"]),
    ],
)
def test_what_would_mix_histories_is_refused_with_old_and_new(new: SearchSpec, told: list[str]) -> None:
    changes = search_changes(SPEC, new)
    assert len(changes.refusals) == 1
    for part in told:
        assert part in changes.refusals[0]
    assert changes.notices == ()


@pytest.mark.parametrize(
    ("new", "told"),
    [
        (with_dimension("layers", IntRange(low=10, high=30)), ["from 1 to 3", "from 10 to 30", "keep their results"]),
        (with_dimension("lr", replace(LR, high=1.0)), ["from 1e-05 to 0.1", "from 1e-05 to 1.0", "count as before"]),
        (replace(SPEC, fixed=("epochs=20",)), ["none before, epochs=20 now", "finished trials keep"]),
        (replace(SPEC, deterministic=False, lag=4), ["was deterministic"]),
    ],
)
def test_what_only_moves_the_search_is_accepted_and_told(new: SearchSpec, told: list[str]) -> None:
    changes = search_changes(SPEC, new)
    assert changes.refusals == ()
    assert len(changes.notices) == 1
    for part in told:
        assert part in changes.notices[0]


def test_who_asked_for_the_same_sequence_from_four_workers_is_kept_to_four() -> None:
    changes = search_changes(replace(SPEC, lag=4), replace(SPEC, lag=2))
    assert len(changes.refusals) == 1
    assert "4 workers" in changes.refusals[0]
    assert "deterministic=false" in changes.refusals[0]


def test_the_order_of_constraints_and_the_spelling_of_their_numbers_do_not_count() -> None:
    first, second = Constraint(metric="a", at_most=1), Constraint(metric="b", at_least=2.5)
    spelled = replace(SPEC, constraints=(second, Constraint(metric="a", at_most=1.0)))
    assert search_changes(replace(SPEC, constraints=(first, second)), spelled) == SearchChanges()


def test_a_very_long_list_of_choices_is_shown_in_part() -> None:
    many = Choices(values=tuple(range(100)))
    changes = search_changes(with_dimension("kind", many), with_dimension("kind", Choices(values=(1, 2))))
    assert "and 92 more" in changes.refusals[0]
