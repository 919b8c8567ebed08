"""Schedulers decide from rows alone: once per rung, never too many, the same after any restart (SAME)."""

import math
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.errors import UserError
from sweeper.ids import TrialId
from sweeper.model.rungs import check_scheduler, scheduler_from
from sweeper.model.search import Decision, DecisionKind, Direction, SearchSpec
from sweeper.model.space import Choices, FloatRange
from sweeper.model.states import TrialState
from sweeper.model.trial import Json
from tests.unit.rungs_world import World

ASHA: dict[str, Json] = {"kind": "asha", "min_resource": 1, "max_resource": 9, "reduction_factor": 3}
STOP: dict[str, Json] = {**ASHA, "mode": "stop"}
HYPERBAND: dict[str, Json] = {"kind": "hyperband", "max_resource": 9, "reduction_factor": 3}
RUNNING = TrialState.RUNNING


def spec_of(node: dict[str, Json], n_trials: int = 27, direction: Direction = Direction.MINIMIZE) -> SearchSpec:
    return SearchSpec(scheduler=node, n_trials=n_trials, directions=(direction,))


def noisy(seed: int) -> World:
    """Curves that cross now and then; some trials diverge."""
    rng = random.Random(seed)
    quality = [rng.random() for _ in range(200)]
    noise = [[rng.gauss(0, 0.2) for _ in range(100)] for _ in range(200)]
    diverged = [rng.random() < 0.1 for _ in range(200)]

    def curve(number: int, step: int) -> float:
        return math.nan if diverged[number] else quality[number] + noise[number][step] / step

    return World(spec=spec_of(ASHA), curve=curve, length=9)


def promoted_at(world: World, rung: int, rows: int | None = None) -> list[int]:
    """Numbers that went on beyond a rung, in order."""
    return [row.number for row in world.rows[:rows] if row.facts.get("rung") == rung and row.action == "go_on"]


def seen_at(world: World, rung: int, rows: int | None = None) -> list[int]:
    found = world.rows[:rows]
    return [row.number for row in found if row.kind is DecisionKind.RUNG and row.facts.get("rung") == rung]


worlds = st.builds(
    lambda seed, n_trials, places, node, crashes: (seed, n_trials, places, node, crashes),
    st.integers(0, 10_000),
    st.integers(1, 30),
    st.integers(1, 5),
    st.sampled_from([ASHA, {**ASHA, "reduction_factor": 2}, {**ASHA, "max_resource": None}, STOP, HYPERBAND]),
    st.sampled_from([0.0, 0.05]),
)


def built(case: tuple[int, int, int, dict[str, Json], float], *, restarts: float) -> World:
    seed, n_trials, places, node, crashes = case
    world = noisy(seed)
    return World(
        spec=spec_of(node, n_trials),
        curve=world.curve,
        length=9,
        places=places,
        faults=random.Random(seed),
        crash_probability=crashes,
        restart_probability=restarts,
    ).run()


@given(case=worlds)
@settings(max_examples=120)
def test_every_search_ends_with_each_trial_once_at_a_rung_and_somebody_at_the_end(
    case: tuple[int, int, int, dict[str, Json], float],
) -> None:
    world = built(case, restarts=0.0)
    node = world.spec.scheduler
    assert node is not None
    assert set(world.standing.values()) <= {TrialState.COMPLETED, TrialState.PRUNED, TrialState.FAILED}
    assert len(world.standing) == world.spec.n_trials
    rungs = {row.facts["rung"] for row in world.rows if "rung" in row.facts}
    for rung in rungs:
        assert isinstance(rung, int)
        assert max(Counter(seen_at(world, rung)).values()) == 1
        assert max(Counter(promoted_at(world, rung)).values(), default=1) == 1
        assert set(promoted_at(world, rung)) <= set(seen_at(world, rung))
    if case[-1] == 0.0 and not (node == STOP and not any(math.isfinite(world.curve(n, 1)) for n in world.standing)):
        assert world.numbers(TrialState.COMPLETED)


@given(case=worlds, restarts=st.sampled_from([0.1, 0.9]))
@settings(max_examples=60)
def test_a_coordinator_that_restarts_decides_as_one_that_does_not(
    case: tuple[int, int, int, dict[str, Json], float], restarts: float
) -> None:
    """SAME; crashes are left out, since both runs would draw them differently."""
    case = (*case[:4], 0.0)
    assert repr(built(case, restarts=restarts).rows) == repr(built(case, restarts=0.0).rows)


@given(case=worlds)
@settings(max_examples=60)
def test_promotion_never_lets_more_than_the_share_of_a_rung_go_on(
    case: tuple[int, int, int, dict[str, Json], float],
) -> None:
    if case[3]["kind"] != "asha" or case[3] == STOP:
        return
    world = built(case, restarts=0.0)
    eta = case[3]["reduction_factor"]
    assert isinstance(eta, int)
    for count in range(len(world.rows) + 1):
        closing = world.closed_at is not None and count > world.closed_at
        if closing:
            break
        for rung in (1, eta, eta * eta):
            assert len(promoted_at(world, rung, count)) <= len(seen_at(world, rung, count)) // eta


@pytest.mark.parametrize("direction", list(Direction))
def test_promotion_finds_the_best_with_a_third_of_the_budget(direction: Direction) -> None:
    rng = random.Random(3)
    quality = [rng.random() for _ in range(27)]
    sign = 1 if direction is Direction.MINIMIZE else -1
    world = World(
        spec=spec_of(ASHA, 27, direction), curve=lambda number, step: sign * (quality[number] + 1 / step), length=9
    ).run()
    best = quality.index(min(quality))
    assert best in world.numbers(TrialState.COMPLETED)
    assert world.epochs <= 27 * 9 / 3


def test_a_sampler_that_gets_better_all_the_time_does_not_make_everybody_go_on() -> None:
    world = World(spec=spec_of(ASHA), curve=lambda number, step: -float(number), length=9).run()
    assert len(promoted_at(world, 1)) == 9
    assert len(promoted_at(world, 3)) == 3
    assert world.numbers(TrialState.COMPLETED) == promoted_at(world, 3)
    assert 26 in world.numbers(TrialState.COMPLETED)


def test_the_best_goes_on_though_it_came_after_the_last_place_of_its_rung() -> None:
    world = World(spec=spec_of(ASHA, 20), curve=lambda number, step: -float(number), length=9).run()
    assert 19 in world.numbers(TrialState.COMPLETED)


def test_the_highest_rung_that_has_somebody_due_is_served_first_and_without_any_a_new_trial_begins() -> None:
    scheduler = scheduler_from(spec_of(ASHA), seed=0)
    assert scheduler is not None
    standing: dict[int, TrialState | None] = {}

    def report(number: int, step: int) -> None:
        row = scheduler.on_report(
            trial_id=TrialId(number), number=number, lineage=0, step=step, value=float(number), standing=standing
        )
        assert row.action == "pause"
        standing[number] = TrialState.PAUSED

    def moves() -> list[tuple[int, Json]]:
        found = []
        while (move := scheduler.next_move(standing)) is not None:
            scheduler.feed(move)
            standing[move.number] = RUNNING
            found.append((move.number, move.facts["rung"]))
        return found

    for number in range(9):
        report(number, 1)
    assert moves() == [(0, 1), (1, 1), (2, 1)]
    for number in range(3):
        report(number, 3)
    for number in range(9, 12):
        report(number, 1)
    assert moves() == [(0, 3), (3, 1)]


def test_nobody_is_left_over_while_somebody_still_goes_on() -> None:
    scheduler = scheduler_from(spec_of(ASHA), seed=0)
    assert scheduler is not None
    standing: dict[int, TrialState | None] = dict.fromkeys(range(2), TrialState.PAUSED)
    for number, value in ((0, 2.0), (1, 1.0)):
        scheduler.on_report(trial_id=TrialId(number), number=number, lineage=0, step=1, value=value, standing=standing)
    assert scheduler.left_over(standing) == ()
    move = scheduler.next_move(standing, closing=True)
    assert move is not None
    assert move.number == 1
    scheduler.feed(move)
    standing[1] = TrialState.COMPLETED
    (left,) = scheduler.left_over(standing)
    assert (left.number, left.step, left.value) == (0, 1, 2.0)


def test_a_trial_that_is_due_when_it_comes_goes_on_without_a_pause() -> None:
    world = World(spec=spec_of(ASHA, 3), curve=lambda number, step: -float(number), length=9).run()
    first_at_rung = {row.number: row.action for row in world.of_kind(DecisionKind.RUNG) if row.facts.get("rung") == 1}
    assert first_at_rung == {0: "pause", 1: "pause", 2: "go_on"}


def test_better_trials_on_their_way_to_a_pause_keep_their_place() -> None:
    scheduler = scheduler_from(spec_of(ASHA), seed=0)
    assert scheduler is not None
    standing: dict[int, TrialState | None] = dict.fromkeys(range(3), RUNNING)
    for number, value in ((0, 5.0), (1, 1.0), (2, 2.0)):
        scheduler.on_report(trial_id=TrialId(number), number=number, lineage=0, step=1, value=value, standing=standing)
    standing[0] = standing[2] = TrialState.PAUSED
    assert scheduler.next_move(standing) is None
    standing[1] = TrialState.PAUSED
    move = scheduler.next_move(standing)
    assert move is not None
    assert move.number == 1
    standing[1] = TrialState.FAILED
    move = scheduler.next_move(standing)
    assert move is not None
    assert move.number == 2


@pytest.mark.parametrize(("first", "rung_steps"), [(0, {0: 1, 2: 3}), (1, {1: 1, 3: 3})])
def test_steps_counted_from_zero_come_to_a_rung_one_earlier(first: int, rung_steps: dict[int, int]) -> None:
    scheduler = scheduler_from(spec_of(STOP), seed=0)
    assert scheduler is not None
    found = {}
    for step in range(first, first + 6):
        row = scheduler.on_report(trial_id=TrialId(1), number=0, lineage=0, step=step, value=1.0, standing={0: RUNNING})
        if "rung" in row.facts:
            found[step] = row.facts["rung"]
    assert found == rung_steps


def test_a_report_beyond_several_rungs_counts_at_the_highest_and_the_end_is_no_rung() -> None:
    scheduler = scheduler_from(spec_of(ASHA), seed=0)
    assert scheduler is not None

    def row_at(number: int, step: int) -> Decision:
        return scheduler.on_report(
            trial_id=TrialId(number), number=number, lineage=0, step=step, value=1.0, standing={number: RUNNING}
        )

    assert row_at(0, 5).facts == {"rung": 3}
    assert row_at(0, 6).facts == {}
    assert row_at(1, 9).facts == {}
    assert row_at(1, 9).action == "go_on"


def test_a_history_that_was_cut_starts_over_and_its_old_evidence_counts_nowhere() -> None:
    scheduler = scheduler_from(spec_of(ASHA), seed=0)
    assert scheduler is not None
    standing: dict[int, TrialState | None] = dict.fromkeys(range(3), RUNNING)
    for number in range(3):
        scheduler.on_report(
            trial_id=TrialId(number), number=number, lineage=0, step=1, value=float(number), standing=standing
        )
        standing[number] = TrialState.PAUSED
    again = scheduler.on_report(trial_id=TrialId(0), number=0, lineage=1, step=1, value=9.0, standing=standing)
    assert again.action == "pause"
    move = scheduler.next_move(standing)
    assert move is not None
    assert move.number == 1


def test_stopping_lets_on_who_is_among_the_best_third_so_far_and_never_nan() -> None:
    scheduler = scheduler_from(spec_of(STOP), seed=0)
    assert scheduler is not None
    actions = [
        scheduler.on_report(
            trial_id=TrialId(number), number=number, lineage=0, step=1, value=value, standing={number: RUNNING}
        ).action
        for number, value in enumerate([math.nan, 5.0, 6.0, 4.0, 4.5, -math.inf, math.inf])
    ]
    assert actions == ["prune", "go_on", "prune", "go_on", "prune", "go_on", "prune"]


def test_hyperband_fills_the_papers_brackets_by_number() -> None:
    """Li et al. 2018, table 1, for R = 81 and eta = 3."""
    from sweeper.model.rungs.hyperband import brackets
    from sweeper.model.rungs.nodes import HyperbandRules

    found = brackets(HyperbandRules(max_resource=81, reduction_factor=3))
    assert [bracket.size for bracket in found] == [81, 34, 15, 8, 5]
    assert [bracket.rungs for bracket in found] == [(1, 3, 9, 27), (3, 9, 27), (9, 27), (27,), ()]


@given(seed=st.integers(0, 10_000), places=st.integers(1, 5))
@settings(max_examples=30)
def test_hyperband_waits_for_a_whole_rung_and_lets_its_best_third_go_on(seed: int, places: int) -> None:
    curve = noisy(seed).curve
    world = World(spec=spec_of(HYPERBAND, 9 + 5 + 3), curve=curve, length=9, places=places).run()

    def rank(number: int, step: int) -> tuple[bool, float, int]:
        value = curve(number, step)
        return (math.isnan(value), 0.0 if math.isnan(value) else value, number)

    assert sorted(promoted_at(world, 1)) == sorted(sorted(range(9), key=lambda n: rank(n, 1))[:3])
    second = promoted_at(world, 1)
    first_of_next = sorted(range(9, 14), key=lambda n: rank(n, 3))[:1]
    assert sorted(promoted_at(world, 3)) == sorted(sorted(second, key=lambda n: rank(n, 3))[:1] + first_of_next)
    assert len(world.numbers(TrialState.COMPLETED)) == 1 + 1 + 3


def test_numbers_without_a_trial_and_failed_members_count_as_a_brackets_worst() -> None:
    scheduler = scheduler_from(spec_of(HYPERBAND), seed=0)
    assert scheduler is not None
    standing: dict[int, TrialState | None] = dict.fromkeys(range(9), RUNNING)
    standing[1], standing[2] = None, TrialState.FAILED
    for number in (0, 3, 4, 5, 6, 7):
        scheduler.on_report(
            trial_id=TrialId(number), number=number, lineage=0, step=1, value=float(number), standing=standing
        )
        standing[number] = TrialState.PAUSED
    assert scheduler.next_move(standing) is None
    last = scheduler.on_report(trial_id=TrialId(8), number=8, lineage=0, step=1, value=-1.0, standing=standing)
    assert last.action == "go_on"
    order = []
    while (move := scheduler.next_move(standing)) is not None:
        scheduler.feed(move)
        standing[move.number] = RUNNING
        order.append(move.number)
    assert order == [0, 3]


def test_hyperband_waits_at_no_rung_for_trials_that_report_too_seldom_for_it() -> None:
    """With a report at every fourth step a bracket of rungs 1 and 3 compares at 3; it used to wait at 1 for ever."""
    scheduler = scheduler_from(spec_of(HYPERBAND), seed=0)
    assert scheduler is not None
    standing: dict[int, TrialState | None] = dict.fromkeys(range(9), RUNNING)
    for number in range(9):
        row = scheduler.on_report(
            trial_id=TrialId(number), number=number, lineage=0, step=4, value=float(number), standing=standing
        )
        assert (row.facts, row.action) == ({"rung": 3}, "pause")
        standing[number] = TrialState.PAUSED
    order = []
    while (move := scheduler.next_move(standing)) is not None:
        scheduler.feed(move)
        standing[move.number] = RUNNING
        order.append(move.number)
    assert order == [0, 1, 2]


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ({"kind": "sha"}, "scheduler.kind is 'sha'"),
        ({}, "scheduler.kind is None"),
        ({**ASHA, "mode": "half"}, "scheduler.mode is 'half'"),
        ({**ASHA, "min_resource": 0}, "scheduler.min_resource is 0"),
        ({**ASHA, "min_resource": True}, "scheduler.min_resource is True"),
        ({**ASHA, "min_resource": 1.5}, "scheduler.min_resource is 1.5"),
        ({**ASHA, "reduction_factor": 1}, "scheduler.reduction_factor is 1"),
        ({**ASHA, "min_resource": 9}, "nothing would be compared"),
        ({**ASHA, "grace_period": 3}, "scheduler.grace_period is no setting of asha"),
        ({"kind": "hyperband"}, "scheduler.max_resource is not set"),
        ({"kind": "pbt"}, "scheduler.interval is not set"),
        ({"kind": "pbt", "interval": 3, "quantile": 0.6}, "scheduler.quantile is 0.6"),
        ({"kind": "pbt", "interval": 3, "perturb_factors": []}, "scheduler.perturb_factors is []"),
        ({"kind": "pbt", "interval": 3, "perturb_factors": [0.8, -1]}, "scheduler.perturb_factors"),
        ({"kind": "pbt", "interval": 3, "mutate": ["momentum"]}, "scheduler.mutate is ['momentum']"),
        ({"kind": "pbt", "interval": 3, "max_resource": 3}, "nothing would be compared"),
    ],
)
def test_a_bad_node_is_named_with_what_may_stand_there(node: dict[str, Json], told: str) -> None:
    spec = SearchSpec(scheduler=node, space={"lr": FloatRange(low=0, high=1), "kind": Choices(values=("a",))})
    with pytest.raises(UserError) as refused:
        check_scheduler(spec)
    assert told in refused.value.message
    assert refused.value.remedy


def test_several_objectives_cannot_be_compared_at_rungs() -> None:
    with pytest.raises(UserError, match="2 objectives"):
        check_scheduler(SearchSpec(scheduler=ASHA, directions=(Direction.MINIMIZE, Direction.MAXIMIZE)))


def test_a_search_without_a_scheduler_has_none() -> None:
    assert scheduler_from(SearchSpec(), seed=0) is None
