"""Numbers of a search: given once, each with all that a sampler needs to know later."""

from __future__ import annotations

from typing import Any

import pytest

from sweeper.errors import CoordinatorLost, NumberTaken
from sweeper.ids import SweepId, TrialNumber
from sweeper.ledger.commands import cancel_trials
from sweeper.ledger.database import Database
from sweeper.ledger.decisions import decided, decisions
from sweeper.ledger.enqueued import enqueue, next_enqueued
from sweeper.ledger.proposals import Added, history, numbered
from sweeper.ledger.reads import trials
from sweeper.ledger.requests import request_trials, retire_asker
from sweeper.ledger.results import commit_result
from sweeper.ledger.searches import finish_search, search_standing, study_attrs
from sweeper.model.search import DecisionKind, Numbered, Proposal, SearchSpec
from sweeper.model.space import Choices, FloatRange, IntRange
from sweeper.model.states import AttemptOutcome, ObjectiveFault, PointSource, SweepState, TrialState
from tests.ledger.search_world import SearchWorld, new_number
from tests.ledger.world import Clock, new_trial, new_trials

NAN = float("nan")


def test_a_new_config_becomes_a_trial_that_workers_may_lease(search: SearchWorld) -> None:
    added = search.propose(0, "a")
    (trial,) = trials(search.db, search.sweep_id)
    assert added == Added(trial_id=trial.trial_id, alias=False, first_number=0, state=TrialState.PENDING)
    assert (trial.requested, trial.overrides, trial.params) == (True, ("x=a",), {"x": 0.0})
    assert search.lease().config_text == '{"x":"a"}'


def test_a_known_config_is_an_alias_that_has_the_same_trial(search: SearchWorld) -> None:
    """A repeat takes a number, counts, and is answered from what is stored (ONCE)."""
    first = search.propose(0, "a")
    search.complete(search.lease().lease, 2.5)
    again = search.propose(1, "a")
    assert again == Added(trial_id=first.trial_id, alias=True, first_number=0, state=TrialState.COMPLETED)
    alias = search.numbered(1)
    assert alias.is_alias
    assert (alias.state, alias.result, alias.proposal.params) == (TrialState.COMPLETED, 2.5, {"x": 0.1})
    assert len(trials(search.db, search.sweep_id)) == 1


def test_a_refused_number_has_a_reason_and_no_trial(search: SearchWorld) -> None:
    added = search.propose(0, refused="cannot be composed")
    assert added == Added(trial_id=None, alias=False, first_number=None, state=None)
    row = search.numbered(0)
    assert (row.trial_id, row.state, row.is_alias) == (None, None, False)
    assert search.sql("SELECT reason FROM sweeper.numbers")[0].reason == "cannot be composed"
    assert search_standing(search.db, search.sweep_id).next_number == 1


@pytest.mark.parametrize("given", [{"name": "a"}, {"refused": "cannot be composed"}])
def test_a_repeated_call_is_answered_as_the_first_time(search: SearchWorld, given: dict[str, Any]) -> None:
    first = search.propose(0, **given, study_attrs={"k": 1})
    before = search.sql("SELECT t::text FROM sweeper.trials t UNION ALL SELECT n::text FROM sweeper.numbers n")
    assert search.propose(0, **given, study_attrs={"k": 1}) == first
    assert search.sql("SELECT t::text FROM sweeper.trials t UNION ALL SELECT n::text FROM sweeper.numbers n") == before
    assert search_standing(search.db, search.sweep_id).next_number == 1


@pytest.mark.parametrize(("number", "name"), [(0, "b"), (2, "b"), (0, None)])
def test_a_number_that_is_not_the_next_one_is_not_given(search: SearchWorld, number: int, name: str | None) -> None:
    """SAME. What the proposal rests on is out of date: the history has to be read anew."""
    search.propose(0, "a")
    with pytest.raises(NumberTaken) as taken:
        search.propose(number, name, refused=None if name else "cannot be composed")
    assert taken.value.next_number == 1
    assert len(history(search.db, search.sweep_id)) == 1


def test_a_coordinator_that_was_replaced_proposes_nothing(search: SearchWorld) -> None:
    """FENCE. Not even its own proposal again: whoever leads now may have read it already."""
    search.propose(0, "a")
    search.lose_the_lead()
    for number, name in ((0, "a"), (1, "b")):
        with pytest.raises(CoordinatorLost):
            search.propose(number, name, study_attrs={"k": 1})
    assert len(history(search.db, search.sweep_id)) == 1
    assert study_attrs(search.db, search.sweep_id) == {}


def test_a_coordinator_of_a_sweep_that_was_deleted_proposes_nothing(search: SearchWorld) -> None:
    search.sql("DELETE FROM sweeper.sweeps")
    with pytest.raises(CoordinatorLost):
        search.propose(0, "a")


def test_a_trial_that_somebody_asked_for_by_name_shifts_the_numbers(search: SearchWorld) -> None:
    """Whoever adds a trial raises the next number, so the winner knows that its config is new."""
    request_trials(search.db, search.sweep_id, search.asker_id, new_trials(1))
    with pytest.raises(NumberTaken):
        search.propose(0, "c0")
    assert search.propose(1, "c0").alias
    assert search.numbered(0).proposal == Proposal()


def test_a_proposal_whose_command_is_taken_for_dead_keeps_its_number(search: SearchWorld) -> None:
    retire_asker(search.db, search.asker_id)
    search.propose(0)
    assert [trial.requested for trial in trials(search.db, search.sweep_id)] == [False]


def test_what_a_proposal_changed_in_the_study_is_kept_with_it(search: SearchWorld) -> None:
    """No state of a sampler is ever lost; numbers keep their text (TRUTH)."""
    search.propose(0, study_attrs={"qmc": 1, "big": 1e300, "one": 1.0})
    search.propose(1, study_attrs={"qmc": 2, "deep": {"$tuple": [1, 2.0, "a\x00\ud800"]}})
    search.propose(2)
    attrs = study_attrs(search.db, search.sweep_id)
    assert attrs == {"qmc": 2, "big": 1e300, "one": 1.0, "deep": {"$tuple": [1, 2.0, "a\x00\ud800"]}}
    assert isinstance(attrs["one"], float)


def several(first: int = 0) -> list[Any]:
    """A new config, a known one (if `p0` is), a refused one, a new one, and the first again."""
    return [
        new_number(first, f"n{first}", study_attrs={"k": 1, "only": 1}),
        new_number(first + 1, "p0"),
        new_number(first + 2, refused="cannot be composed"),
        new_number(first + 3, enqueued="k1"),
        new_number(first + 4, f"n{first}", study_attrs={"k": 2}),
    ]


def test_numbers_given_together_are_as_if_given_one_by_one(search: SearchWorld) -> None:
    """ONCE, SAME. Repeats of configs of the same statement are aliases too."""
    enqueue(search.db, search.sweep_id, [("k1", {"x": 0.5})], source=PointSource.CONFIG)
    search.propose(0)
    search.complete(search.lease().lease, 2.5)
    added = search.propose_all(*several(1))
    assert [(one.first_number, one.alias, one.state) for one in added] == [
        (1, False, TrialState.PENDING),
        (0, True, TrialState.COMPLETED),
        (None, False, None),
        (4, False, TrialState.PENDING),
        (1, True, TrialState.PENDING),
    ]
    rows = history(search.db, search.sweep_id)
    assert [row.first_number for row in rows] == [0, 1, 0, None, 4, 1]
    assert [row.trial_id for row in rows[1:]] == [one.trial_id for one in added]
    assert [row.proposal.params["x"] for row in rows] == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    assert study_attrs(search.db, search.sweep_id) == {"k": 2, "only": 1}
    assert next_enqueued(search.db, search.sweep_id) is None
    assert [trial.number for trial in trials(search.db, search.sweep_id)] == [0, 1, 4]
    assert [search.lease().number for _ in range(2)] == [1, 4]


def test_numbers_given_together_are_given_again_all_or_none(search: SearchWorld) -> None:
    first = search.propose_all(*several())
    assert search.propose_all(*several()) == first
    assert len(history(search.db, search.sweep_id)) == 5
    for other in ([*several()[:4], new_number(4, "other")], [*several()[2:], new_number(5)]):
        with pytest.raises(NumberTaken) as taken:
            search.propose_all(*other)
        assert taken.value.next_number == 5
    assert len(history(search.db, search.sweep_id)) == 5


def test_an_enqueued_point_is_tried_once(search: SearchWorld) -> None:
    """OP-13."""
    enqueue(search.db, search.sweep_id, [("k1", {"x": 0.5}), ("k2", {"x": 0.25})], source=PointSource.CONFIG)
    assert next_enqueued(search.db, search.sweep_id) == ("k1", {"x": 0.5})
    search.propose(0, enqueued="k1")
    assert next_enqueued(search.db, search.sweep_id) == ("k2", {"x": 0.25})
    search.propose(0, enqueued="k1")
    assert next_enqueued(search.db, search.sweep_id) == ("k2", {"x": 0.25})
    assert search.numbered(0).proposal.enqueued == "k1"


def test_history_has_every_number_as_it_stands(search: SearchWorld) -> None:
    """Results and faults; reports only where a sampler needs them: of pruned and paused trials."""
    extra = {"n": IntRange(low=1, high=9), "c": Choices(values=(1, 1.0, True)), "f": FloatRange(low=1.0, high=2.0)}
    proposal = Proposal(params={"x": 0.0, "n": 3}, extra=extra, attrs={"a": {"$tuple": [1]}})
    search.propose(0, params=proposal.params, extra=extra, attrs=proposal.attrs)
    completed = search.lease()
    search.report(completed.lease, 1)
    search.complete(completed.lease, {"$float": "nan"})
    search.propose(1)
    pruned = search.lease()
    search.report(pruned.lease, 2, value=NAN)
    search.report(pruned.lease, 1, value=1e300)
    search.commit_pruned(pruned.lease, 1.0)
    search.propose(2)
    commit_result(
        search.db, search.lease().lease, state=TrialState.FAILED, outcome=AttemptOutcome.INVALID, result=None,
        reason="", outcome_key=None, outcome_hash=None, outcome_stored=False, fault=ObjectiveFault.NAN,
    )  # fmt: skip
    search.pause(3)
    search.propose(4, refused="no")
    search.propose(5, "p1")
    search.propose(6)
    rows = history(search.db, search.sweep_id)
    assert [row.number for row in rows] == list(range(7))
    assert rows[0].proposal == proposal
    assert [row.state and row.state.value for row in rows] == [
        "completed", "pruned", "failed", "paused", None, "pruned", "pending",
    ]  # fmt: skip
    assert [row.result for row in rows] == [{"$float": "nan"}, 1.0, None, None, None, 1.0, None]
    assert [row.fault for row in rows] == [None, None, ObjectiveFault.NAN, None, None, None, None]
    assert [[report.step for report in row.reports] for row in rows] == [[], [1, 2], [], [1], [], [1, 2], []]
    values = [report.value for report in rows[1].reports]
    assert values[0] == 1e300
    assert values[1] != values[1]
    assert rows[5].reports is rows[1].reports or len(rows[5].reports) == 2
    assert [row.is_alias for row in rows] == [False] * 5 + [True, False]


def test_history_can_be_read_in_parts_and_by_number(search: SearchWorld) -> None:
    for number in range(5):
        search.propose(number)
    everything = history(search.db, search.sweep_id)
    assert history(search.db, search.sweep_id, first=3) == everything[3:]
    assert history(search.db, search.sweep_id, first=1, limit=2) == everything[1:3]
    assert history(search.db, search.sweep_id, first=9) == []
    assert numbered(search.db, search.sweep_id, [4, 0]) == [everything[0], everything[4]]
    assert numbered(search.db, search.sweep_id, []) == []
    assert numbered(search.db, SweepId("none"), [1]) == []


def test_text_that_a_column_could_not_hold_is_read_back_as_it_was(db: Database, clock: Clock) -> None:
    """TRUTH. A choice may be any text, and so may what a function returns."""
    odd = "a\x00b\ud800\u674e"
    space = {"c": Choices(values=(odd, "b"))}
    search = SearchWorld.begin(db, clock, search=SearchSpec(space=space, n_trials=1, pruner={"_target_": odd}))
    search.propose(0, params={"c": odd}, attrs={"a": odd}, study_attrs={"s": odd})
    grant = search.lease()
    search.report(grant.lease, 1)
    search.decide(search.decision(grant, 1, facts={"f": odd}))
    assert decided(db, grant.lease.trial_id, 0, 1) is not None
    search.complete(grant.lease, {"said": odd})
    row = search.numbered(0)
    assert (row.proposal.params, row.proposal.attrs, row.result) == ({"c": odd}, {"a": odd}, {"said": odd})
    assert study_attrs(db, search.sweep_id) == {"s": odd}
    assert decisions(db, search.sweep_id, kinds=[DecisionKind.REPORT])[0].facts == {"f": odd}
    finish_search(db, search.sweep_id)
    assert search_standing(db, search.sweep_id).state is SweepState.FINISHED


def test_a_forged_proposal_is_data_and_nothing_else(search: SearchWorld) -> None:
    """SAFE."""
    search.propose(0)
    for forged in ('{"q": 1}', "[1]", '{"p": {}, "x": [["n", {"kind": "pickle"}]]}'):
        search.sql("UPDATE sweeper.numbers SET proposal = CAST(:p AS json)", p=forged)
        with pytest.raises(ValueError, match="not a"):
            history(search.db, search.sweep_id)


def test_a_trial_that_goes_on_as_an_heir_shows_what_it_has_now(search: SearchWorld) -> None:
    """Its number was given for other parameters; those stay in its row."""
    search.pause(0)
    heir = search.pause(1)
    assert search.exploit(heir, 0)
    row = search.numbered(1)
    assert (row.lineage, row.proposal.params, row.state) == (1, {"x": 0.9}, TrialState.PENDING)
    assert search.sql("SELECT proposal FROM sweeper.numbers WHERE number = 1")[0].proposal == {"p": {"x": 0.1}}


def test_a_cancelled_trial_is_cancelled_for_all_its_numbers(search: SearchWorld) -> None:
    search.propose(0, "a")
    search.propose(1, "a")
    cancel_trials(search.db, search.sweep_id, [1])
    assert [row.state for row in history(search.db, search.sweep_id)] == [TrialState.CANCELLED] * 2


def test_a_new_trial_for_a_config_is_named_as_the_number_says(search: SearchWorld) -> None:
    assert search.propose(0).first_number == TrialNumber(0)
    assert new_trial("p0").config_hash == trials(search.db, search.sweep_id)[0].config_hash
    assert isinstance(search.numbered(0), Numbered)
