"""The study in memory: exactly one entry per number, each made from its row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.study import Study, StudyDirection

from sweeper.model.search import Direction, Numbered, Proposal, SearchSpec
from sweeper.model.trial import Json
from sweeper.search.attributes import AttributeRules
from sweeper.search.axes import Axis, External
from sweeper.search.entries import Entry, EntryStorage
from sweeper.search.layouts import Tally
from sweeper.search.quiet import quiet
from sweeper.search.rows import FAILED, RUNNING, EntryMaker, Placed, Standing, standing_of
from sweeper.search.seeds import study_name
from sweeper.search.visits import Visits

_DIRECTIONS = {Direction.MINIMIZE: StudyDirection.MINIMIZE, Direction.MAXIMIZE: StudyDirection.MAXIMIZE}


class History:
    """A study, what is counted of it, and the rows that later ones refer to."""

    def __init__(
        self, spec: SearchSpec, axes: tuple[Axis, ...], rules: AttributeRules, visits: Visits, *, seed: int
    ) -> None:
        self.entries_from = EntryMaker(spec, axes, rules)
        self.visits = visits
        self.tally = Tally()
        directions = [_DIRECTIONS[direction] for direction in spec.directions]
        self.storage = EntryStorage(directions, study_name(seed), self.entries_from.nothing)
        with quiet():
            self.study: Study = optuna.create_study(
                storage=self.storage,
                study_name=study_name(seed),
                directions=directions,
                sampler=optuna.samplers.RandomSampler(seed=0),
                pruner=optuna.pruners.NopPruner(),
            )
        self._rules = rules
        self._alias_rows: dict[int, list[Numbered]] = {}
        self._attrs_before: dict[str, Any] = {}  # Any: what samplers wrote
        self._marks: dict[int, dict[str, Any]] = {}  # Any: what a pruner wrote
        self.aliases: set[int] = set()
        """Numbers that point at another one's trial."""
        self.lineages: dict[int, int] = {}
        """Of trials that a decision may be about, by their own number."""

    @property
    def entries(self) -> Sequence[Entry]:
        """All entries, by number."""
        return self.storage.entries

    def feed_study_attrs(self, attrs: Mapping[str, Json]) -> None:
        """Take study attributes of rows in."""
        self.storage.study_attrs = {**self.storage.study_attrs, **self._rules.fed(attrs, of_study=True)}

    def suggested(self, number: int, proposal: Proposal) -> None:
        """Put a proposal into the study as running: what a row will say once it is committed."""
        self._put(number, proposal, self.entries_from.placed(proposal), RUNNING)

    def take(self, row: Numbered) -> None:
        """Take in the row of a number that was just committed, or is read again."""
        placed = self.entries_from.placed(row.proposal)
        self.visits.visit(
            None if placed is None else self.entries_from.known_as(placed),
            repeated=row.is_alias,
            chosen=row.proposal.enqueued is None,
        )
        self._put(row.number, row.proposal, placed, self._aliased(row) if row.is_alias else self._stand(row))

    def correct(self, row: Numbered) -> None:
        """Let a number that was taken in as a new trial be an alias."""
        self._put(row.number, row.proposal, self.entries_from.placed(row.proposal), self._aliased(row))

    def change(self, row: Numbered) -> None:
        """Let a trial stand otherwise, and with it all numbers that point at it."""
        standing = self._stand(row)
        self._put(row.number, row.proposal, self.entries_from.placed(row.proposal), standing)
        for alias in self._alias_rows.get(row.number, ()):
            self._put(alias.number, alias.proposal, self.entries_from.placed(alias.proposal), standing)

    @contextmanager
    def asking(self, fixed: Mapping[str, External]) -> Iterator[None]:
        """Let a sampler be asked for the next number, with some parameters fixed."""
        self.storage.fixed, self.storage.written = fixed, {}
        self._attrs_before = self.storage.study_attrs
        try:
            yield
        finally:
            self.storage.fixed = {}

    def written_by_sampler(self, number: int) -> tuple[dict[str, Json], dict[str, Json]]:
        """Give what the sampler wrote, as rows keep it: into the entry, and into the study.

        The study goes on with what will come back from the rows, not with what was written.
        """
        attrs = self._rules.stored(self.storage.entries[number].system_attrs)
        study_attrs = self._rules.stored(self.storage.written, of_study=True)
        self.storage.study_attrs = self._attrs_before
        self.feed_study_attrs(study_attrs)
        return attrs, study_attrs

    def mark(self, number: int, attrs: Mapping[str, Json]) -> None:
        """Write what a pruner wants to know later into a trial's entry."""
        marks = self._rules.fed(attrs)
        if not marks:
            return
        self._marks.setdefault(number, {}).update(marks)
        entry = self.storage.entries[number]
        entry.system_attrs = {**entry.system_attrs, **marks}

    def _aliased(self, row: Numbered) -> Standing:
        """The study decides how its trial stands: its row may be ahead of what the search is to know by now."""
        assert row.first_number is not None, "an alias has a trial"
        self._alias_rows.setdefault(row.first_number, []).append(row)
        self.aliases.add(row.number)
        return standing_of(self.entries[row.first_number])

    def _stand(self, row: Numbered) -> Standing:
        if row.trial_id is None:
            return FAILED
        if row.lineage != self.lineages.get(row.number, 0):
            self.lineages[row.number] = row.lineage
            self._marks.pop(row.number, None)  # evidence of another lineage is void
        return self.entries_from.standing(row)

    def _put(self, number: int, proposal: Proposal, placed: Placed | None, standing: Standing) -> None:
        entry = self.entries_from.entry(number, proposal, placed, standing, self._marks.get(number))
        if number < len(self.storage.entries):
            before = self.storage.replace(entry)
            self.tally.count(before.layout, before.state, -1)
        else:
            self.storage.append(entry)
        self.tally.count(entry.layout, entry.state)
