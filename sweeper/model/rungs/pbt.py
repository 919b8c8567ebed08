"""Population-based training: Jaderberg et al., "Population Based Training of Neural Networks", 2017.

Synchronous, so that it depends on no timing: the population (all `n_trials`) pauses every `interval`; when all of a
generation are there, each of the worst quantile takes over the checkpoint and the parameters of a random one of the
best (*exploit*), moves them (*explore*), and then everybody goes on. Truncation selection of section 4.1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from sweeper.model.rungs.explore import explored, seeded
from sweeper.model.rungs.history import PAUSE, RUNG_FACT, Entry, Rung, Standing, gone
from sweeper.model.rungs.nodes import PbtRules
from sweeper.model.rungs.scheduler import Scheduler
from sweeper.model.search import Decision, DecisionKind, Direction
from sweeper.model.space import Space
from sweeper.model.states import FINAL_STATES, TrialState
from sweeper.model.trial import Json


class Pbt(Scheduler):
    """Exploits of a generation all come before anybody goes on, so a source's checkpoint is still its head."""

    def __init__(self, rules: PbtRules, direction: Direction, *, space: Space, population: int, seed: int) -> None:
        super().__init__(direction)
        self._rules = rules
        self._space = space
        self._population = population
        self._seed = seed
        self._params: dict[int, dict[str, Json]] = {}
        self._inherited: dict[int, dict[str, Json]] = {}

    def feed(self, row: Decision) -> None:
        """See `Scheduler.feed`; an exploit's parameters are the heir's from then on."""
        super().feed(row)
        if row.kind is DecisionKind.EXPLOIT:
            self._inherited[row.number] = exploit_params(row)

    def feed_params(self, number: int, params: Mapping[str, Json]) -> None:
        """See `Scheduler.feed_params`."""
        self._params[number] = dict(params)

    def next_move(self, standing: Standing, *, closing: bool = False) -> Decision | None:
        """See `Scheduler.next_move`."""
        waiting = [entry for entry in self._waiting(standing) if not self._history.moved(entry.number)]
        if not waiting or not (closing or all(number in standing for number in range(self._population))):
            return None
        generation = min(self._history.reached(entry.number) for entry in waiting)
        if not all(self._there(number, generation, standing) for number in standing):
            return None
        rung = self._history.rung(generation)
        best, worst = self._quantiles(rung, standing)
        behind = [entry for entry in waiting if self._history.reached(entry.number) == generation]
        sources = [entry for entry in best if entry in behind and not math.isnan(entry.value)]
        for entry in behind:
            if sources and entry in worst:
                return self._exploit(entry, sources, generation)
        return self._promotion(behind[0])

    def rung_at(self, number: int, resource: int) -> int | None:
        """See `Scheduler.rung_at`."""
        rules = self._rules
        if resource < rules.interval or (rules.max_resource is not None and resource >= rules.max_resource):
            return None
        return resource // rules.interval * rules.interval

    def _judge(self, number: int, rung: int, standing: Standing) -> str:
        return PAUSE

    def _there(self, number: int, generation: int, standing: Standing) -> bool:
        """Whether nobody has to wait for this number at a generation: it is final, beyond, or paused there."""
        state = standing[number]
        if state is None or state in FINAL_STATES or self._history.reached(number) > generation:
            return True
        return self._history.reached(number) == generation and (
            state is TrialState.PAUSED or self._history.moved(number)
        )

    def _quantiles(self, rung: Rung, standing: Standing) -> tuple[list[Entry], list[Entry]]:
        """The best and the worst of a generation. Who failed before it moved on was not there to be compared."""
        ranked = [one for one in rung.best_first() if one.number in rung.moved or not gone(one.number, standing)]
        count = min(math.ceil(self._rules.quantile * len(ranked)), len(ranked) // 2)
        return ranked[:count], ranked[len(ranked) - count :]

    def _exploit(self, heir: Entry, sources: list[Entry], generation: int) -> Decision:
        rng = seeded(self._seed, heir.number, generation)
        source = sources[int(rng.random() * len(sources))]
        params = self._inherited.get(source.number) or self._params[source.number]
        facts: dict[str, Json] = {
            RUNG_FACT: generation,
            "source": source.number,
            "source_step": source.step,
            "params": explored(params, self._space, self._rules, rng),
        }
        return Decision(
            trial_id=heir.trial_id,
            number=heir.number,
            lineage=heir.lineage,
            kind=DecisionKind.EXPLOIT,
            step=heir.step,
            action="go_on",
            value=heir.value,
            facts=facts,
        )


def exploit_source(decision: Decision) -> int:
    """Give the number of the trial whose head checkpoint an exploit copies."""
    source = decision.facts["source"]
    if not isinstance(source, int):
        raise ValueError(f"not an exploit's source: {source!r}")
    return source


def exploit_params(decision: Decision) -> dict[str, Json]:
    """Give the parameters that an exploit chose for its heir."""
    params = decision.facts["params"]
    if not isinstance(params, dict):
        raise ValueError(f"not an exploit's parameters: {params!r:.80}")
    return params
