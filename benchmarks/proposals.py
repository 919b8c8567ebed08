"""What a proposal costs beside Optuna's own in-memory study: milliseconds, and the ratio of medians of one run.

Both sides have the same history of five parameters and are asked in turn, so that a busy machine slows both alike.

Run: python benchmarks/proposals.py [--sizes 1000 10000 50000] [--rounds 9] [--running 5000]
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from sweeper.ids import TrialId
from sweeper.model.search import Numbered, Proposal, SearchSpec
from sweeper.model.space import Choices, FloatRange, IntRange
from sweeper.model.states import TrialState
from sweeper.search.optimizer import Optimizer

SPEC = SearchSpec(
    space={
        "rate": FloatRange(low=1e-5, high=1.0, log=True),
        "momentum": FloatRange(low=0.0, high=1.0),
        "drop": FloatRange(low=0.0, high=0.5),
        "width": IntRange(low=1, high=512),
        "kind": Choices(values=("adam", "sgd", "lion")),
    }
)
DISTRIBUTIONS: dict[str, BaseDistribution] = {
    "rate": FloatDistribution(1e-5, 1.0, log=True),
    "momentum": FloatDistribution(0.0, 1.0),
    "drop": FloatDistribution(0.0, 0.5),
    "width": IntDistribution(1, 512),
    "kind": CategoricalDistribution(("adam", "sgd", "lion")),
}


def drawn(count: int) -> Iterator[tuple[dict[str, Any], float]]:
    """Parameters and values of a history."""
    source = random.Random(0)
    for _ in range(count):
        params = {
            "rate": 10 ** source.uniform(-5, 0),
            "momentum": source.random(),
            "drop": source.random() / 2,
            "width": source.randint(1, 512),
            "kind": source.choice(("adam", "sgd", "lion")),
        }
        yield params, (params["momentum"] - 0.3) ** 2 + abs(params["drop"] - 0.1) + source.random() / 10


def row(number: int, params: dict[str, Any], value: float | None) -> Numbered:
    """A row as the ledger gives it."""
    return Numbered(
        number=number,
        proposal=Proposal(params=params),
        trial_id=TrialId(number),
        first_number=number,
        state=TrialState.RUNNING if value is None else TrialState.COMPLETED,
        result=value,
    )


def theirs(finished: int, running: int) -> Callable[[], float]:
    """Optuna's study, its sampler kept: gives the seconds of one `ask`."""
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    for at, (params, value) in enumerate(drawn(finished + running)):
        open_ = at >= finished
        study.add_trial(
            optuna.trial.create_trial(
                params=params,
                distributions=DISTRIBUTIONS,
                state=optuna.trial.TrialState.RUNNING if open_ else optuna.trial.TrialState.COMPLETE,
                value=None if open_ else value,
            )
        )

    def ask() -> float:
        begun = time.perf_counter()
        trial = study.ask(DISTRIBUTIONS)
        seconds = time.perf_counter() - begun
        study.tell(trial, 1.0)
        return seconds

    return ask


def ours(finished: int, running: int) -> tuple[Callable[[], float], float]:
    """Our optimizer: gives the seconds of one `suggest`, and those of making the study from rows."""
    rows = [
        row(number, params, value if number < finished else None)
        for number, (params, value) in enumerate(drawn(finished + running))
    ]
    optimizer = Optimizer(SPEC, seed=0)
    begun = time.perf_counter()
    optimizer.load(rows, {})
    loading_s = time.perf_counter() - begun

    def suggest() -> float:
        number = optimizer.numbers
        begun = time.perf_counter()
        suggestion = optimizer.suggest(number)
        seconds = time.perf_counter() - begun
        params = dict(suggestion.proposal.params)
        optimizer.add(row(number, params, None))
        optimizer.tell(row(number, params, 1.0))
        return seconds

    return suggest, loading_s


def compare(finished: int, running: int, rounds: int) -> None:
    """Print one line."""
    suggest, loading_s = ours(finished, running)
    ask = theirs(finished, running)
    suggest(), ask()
    seconds = [(suggest(), ask()) for _ in range(rounds)]
    mine, other = (statistics.median(side) * 1e3 for side in zip(*seconds, strict=True))
    label = f"{finished:,} finished" + (f", {running:,} running" if running else "")
    print(
        f"{label:>32}: {mine:8.1f} ms, Optuna in memory {other:8.1f} ms, ratio {mine / other:.2f}; "
        f"from rows in {loading_s:.2f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 5000], help="finished trials")
    parser.add_argument("--running", type=int, default=1000, help="running ones, beside the smallest size")
    parser.add_argument("--rounds", type=int, default=9)
    chosen = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    print("TPE, five parameters")
    for size in chosen.sizes:
        compare(size, 0, chosen.rounds)
    if chosen.running:
        compare(min(chosen.sizes), chosen.running, chosen.rounds)


if __name__ == "__main__":
    main()
