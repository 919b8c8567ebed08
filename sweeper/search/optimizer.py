"""Proposals and pruning decisions: a function of the ledger's rows, the sweep's seed and the number (SAME).

The study is warm between calls and may be thrown away at any time: `load` makes the same one from rows. For every
proposal there is a new sampler and for every decision a new pruner, because a kept object would remember what rows do
not say; what they want to remember are attributes, which go into rows as data and come back from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import optuna

from sweeper.collector import collector_paused
from sweeper.model.search import Decision, Numbered, Proposal, SearchSpec, Suggestion
from sweeper.model.trial import Json, Report
from sweeper.search.asked import asked
from sweeper.search.attributes import AttributeRules
from sweeper.search.axes import Axis, Code, axes
from sweeper.search.define_by_run import SuggestMore, TrialProxy
from sweeper.search.history import History
from sweeper.search.layouts import answer_from
from sweeper.search.points import checked_point
from sweeper.search.pruning import PruneDecision, bracket_pruner, decide, pruner_maker
from sweeper.search.samplers import sampler_maker
from sweeper.search.visits import Visits


class Optimizer:
    """Suggests configs and decides about reports; one thread, no I/O, no clock.

    After any exception but the ones named, and after `drop`, `load` again before anything else.
    """

    def __init__(
        self,
        spec: SearchSpec,
        *,
        seed: int,
        sampler: Mapping[str, Json] | None = None,
        pruner: Mapping[str, Json] | None = None,
        suggest_more: SuggestMore | None = None,
    ) -> None:
        """Check everything that can be checked before there is a trial (CLEAR).

        Args:
            spec: what is searched.
            seed: the sweep's.
            sampler, pruner: nodes from the running command's own config; None: those of `spec`. Code is imported by
                them, so a spec that was read from the ledger must not come without them (SAFE).
            suggest_more: the define-by-run function, called after the plain space.

        Raises:
            UserError: the search cannot be done so; the message names the thing and the remedy.
        """
        self._spec = spec
        self._seed = seed
        self._suggest_more = suggest_more
        self._axes = axes(spec.space)
        self._sampler, self.notices = sampler_maker(
            spec.sampler if sampler is None else sampler,
            spec,
            self._axes,
            seed=seed,
            custom_space=suggest_more is not None,
        )
        self._pruners = pruner_maker(spec.pruner if pruner is None else pruner, spec, seed=seed)
        self._rules = AttributeRules(
            custom=self._pruners.custom or (self._sampler is not None and self._sampler.custom)
        )
        self._history: History | None = None
        self._unconfirmed = False

    @property
    def wants_reports(self) -> bool:
        """Whether rows of completed trials have to carry their reports."""
        return self._pruners.prunes or bool(self._spec.constraints)

    @property
    def loaded(self) -> bool:
        """Whether there is a study; without one only `load` may be called."""
        return self._history is not None

    @property
    def numbers(self) -> int:
        """How many numbers there are, an unconfirmed suggestion included; so the next number."""
        return len(self._known.entries)

    def load(
        self, rows: Iterable[Numbered], study_attrs: Mapping[str, Json], decisions: Iterable[Decision] = ()
    ) -> None:
        """Make the study from rows; whatever was there before is forgotten.

        Args:
            rows: all numbers from 0, in order. Trials that the search is not to know of yet come as running ones.
            study_attrs: the sweep's, as tagged JSON.
            decisions: those with facts; of another lineage than their trial's they are void.
        """
        self.drop()
        visits = Visits(self._axes, grid=self._sampler is None, open_space=self._suggest_more is not None)
        history = History(self._spec, self._axes, self._rules, visits, seed=self._seed)
        history.feed_study_attrs(study_attrs)
        with collector_paused():
            for number, row in enumerate(rows):
                if row.number != number:
                    raise ValueError(f"row of number {row.number} where {number} was expected")
                history.take(row)
        for decision in decisions:
            if decision.lineage == history.lineages.get(decision.number, 0):
                history.mark(decision.number, decision.facts)
        self._history = history
        self._unconfirmed = False

    def drop(self) -> None:
        """Throw the study away: it may be ahead of the ledger."""
        self._history = None

    def suggest(self, number: int, *, fixed: Mapping[str, Json] | None = None, key: str | None = None) -> Suggestion:
        """Suggest a config for the next number; it stands as running until `add` confirms it.

        Args:
            number: has to be `numbers`.
            fixed: an enqueued point; the sampler completes it.
            key: of that point.

        Raises:
            UserError: the point does not fit the space (nothing happened, `loaded` stays); or the define-by-run
                function, or the sampler, raised (then the study is dropped).
        """
        history = self._known
        if number != self.numbers or self._unconfirmed:
            raise ValueError(f"number {number} is not next: there are {self.numbers}, unconfirmed: {self._unconfirmed}")
        point = checked_point(self._spec.space, fixed or {}, open_space=self._suggest_more is not None)
        codes = history.visits.instead() if not point else None
        if self._sampler is None and codes is None:
            codes = history.visits.completing(
                {axis.name: _code(axis, point[axis.name]) for axis in self._axes if axis.name in point}
            )
        self._history = None  # put back once nothing can go wrong any more
        if codes is not None:
            chosen = dict(zip(self._axes, codes, strict=True))
            suggestion = Suggestion(proposal=Proposal(params=_stored(chosen), enqueued=key))
        else:
            suggestion = self._drawn(history, number, point, key)
        history.suggested(number, suggestion.proposal)
        self._history = history
        self._unconfirmed = True
        return suggestion

    def add(self, row: Numbered) -> None:
        """Take in the row of the number that was just committed: a new trial, an alias, or refused.

        An alias stands as its trial does in the study, whatever its row says. Where several numbers are committed at
        once, all but the last are added as new trials before; `correct` those that prove to be something else.
        """
        history = self._known
        if row.number != self.numbers - int(self._unconfirmed):
            raise ValueError(f"row of number {row.number} where {self.numbers - int(self._unconfirmed)} was expected")
        history.take(row)
        self._unconfirmed = False

    def correct(self, row: Numbered) -> None:
        """Take in that a number which was added as a new trial is an alias of an earlier one."""
        self._known.correct(row)

    def tell(self, row: Numbered) -> None:
        """Let a trial stand otherwise: final, paused, or running again. Its aliases follow by themselves."""
        if not row.is_alias:
            self._known.change(row)

    def used_up(self) -> bool:
        """Whether all configs of a finite space were proposed, or a sampler only repeats itself."""
        return self._known.visits.used_up()

    def prune(self, number: int, reports: Sequence[Report], *, finished_to: int | None) -> PruneDecision:
        """Decide whether a trial ends at the last of its reports. To be asked once per report, in their order.

        Nothing changes before `mark` is told what was recorded.

        Args:
            number: the trial's own.
            reports: all of the trial's up to the one in question, by step.
            finished_to: the last number that the decision may rest on; None: on all that the study has.
        """
        return decide(self._pruners, self._known, self._rules, number, reports, finished_to)

    def mark(self, number: int, attrs: Mapping[str, Json], study_attrs: Mapping[str, Json] | None = None) -> None:
        """Take in what was recorded of a decision."""
        history = self._known
        history.mark(number, attrs)
        if study_attrs:
            history.feed_study_attrs(study_attrs)

    @property
    def _known(self) -> History:
        if self._history is None:
            raise RuntimeError("the study is not loaded")
        return self._history

    def _drawn(self, history: History, number: int, point: Mapping[str, Json], key: str | None) -> Suggestion:
        """Let a new sampler choose, and the define-by-run function after it."""
        trial, chosen = self._asked(history, number, point)
        proxy = TrialProxy(trial, number, chosen, point)
        if self._suggest_more is not None:
            self._suggest_more(proxy)
        applying = proxy.chosen()
        attrs, study_attrs = history.written_by_sampler(number)
        proposal = Proposal(
            params=_stored(dict(applying.values())),
            extra={name: dimension for name, dimension in proxy.extra.items() if name in applying},
            attrs=attrs,
            enqueued=key,
        )
        return Suggestion(proposal=proposal, study_attrs=study_attrs)

    def _asked(self, history: History, number: int, point: Mapping[str, Json]) -> tuple[optuna.Trial, dict[Axis, Code]]:
        assert self._sampler is not None
        fixed = {axis.name: axis.external(_code(axis, point[axis.name])) for axis in self._axes if axis.name in point}
        with asked("sampler"), history.asking(fixed):
            history.study.sampler = sampler = self._sampler.sampler(number)
            answer_from(history.tally, sampler)
            history.study.pruner = bracket_pruner(self._pruners, history, number)
            trial = history.study.ask({axis.name: axis.distribution for axis in self._axes})
        params = history.entries[number].params
        return trial, {axis: axis.code_of(params[axis.name]) for axis in self._axes}


def _code(axis: Axis, value: Json) -> Code:
    code = axis.code(value)
    assert code is not None, "a checked point fits"
    return code


def _stored(chosen: Mapping[Axis, Code]) -> dict[str, Json]:
    return {axis.name: axis.stored(code) for axis, code in chosen.items()}
