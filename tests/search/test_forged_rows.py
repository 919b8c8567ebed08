"""SAFE: nothing that a row says is ever unpickled, whatever sampler is in use."""

from __future__ import annotations

import base64
import json
import os
import pickle  # noqa: TID251  to forge what must never be loaded
from pathlib import Path
from typing import Any

import optuna
import pytest

from sweeper.model.search import Decision, DecisionKind, SearchSpec
from sweeper.model.tagged import to_tagged
from sweeper.model.trial import Json
from sweeper.search.attributes import AttributeRules
from sweeper.search.optimizer import Optimizer
from tests.search.sequences import NUMBERS, Search


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.path),)


def forged(path: Path) -> dict[str, Json]:
    """Attributes under every name that Optuna's CMA-ES would unpickle, and under others; in all spellings."""
    digits = pickle.dumps(Payload(path)).hex()
    found: dict[str, Json] = {f"{prefix}:optimizer:0": digits for prefix in ("cma", "sepcma", "cmawm")}
    found |= {f"{prefix}:optimizer": digits for prefix in ("cma", "sepcma", "cmawm")}
    found |= {f"{prefix}:state": digits for prefix in ("cma", "sepcma", "cmawm")}
    found["cma:generation"] = 0
    found["other"] = digits
    found["other64"] = base64.b64encode(pickle.dumps(Payload(path))).decode()
    found["other_bytes"] = to_tagged(pickle.dumps(Payload(path)))
    found["nested"] = {"deep": [digits]}
    return found


def poisoned(search: Search, attrs: dict[str, Json]) -> None:
    """Put attributes into every row, and into the sweep's."""
    ledger = search.ledger
    ledger.proposals = [json.dumps({**json.loads(text), "a": attrs}) for text in ledger.proposals]
    ledger.study_attrs = json.dumps({**json.loads(ledger.study_attrs), **attrs})


@pytest.mark.parametrize(
    "sampler",
    [
        {"_target_": "cmaes"},
        {"_target_": "cmaes", "use_separable_cma": True},
        {"_target_": "cmaes", "with_margin": True},
        {"_target_": "tests.search.custom_samplers.OwnCmaEs"},
        {"_target_": "tests.search.custom_samplers.Remembering"},
        {"_target_": "tpe"},
        {"_target_": "nsgaii"},
        {"_target_": "qmc"},
    ],
    ids=lambda node: "-".join(str(value) for value in node.values()),
)
def test_a_forged_attribute_in_a_row_executes_nothing(sampler: dict[str, Json], tmp_path: Path) -> None:
    path = tmp_path / "executed"
    search = Search(lambda: Optimizer(SearchSpec(space=NUMBERS, sampler=sampler), seed=1))
    search.run(8)
    poisoned(search, forged(path))

    search.optimizer = search.ledger.load(search.make())
    search.run(8)

    assert not path.exists()


def test_the_payload_of_these_tests_would_execute(tmp_path: Path) -> None:
    """What these tests feed does harm where a pickle is loaded: Optuna's own sampler runs it."""
    path = tmp_path / "executed"
    study = optuna.create_study(sampler=optuna.samplers.CmaEsSampler(seed=1, warn_independent_sampling=False))
    distributions: dict[str, optuna.distributions.BaseDistribution] = {
        "x": optuna.distributions.FloatDistribution(0, 1),
        "y": optuna.distributions.FloatDistribution(0, 1),
    }
    attrs = {"cma:optimizer:0": pickle.dumps(Payload(path)).hex()}
    study.add_trial(
        optuna.trial.create_trial(
            params={"x": 0.5, "y": 0.5}, distributions=distributions, value=1.0, system_attrs=attrs
        )
    )
    study.ask(distributions)
    assert path.exists()


def test_a_forged_mark_executes_nothing_and_is_no_mark(tmp_path: Path) -> None:
    path = tmp_path / "executed"
    spec = SearchSpec(space=NUMBERS, pruner={"_target_": "successive_halving", "min_resource": 1})
    search = Search(lambda: Optimizer(spec, seed=1))
    search.run(3)
    decision = Decision(
        trial_id=search.ledger.row(0).trial_id or 0,  # type: ignore[arg-type]
        number=0,
        lineage=0,
        kind=DecisionKind.REPORT,
        step=1,
        action="go_on",
        facts={**forged(path), "completed_rung_0": pickle.dumps(Payload(path)).hex()},
    )
    optimizer = search.make()
    optimizer.load(search.ledger.rows(), {}, [decision])
    optimizer.suggest(3)
    assert not path.exists()


def test_no_attribute_that_would_be_unpickled_is_ever_stored() -> None:
    """Also where an upgrade of Optuna went past our own way of keeping the state."""
    digits = pickle.dumps([1]).hex()
    for custom in (False, True):
        rules = AttributeRules(custom=custom)
        assert rules.stored({"cma:optimizer:0": digits, "cmawm:optimizer": digits, "mine": digits}) == {}
        assert rules.fed({"cma:optimizer:0": digits, "mine": to_tagged(pickle.dumps([1]))}) == {}


def test_a_state_of_cmaes_that_does_not_fit_is_as_none() -> None:
    """A damaged or forged row does not stop a search: what was learned before it counts."""
    search = Search(lambda: Optimizer(SearchSpec(space=NUMBERS, sampler={"_target_": "cmaes"}), seed=1))
    search.run(30)
    holders = [at for at, text in enumerate(search.ledger.proposals) if "cma:state" in text]
    assert len(holders) >= 3
    for broken in ({"kind": "CMA"}, {"kind": "SepCMA", "_g": 1}, 7, {"_mean": {"shape": [3], "f8": "AAAA"}}, None):
        last = json.loads(search.ledger.proposals[holders[-1]])
        last["a"]["cma:state"] = broken
        search.ledger.proposals[holders[-1]] = json.dumps(last)
        optimizer = search.ledger.load(search.make())
        optimizer.suggest(30)
