"""A search without a ledger: rows are kept as JSON text, trials are functions, and the optimizer may be thrown away."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sweeper.ids import TrialId
from sweeper.model.search import Decision, DecisionKind, Numbered, Proposal, SearchSpec, Suggestion
from sweeper.model.space import Choices, FloatRange, IntRange, Space, choice_text
from sweeper.model.states import TrialState
from sweeper.model.tagged import from_tagged, to_tagged
from sweeper.model.trial import Json, Report
from sweeper.search.optimizer import Optimizer, PruneDecision

MIXED: Space = {
    "x": FloatRange(low=-5.0, high=5.0),
    "rate": FloatRange(low=1e-5, high=1.0, log=True),
    "width": IntRange(low=8, high=64, step=8),
    "kind": Choices(values=("a", "b", "c")),
}
NUMBERS: Space = {name: dimension for name, dimension in MIXED.items() if name != "kind"}
FINITE: Space = {
    "kind": Choices(values=("a", "b", "c")),
    "width": IntRange(low=1, high=4),
    "drop": FloatRange(low=0.0, high=0.5, step=0.1),
}
TPE: Mapping[str, Json] = {"_target_": "tpe"}

Params = Mapping[str, Any]
Objective = Callable[[Params], object]
Curve = Callable[[Params, int], float]


def bowl(params: Params) -> float:
    """An objective with one optimum, for any of the spaces above."""
    total = 0.0
    for value in params.values():
        if isinstance(value, str):
            total += {"a": 0.3, "b": 0.0, "c": 1.1}.get(value, 0.7)
        elif isinstance(value, bool) or value is None:
            total += 0.5
        else:
            total += (float(value) - 0.3) ** 2 / (1.0 + abs(float(value)))
    return total


def two_bowls(params: Params) -> tuple[float, float]:
    """Two objectives that pull apart."""
    return bowl(params), float(params["x"]) + params["width"] / 64


def falling(params: Params, step: int) -> float:
    """A learning curve that ends at the bowl's value."""
    return bowl(params) + 3.0 / (step + 1) + 0.2 * math.sin(7 * step + params["x"])


def spec(space: Space = MIXED, **changes: Any) -> SearchSpec:
    """A search with TPE and one worker."""
    return SearchSpec(space=space, **changes)


@dataclass
class Ledger:
    """What a real ledger would hold of a search, as text: what is read back went through JSON."""

    proposals: list[str] = field(default_factory=list)
    firsts: list[int | None] = field(default_factory=list)
    states: dict[int, TrialState] = field(default_factory=dict)
    results: dict[int, str] = field(default_factory=dict)
    reports: dict[int, list[Report]] = field(default_factory=dict)
    study_attrs: str = "{}"
    decisions: list[str] = field(default_factory=list)

    def commit(self, suggestion: Suggestion, *, refused: bool = False) -> Numbered:
        """What `add_numbers` does."""
        text = json.dumps(suggestion.proposal.as_json())
        config = choice_text(dict(suggestion.proposal.params))
        known = {
            choice_text(json.loads(other)["p"]): first
            for other, first in reversed(list(zip(self.proposals, self.firsts, strict=True)))
            if first is not None
        }
        number = len(self.proposals)
        first = None if refused else known.get(config, number)
        self.proposals.append(text)
        self.firsts.append(first)
        if first == number:
            self.states[number] = TrialState.PENDING
        self.study_attrs = json.dumps({**json.loads(self.study_attrs), **suggestion.study_attrs})
        return self.row(number)

    def finish(self, number: int, result: object, state: TrialState = TrialState.COMPLETED) -> Numbered:
        """What `commit_result` does."""
        self.states[number] = state
        self.results[number] = json.dumps(to_tagged(result))
        return self.row(number)

    def decide(self, number: int, step: int, made: PruneDecision) -> None:
        """What `record_decisions` does."""
        self.decisions.append(json.dumps({"number": number, "step": step, "facts": dict(made.attrs)}))
        self.study_attrs = json.dumps({**json.loads(self.study_attrs), **made.study_attrs})

    def row(self, number: int) -> Numbered:
        """One number as it stands."""
        first = self.firsts[number]
        standing: dict[str, Any] = {"state": None}
        if first is not None:
            standing = {
                "state": self.states[first],
                "result": json.loads(self.results.get(first, "null")),
                "reports": tuple(self.reports.get(first, ())),
            }
        return Numbered(
            number=number,
            proposal=Proposal.from_json(json.loads(self.proposals[number])),
            trial_id=None if first is None else TrialId(1000 + first),
            first_number=first,
            **standing,
        )

    def rows(self, *, final_to: int | None = None) -> list[Numbered]:
        """All numbers; with `final_to` trials beyond it look as if they still ran."""
        found = [self.row(number) for number in range(len(self.proposals))]
        if final_to is None:
            return found
        return [
            row
            if row.state is None or not row.state.final or row.number <= final_to
            else replace(row, state=TrialState.RUNNING, result=None, reports=())
            for row in found
        ]

    def load(self, optimizer: Optimizer, *, final_to: int | None = None) -> Optimizer:
        """Make the study from rows."""
        decisions = []
        for at, text in enumerate(self.decisions):
            found = json.loads(text)
            decision = Decision(
                trial_id=TrialId(1000 + found["number"]),
                number=found["number"],
                lineage=0,
                kind=DecisionKind.REPORT,
                step=found["step"],
                action="go_on",
                facts=found["facts"],
                order=at,
            )
            decisions.append(decision)
        optimizer.load(self.rows(final_to=final_to), json.loads(self.study_attrs), decisions)
        return optimizer


@dataclass
class Search:
    """One worker's search: propose, train, tell; `disturbed` throws the optimizer away at random moments."""

    make: Callable[[], Optimizer]
    ledger: Ledger = field(default_factory=Ledger)
    disturbed: random.Random | None = None
    restarts: int = 0

    def __post_init__(self) -> None:
        self.optimizer = self.ledger.load(self.make())

    def run(self, count: int, objective: Objective = bowl) -> list[str]:
        """Run trials without reports; give the sequence of proposals as text."""
        for number in range(len(self.ledger.proposals), len(self.ledger.proposals) + count):
            row = self.propose(number)
            if row.first_number == number:
                self.finish(number, objective(plain(row)))
        return self.ledger.proposals

    def run_with_reports(self, count: int, curve: Curve, steps: int) -> list[str]:
        """Run trials that report `steps` times, or fewer where they are pruned; proposals and decisions as text."""
        for number in range(count):
            row = self.propose(number)
            if row.first_number != number:
                continue
            pruned = False
            for step in range(steps):
                value = curve(plain(row), step)
                self.ledger.reports.setdefault(number, []).append(Report(step=step, at_step=step, value=value))
                made = self.optimizer.prune(number, self.ledger.reports[number], finished_to=number - 1)
                self.perhaps_restart()  # a decision that was never recorded is made again, and the same
                made = self.optimizer.prune(number, self.ledger.reports[number], finished_to=number - 1)
                self.ledger.decide(number, step, made)
                self.optimizer.mark(number, made.attrs, made.study_attrs)
                self.perhaps_restart()
                if made.prune:
                    pruned = True
                    break
            state = TrialState.PRUNED if pruned else TrialState.COMPLETED
            self.optimizer.tell(self.ledger.finish(number, self.ledger.reports[number][-1].value, state))
        return self.ledger.proposals + [
            f"{number} {self.ledger.states[number]} {len(found)}" for number, found in self.ledger.reports.items()
        ]

    def propose(self, number: int, *, fixed: Mapping[str, Json] | None = None, refused: bool = False) -> Numbered:
        """Suggest, commit and confirm a number."""
        self.perhaps_restart()
        suggestion = self.optimizer.suggest(number, fixed=fixed, key=None if fixed is None else f"point-{number}")
        row = self.ledger.commit(suggestion, refused=refused)
        self.optimizer.add(row)
        self.perhaps_restart()
        return row

    def finish(self, number: int, result: object) -> None:
        """Complete a trial."""
        self.optimizer.tell(self.ledger.finish(number, result))

    def perhaps_restart(self) -> None:
        """Throw the optimizer away now and then, as a killed coordinator does."""
        if self.disturbed is not None and self.disturbed.random() < 0.2:
            self.restarts += 1
            self.optimizer = self.ledger.load(self.make())


def plain(row: Numbered) -> dict[str, Any]:
    """Give a number's parameters as plain values."""
    return {name: from_tagged(value) for name, value in row.proposal.params.items()}


def params_of(ledger: Ledger) -> list[dict[str, Any]]:
    """Give all proposed parameters as plain values, by number."""
    return [plain(ledger.row(number)) for number in range(len(ledger.proposals))]


def values_of(ledger: Ledger, name: str) -> Sequence[Any]:
    """Give all proposed values of one parameter."""
    return [params.get(name) for params in params_of(ledger)]


def distinct(texts: Iterable[str]) -> int:
    """Count the different configs among proposals."""
    return len({choice_text(json.loads(text)["p"]) for text in texts})
