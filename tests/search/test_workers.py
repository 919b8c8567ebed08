"""SAME for W workers: with `deterministic` nothing depends on who is faster, nor on restarts."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from sweeper.model.search import SearchSpec
from sweeper.model.space import IntRange
from sweeper.model.states import TrialState
from sweeper.model.trial import Json, Report
from sweeper.search.optimizer import Optimizer
from tests.search.sequences import MIXED, Ledger, falling, plain

STEPS = 5


@dataclass
class Crew:
    """W workers on one search, as a coordinator with that lag serves them; what happens next is drawn."""

    spec: SearchSpec
    chance: random.Random
    ledger: Ledger = field(default_factory=Ledger)
    decided: dict[tuple[int, int], bool] = field(default_factory=dict)
    told: int = -1
    """The last number whose end the optimizer was told of."""

    def __post_init__(self) -> None:
        self.optimizer = self.ledger.load(Optimizer(self.spec, seed=2))
        self.trained: dict[int, int] = {}

    def run(self, count: int) -> tuple[list[str], list[tuple[tuple[int, int], bool]]]:
        """Give the proposals and the decisions, both in order of number and step."""
        while not self._over(count):
            number = len(self.ledger.proposals)
            choices = [*self.trained]
            if number < count and self._ended(number - self.spec.lag):
                choices.append(number)
            self._go_on(self.chance.choice(choices))
            if self.chance.random() < 0.05:
                self.optimizer = self.ledger.load(Optimizer(self.spec, seed=2), final_to=self.told)
        return self.ledger.proposals, sorted(self.decided.items())

    def _over(self, count: int) -> bool:
        return len(self.ledger.proposals) == count and not self.trained

    def _ended(self, to: int) -> bool:
        return all(first is None or self.ledger.states[first].final for first in self.ledger.firsts[: max(to + 1, 0)])

    def _go_on(self, number: int) -> None:
        if number == len(self.ledger.proposals):
            self._propose(number)
        elif self.trained[number] < STEPS:
            self._report(number)
        else:
            del self.trained[number]
            self.ledger.finish(number, self.ledger.reports[number][-1].value)

    def _propose(self, number: int) -> None:
        while self.told < number - self.spec.lag:
            self.told += 1
            self.optimizer.tell(self.ledger.row(self.told))
        row = self.ledger.commit(self.optimizer.suggest(number))
        self.optimizer.add(row)
        if row.first_number == number:
            self.trained[number] = 0

    def _report(self, number: int) -> None:
        step = self.trained[number]
        self.trained[number] += 1
        value = falling(plain(self.ledger.row(number)), step)
        self.ledger.reports.setdefault(number, []).append(Report(step=step, at_step=step, value=value))
        made = self.optimizer.prune(number, self.ledger.reports[number], finished_to=number - self.spec.lag)
        self.ledger.decide(number, step, made)
        self.optimizer.mark(number, made.attrs, made.study_attrs)
        self.decided[number, step] = made.prune
        if made.prune:
            del self.trained[number]
            self.ledger.finish(number, value, TrialState.PRUNED)


@pytest.mark.parametrize(
    "pruner",
    [
        {"_target_": "median", "n_startup_trials": 3},
        {"_target_": "successive_halving"},
        pytest.param({"_target_": "hyperband"}, marks=pytest.mark.slow),
        pytest.param({"_target_": "percentile", "percentile": 40.0}, marks=pytest.mark.slow),
        pytest.param({"_target_": "wilcoxon"}, marks=pytest.mark.slow),
    ],
    ids=lambda node: node["_target_"],
)
def test_three_workers_get_the_same_proposals_and_decisions_whoever_is_faster(pruner: dict[str, Json]) -> None:
    spec = SearchSpec(space=MIXED, pruner=pruner, lag=3)
    runs = [Crew(spec, random.Random(seed)).run(14) for seed in range(3)]
    assert runs[1] == runs[0]
    assert runs[2] == runs[0]
    assert any(prune for _, prune in runs[0][1])


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "nsgaii", "qmc", "random", "brute_force", "grid"])
def test_three_workers_get_the_same_proposals_from_every_sampler(sampler: str) -> None:
    space = {"x": IntRange(low=-5, high=5), "kind": MIXED["kind"]} if sampler in ("brute_force", "grid") else MIXED
    spec = SearchSpec(space=space, sampler={"_target_": sampler}, lag=3, pruner={"_target_": "nop"})
    runs = [Crew(spec, random.Random(seed)).run(20) for seed in range(3)]
    assert runs[1] == runs[0]
    assert runs[2] == runs[0]
