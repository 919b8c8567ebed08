"""Searches under the same weather: real optimizer and rungs, and a sequence that no fault may change (SAME)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from psycopg.rows import dict_row

from sweeper.coordinator.parts import CoordinatorParts, SearchPlan
from sweeper.coordinator.proposing import Chooser
from sweeper.coordinator.searching import Searching
from sweeper.ids import ConfigHash
from sweeper.ledger import decisions, enqueued, proposals, searches
from sweeper.ledger.requests import register_asker
from sweeper.ledger.searches import request_open
from sweeper.ledger.sweeps import settle_sweep
from sweeper.model.messages import Decided, Start, Stop
from sweeper.model.retry import RetryPolicy
from sweeper.model.search import SearchSpec
from sweeper.model.space import FloatRange
from sweeper.model.trial import Json, NewTrial, SweepSpec
from sweeper.search.optimizer import Optimizer

from .child import SimChild
from .faults import Rates, name_statements
from .promises import require
from .scenario import Report, Scenario, Shape
from .world import Process

name_statements([decisions, enqueued, proposals, searches])

TRIALS = 8
STEPS = 9
TPE: Mapping[str, Json] = {"_target_": "optuna.samplers.TPESampler", "n_startup_trials": 2}
RANDOM: Mapping[str, Json] = {"_target_": "optuna.samplers.RandomSampler"}
HALVING: Mapping[str, Json] = {
    "_target_": "optuna.pruners.SuccessiveHalvingPruner", "min_resource": 1, "reduction_factor": 2,
}  # fmt: skip
ASHA: Mapping[str, Json] = {"kind": "asha", "mode": "promote", "min_resource": 1, "reduction_factor": 3}
SPACE = {"x": FloatRange(low=0.0, high=1.0), "y": FloatRange(low=1e-4, high=1.0, log=True)}

FORGIVING = RetryPolicy(max_crashes=1000, max_no_progress=1000, backoff_s=1.0, backoff_max_s=20.0)
"""A trial that fails for its bad luck is one that the undisturbed search does not have."""

FOUL: Final = Rates(
    refuse=0.01, lose_reply=0.015, crash_before=0.003, crash_after=0.004, sleep=0.002, store_away=0.01,
    store_lost_reply=0.01, store_crash=0.002, store_denied=0.0,
)  # fmt: skip

_DONE = """
SELECT n.number, t.config_hash, t.state, t.result::text AS result, (
    SELECT json_agg(json_build_array(d.kind, d.step, d.action) ORDER BY d.position)
    FROM sweeper.decisions d WHERE d.trial_id = t.trial_id
) AS decided
FROM sweeper.numbers n LEFT JOIN sweeper.trials t ON t.trial_id = n.trial_id
WHERE n.sweep_id = %s ORDER BY n.number
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchShape:
    """What is searched, and how."""

    spec: SearchSpec = field(
        default_factory=lambda: SearchSpec(n_trials=TRIALS, space=SPACE, sampler=TPE, deterministic=True, lag=1)
    )
    workers: int = 2
    """More of them than a sequential search can use, so that one is always waiting."""
    faults_s: float = 900.0


def search_shape_of(seed: int) -> SearchShape:
    """Every fourth seed the same kind: plain, pruned, promoted, and three workers, plain and pruned in turn."""
    plain = SearchShape()
    match seed % 4:
        case 1:
            return replace(plain, spec=replace(plain.spec, sampler=RANDOM, pruner=HALVING))
        case 2:
            return replace(plain, spec=replace(plain.spec, sampler=RANDOM, scheduler=ASHA))
        case 3:
            pruner = HALVING if seed // 4 % 2 else None
            return replace(plain, spec=replace(plain.spec, lag=3, pruner=pruner), workers=3)
        case _:
            return plain


class SearchScenario(Scenario):
    """Coordinators that propose and decide. Trials never fail here, so the sequence must be the undisturbed one."""

    def __init__(
        self, url: str, seed: int, shape: SearchShape, *, expected: list[dict[str, Any]] | None = None
    ) -> None:
        """Build it; without `expected` the weather is fair, and what comes out is what to expect."""
        self.search = shape
        self._expected = expected
        fair = Rates(
            refuse=0, lose_reply=0, crash_before=0, crash_after=0, sleep=0, store_away=0, store_lost_reply=0,
            store_crash=0, store_denied=0,
        )  # fmt: skip
        general = Shape(workers=shape.workers, trials=0, steps=STEPS, faults_s=shape.faults_s, poll_s=4.0)
        super().__init__(url, seed, replace(general, rates=fair) if expected is None else replace(general, rates=FOUL))
        if expected is None:
            self.weather.on = False

    def _ended(self) -> Report:
        self.final = self.outcome()
        if self._expected is not None:
            require(self.final == self._expected, "SAME: the undisturbed search's end", (self.final, self._expected))
        return super()._ended()

    def outcome(self) -> list[dict[str, Any]]:
        """What was proposed, decided and found, by number."""
        with self.session.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(_DONE, (self.sweep.sweep_id,)).fetchall()

    def _spec(self, name: str) -> SweepSpec:
        return replace(super()._spec(name), search=self.search.spec.as_json(), retry=FORGIVING)

    def _search_turns(self, parts: CoordinatorParts) -> Searching:
        spec = self.search.spec
        chooser = Chooser(
            database=parts.database,
            sweep_id=self.sweep.sweep_id,
            coordinator_id=parts.coordinator_id,
            asker_id=parts.asker.asker_id,
        )
        return Searching(
            chooser,
            SearchPlan(spec=spec, compose=_compose),
            Optimizer(spec, seed=self.world.seed),
            clock=parts.clock,
            workers=0,
            seed=self.world.seed,
            note=parts.sink.note,
        )

    def _coordinator_parts(self, process: Process) -> CoordinatorParts:
        parts = super()._coordinator_parts(process)
        return replace(parts, search=self._search_turns(parts))

    def _ask(self, parts: CoordinatorParts) -> None:
        register_asker(parts.database, self.sweep.sweep_id, parts.asker)
        request_open(parts.database, self.sweep.sweep_id, parts.asker.asker_id)
        settle_sweep(parts.database, self.sweep.sweep_id)

    def _child(self, process: Process, start: Start, restore_fd: int | None, crash: str | None) -> SimChild:
        return SearchChild(process, start, restore_fd, steps=STEPS, padding=0, crash=None)

    def _over(self) -> bool:
        return self.done

    def _check(self) -> None:
        super()._check()
        rows, spec = self.outcome(), self.search.spec
        require([row["number"] for row in rows] == list(range(len(rows))), "numbers are 0, 1, 2, …", rows)
        require(len(rows) <= spec.n_trials, "n_trials is a total", len(rows))
        open_ = [row["number"] for row in rows if row["state"] in ("pending", "running")]
        require(len(open_) <= spec.lag, f"SAME: nothing is proposed more than {spec.lag} ahead", (open_, len(rows)))
        for row, expected in zip(rows, self._expected or (), strict=False):
            for column in ("number", "config_hash"):
                require(row[column] == expected[column], f"SAME: {column} of the undisturbed search", (row, expected))
            decided, awaited = row["decided"] or [], expected["decided"] or []
            require(decided == awaited[: len(decided)], "SAME: its decisions, each once", (row, expected))


class SearchChild(SimChild):
    """Reports at the end of each step, stands still until that is decided on where it should, and obeys."""

    def _report(self) -> None:
        return  # not now and then, as the base class has it

    def _go_on(self) -> None:
        super()._report()
        if self._start.reports_wait:
            self._await(self.step)
        else:
            super()._go_on()

    def _await(self, step: int) -> None:
        answers = [m for m in self._inbox if isinstance(m, Stop) or (isinstance(m, Decided) and m.step == step)]
        if answers:
            super()._go_on()
        else:
            self._later(0.2, lambda: self._await(step))


def _compose(number: int, params: Mapping[str, Json]) -> NewTrial:
    text = json.dumps(dict(params), sort_keys=True)
    return NewTrial(
        config_hash=ConfigHash(hashlib.sha256(text.encode()).hexdigest()), config_text=text,
        overrides=tuple(f"{name}={value}" for name, value in params.items()), params=dict(params),
    )  # fmt: skip


def undisturbed(url: str, seed: int, shape: SearchShape) -> list[dict[str, Any]]:
    """What the search of that seed comes to in fair weather."""
    scenario = SearchScenario(url, seed, shape)
    scenario.run()
    return scenario.final
