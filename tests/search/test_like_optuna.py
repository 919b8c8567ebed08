"""Proposals are Optuna's own: a plain study with a new sampler for every number proposes the same."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable
from typing import Any

import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from sweeper.model.search import Direction, SearchSpec
from sweeper.model.trial import Json
from sweeper.search.optimizer import Optimizer
from sweeper.search.quiet import quiet
from sweeper.search.seeds import derived_seed
from tests.search.sequences import MIXED, Objective, Search, bowl, falling, params_of, two_bowls

DISTRIBUTIONS: dict[str, BaseDistribution] = {
    "x": FloatDistribution(-5.0, 5.0),
    "rate": FloatDistribution(1e-5, 1.0, log=True),
    "width": IntDistribution(8, 64, step=8),
    "kind": CategoricalDistribution(("a", "b", "c")),
}
SEED = 5


def in_optuna(make: Callable[..., optuna.samplers.BaseSampler], count: int, objective: Objective, **study: Any) -> Any:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    found = optuna.create_study(study_name=f"sweeper-{SEED}", **study)
    for number in range(count):
        found.sampler = make(seed=derived_seed(SEED, number))
        trial = found.ask(DISTRIBUTIONS)
        value = objective(trial.params)
        found.tell(trial, list(value) if isinstance(value, tuple) else float(str(value)))
    return [trial.params for trial in found.trials]


@pytest.mark.parametrize(
    ("sampler", "make"),
    [
        ({"_target_": "tpe"}, optuna.samplers.TPESampler),
        (
            {"_target_": "tpe", "multivariate": False},
            lambda seed: optuna.samplers.TPESampler(seed=seed, multivariate=False),
        ),
        ({"_target_": "random"}, optuna.samplers.RandomSampler),
    ],
    ids=["tpe", "tpe_independent", "random"],
)
def test_one_objective_is_searched_as_optuna_does(
    sampler: dict[str, Json], make: Callable[..., optuna.samplers.BaseSampler]
) -> None:
    search = Search(lambda: Optimizer(SearchSpec(space=MIXED, sampler=sampler), seed=SEED))
    search.run(25)
    assert params_of(search.ledger) == in_optuna(make, 25, bowl)


@pytest.mark.parametrize("name", ["nsgaii", "tpe"])
def test_two_objectives_are_searched_as_optuna_does(name: str) -> None:
    directions = (Direction.MINIMIZE, Direction.MAXIMIZE)
    sampler: dict[str, Json] = {"_target_": name, **({"population_size": 6} if name == "nsgaii" else {})}
    spec = SearchSpec(space=MIXED, sampler=sampler, directions=directions)
    search = Search(lambda: Optimizer(spec, seed=SEED))
    search.run(25, two_bowls)

    def make(seed: int) -> optuna.samplers.BaseSampler:
        if name == "tpe":
            return optuna.samplers.TPESampler(seed=seed)
        return optuna.samplers.NSGAIISampler(seed=seed, population_size=6)

    # A repeat of a config is an alias here and a trial of its own there, with the same value.
    assert params_of(search.ledger) == in_optuna(make, 25, two_bowls, directions=["minimize", "maximize"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("node", "pruner"),
    [
        ({"_target_": "median", "n_startup_trials": 3}, optuna.pruners.MedianPruner(n_startup_trials=3)),
        ({"_target_": "successive_halving"}, optuna.pruners.SuccessiveHalvingPruner()),
        ({"_target_": "hyperband"}, optuna.pruners.HyperbandPruner()),
        ({"_target_": "hyperband", "max_resource": 9}, optuna.pruners.HyperbandPruner(max_resource=9)),
    ],
    ids=["median", "successive_halving", "hyperband_auto", "hyperband"],
)
def test_pruning_is_optunas_own(node: dict[str, Json], pruner: optuna.pruners.BasePruner) -> None:
    """Marks, `auto` resources and brackets are kept in rows and still decide as a pruner object does that was kept."""
    search = Search(lambda: Optimizer(SearchSpec(space=MIXED, pruner=node), seed=SEED))
    search.run_with_reports(30, falling, 9)

    study = optuna.create_study(study_name=f"sweeper-{SEED}", pruner=pruner)
    for number in range(30):
        study.sampler = optuna.samplers.TPESampler(seed=derived_seed(SEED, number))
        trial = study.ask(DISTRIBUTIONS)
        value = 0.0
        state = optuna.trial.TrialState.COMPLETE
        for step in range(9):
            value = falling(trial.params, step)
            trial.report(value, step)
            if trial.should_prune():
                state = optuna.trial.TrialState.PRUNED
                break
        study.tell(trial, None if state is optuna.trial.TrialState.PRUNED else value, state=state)

    assert params_of(search.ledger) == [trial.params for trial in study.trials]
    reports = {number: len(found) for number, found in search.ledger.reports.items()}
    assert reports == {trial.number: len(trial.intermediate_values) for trial in study.trials}
    assert len(set(reports.values())) > 1


def test_optunas_warnings_and_log_lines_stay_away_and_its_settings_as_they_were(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Experimental samplers warn, a study logs its name; neither is our user's business (CLEAR)."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.INFO)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            spec = SearchSpec(space=MIXED, sampler={"_target_": "qmc", "scramble": True})
            Search(lambda: Optimizer(spec, seed=SEED)).run(4)
            assert optuna.logging.get_verbosity() == optuna.logging.INFO
            assert [str(warning.message) for warning in caught if "xperimental" in str(warning.message)] == []
            optuna.samplers.QMCSampler(seed=1)
            assert len(caught) == 1
    finally:
        optuna.logging.set_verbosity(level)
    assert caplog.text == ""
    assert capfd.readouterr() == ("", "")


class Kept(logging.Handler):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def test_only_the_calling_thread_is_silenced() -> None:
    """Whoever searches with Optuna beside us, in another thread, reads its lines as before."""
    kept, top, before = Kept(), logging.getLogger("optuna"), optuna.logging.get_verbosity()
    top.addHandler(kept)
    optuna.logging.set_verbosity(optuna.logging.INFO)
    try:
        with quiet():
            for name in ("optuna.storages", "optuna.imported_in_the_middle_of_a_call"):
                optuna.logging.get_logger(name).info("ours")
                other = threading.Thread(target=optuna.logging.get_logger(name).info, args=("theirs",))
                other.start()
                other.join()
            with quiet():
                top.info("ours")
            top.info("ours")
        top.info("anybody's")
    finally:
        optuna.logging.set_verbosity(before)
        top.removeHandler(kept)
    assert kept.lines == ["theirs", "theirs", "anybody's"]
