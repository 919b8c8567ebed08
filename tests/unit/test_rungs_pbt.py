"""Population-based training: who follows whom, and with which parameters."""

import math
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.ids import TrialId
from sweeper.model.rungs import exploit_source, scheduler_from
from sweeper.model.rungs.explore import explored, perturbed, resampled, seeded
from sweeper.model.rungs.nodes import PbtRules
from sweeper.model.search import DecisionKind, SearchSpec
from sweeper.model.space import Choices, Dimension, FloatRange, IntRange, Space
from sweeper.model.states import TrialState
from sweeper.model.trial import Json
from tests.unit.rungs_world import World

SPACE: Space = {
    "lr": FloatRange(low=1e-4, high=1.0, log=True),
    "dropout": FloatRange(low=0.0, high=0.5, step=0.1),
    "layers": IntRange(low=1, high=9, step=2),
    "width": IntRange(low=8, high=1024, log=True),
    "kind": Choices(values=("a", None, 1, {"$float": "inf"})),
}
NODE: dict[str, Json] = {"kind": "pbt", "interval": 3, "max_resource": 9}


def spec_of(n_trials: int, **changes: Json) -> SearchSpec:
    return SearchSpec(scheduler={**NODE, **changes}, n_trials=n_trials, space=SPACE)


def drawn(seed: int, count: int) -> list[dict[str, Json]]:
    rng = random.Random(seed)
    return [{name: resampled(dimension, rng.random()) for name, dimension in SPACE.items()} for _ in range(count)]


def world(seed: int, n_trials: int, *, places: int = 1, restarts: float = 0.0, crashes: float = 0.0) -> World:
    rng = random.Random(seed)
    quality = [math.nan if rng.random() < 0.1 else rng.random() for _ in range(n_trials)]
    return World(
        spec=spec_of(n_trials),
        curve=lambda number, step: quality[number] + 1 / step,
        length=9,
        places=places,
        params=drawn(seed, n_trials),
        faults=random.Random(seed),
        restart_probability=restarts,
        crash_probability=crashes,
    ).run()


cases = st.tuples(st.integers(0, 10_000), st.integers(1, 14), st.integers(1, 5))


@given(case=cases)
@settings(max_examples=40)
def test_the_worst_follow_the_best_and_everybody_trains_to_the_end(case: tuple[int, int, int]) -> None:
    seed, n_trials, places = case
    found = world(seed, n_trials, places=places)
    assert found.numbers(TrialState.COMPLETED) == list(range(n_trials))
    assert found.epochs == 9 * n_trials
    share = min(math.ceil(n_trials / 4), n_trials // 2)
    exploits = found.of_kind(DecisionKind.EXPLOIT)
    for generation in (3, 6):
        heirs = [row.number for row in exploits if row.facts["rung"] == generation]
        sources = {exploit_source(row) for row in exploits if row.facts["rung"] == generation}
        assert len(heirs) <= share
        assert len(heirs) == len(set(heirs))
        assert not sources & set(heirs)
        for source in sources:
            assert not math.isnan(found.curve(source, generation))
            for heir in heirs:
                assert not found.curve(heir, generation) < found.curve(source, generation)


@given(case=cases, restarts=st.sampled_from([0.1, 0.9]))
@settings(max_examples=30)
def test_a_restarted_coordinator_draws_the_same_heirs_and_parameters(
    case: tuple[int, int, int], restarts: float
) -> None:
    """SAME: the randomness depends on seed, number and generation only."""
    seed, n_trials, places = case
    undisturbed = world(seed, n_trials, places=places)
    disturbed = world(seed, n_trials, places=places, restarts=restarts)
    assert repr(disturbed.rows) == repr(undisturbed.rows)  # NaN is no reason to differ
    assert world(seed, n_trials, places=1).inherited == undisturbed.inherited


@given(case=cases)
@settings(max_examples=40)
def test_members_that_fail_hold_nobody_up(case: tuple[int, int, int]) -> None:
    seed, n_trials, places = case
    found = world(seed, n_trials, places=places, crashes=0.03)
    assert set(found.standing.values()) <= {TrialState.COMPLETED, TrialState.FAILED}


def test_heirs_move_what_their_source_has_now_not_what_it_began_with() -> None:
    found = World(
        spec=spec_of(8, resample_probability=0.0, mutate=["lr"]),
        curve=lambda number, step: float(number if step < 6 else (number + 2) % 8),
        length=9,
        params=[{"lr": 0.01 * (1 + number), "layers": 1} for number in range(8)],
    ).run()
    rate = {number: 0.01 * (1 + number) for number in range(8)}
    exploits = found.of_kind(DecisionKind.EXPLOIT)
    assert [(row.number, row.facts["rung"]) for row in exploits] == [(6, 3), (7, 3), (4, 6), (5, 6)]
    for row in exploits:
        params = row.facts["params"]
        assert isinstance(params, dict)
        assert isinstance(params["lr"], float)
        assert math.isclose(params["lr"] / rate[exploit_source(row)], 0.8) or math.isclose(
            params["lr"] / rate[exploit_source(row)], 1.2
        )
        rate[row.number] = params["lr"]
    assert {exploit_source(row) for row in exploits[2:]} <= {6, 7}


def test_an_exploit_that_cannot_be_lets_its_trial_go_on_as_it_is() -> None:
    scheduler = scheduler_from(spec_of(2), seed=0)
    assert scheduler is not None
    standing: dict[int, TrialState | None] = dict.fromkeys(range(2), TrialState.PAUSED)
    for number in range(2):
        scheduler.feed_params(number, drawn(0, 2)[number])
        scheduler.on_report(
            trial_id=TrialId(number), number=number, lineage=0, step=3, value=float(number), standing=standing
        )
    exploit = scheduler.next_move(standing)
    assert exploit is not None
    assert (exploit.kind, exploit.number, exploit_source(exploit)) == (DecisionKind.EXPLOIT, 1, 0)
    instead = scheduler.go_on_instead(exploit)
    assert (instead.kind, instead.number, instead.step) == (DecisionKind.PROMOTE, 1, 3)
    scheduler.feed(instead)
    standing[1] = TrialState.PENDING
    move = scheduler.next_move(standing)
    assert move is not None
    assert (move.kind, move.number) == (DecisionKind.PROMOTE, 0)


def test_nobody_goes_on_before_the_whole_population_has_paused() -> None:
    scheduler = scheduler_from(spec_of(3), seed=0)
    assert scheduler is not None
    standing: dict[int, TrialState | None] = {}
    for number in range(3):
        standing[number] = TrialState.RUNNING
        scheduler.feed_params(number, drawn(0, 3)[number])
        scheduler.on_report(
            trial_id=TrialId(number), number=number, lineage=0, step=3, value=float(number), standing=standing
        )
        assert scheduler.next_move(standing) is None
        standing[number] = TrialState.PAUSED
    assert scheduler.next_move(standing) is not None


dimensions: st.SearchStrategy[Dimension] = st.one_of(
    st.builds(
        lambda low, width, step: FloatRange(low=low, high=low + width, step=step),
        st.floats(-5, 5),
        st.floats(0.5, 5),
        st.sampled_from([None, 0.25, 0.5]),
    ),
    st.builds(
        lambda low, width, log: FloatRange(low=low, high=low + width, log=log),
        st.floats(1e-6, 5),
        st.floats(0.5, 5),
        st.booleans(),
    ),
    st.builds(
        lambda low, width, step: IntRange(low=low, high=low + width, step=step),
        st.integers(-5, 5),
        st.integers(0, 9),
        st.integers(1, 3),
    ),
    st.builds(lambda low, width: IntRange(low=low, high=low + width, log=True), st.integers(1, 5), st.integers(0, 100)),
    st.just(SPACE["kind"]),
)


def fits(value: Json, dimension: Dimension) -> bool:
    match dimension:
        case Choices():
            return dimension.position(value) is not None
        case IntRange():
            inside = isinstance(value, int) and dimension.low <= value <= dimension.high
            return inside and (value - dimension.low) % dimension.step == 0  # type: ignore[operator]
        case FloatRange():
            assert isinstance(value, float)
            steps = 0.0 if dimension.step is None else (value - dimension.low) / dimension.step
            return dimension.low <= value <= dimension.high and abs(steps - round(steps)) < 1e-9


@given(dimension=dimensions, start=st.floats(0, 1, exclude_max=True), factor=st.floats(0.1, 5), upwards=st.booleans())
def test_what_is_explored_stays_in_its_dimension(
    dimension: Dimension, start: float, factor: float, upwards: bool
) -> None:
    value = resampled(dimension, start)
    assert fits(value, dimension)
    assert fits(perturbed(value, dimension, factor=factor, upwards=upwards), dimension)


def test_the_last_value_of_a_grid_is_never_above_its_end() -> None:
    tenths = FloatRange(low=0.0, high=0.3, step=0.1)
    assert resampled(tenths, 0.99) == 0.3
    assert perturbed(0.2, tenths, factor=2.0, upwards=True) == 0.3


def test_a_small_integer_moves_although_its_factor_rounds_to_itself() -> None:
    layers = IntRange(low=1, high=9)
    assert perturbed(2, layers, factor=1.2, upwards=True) == 3
    assert perturbed(2, layers, factor=0.8, upwards=True) == 1
    assert perturbed(9, layers, factor=1.2, upwards=True) == 9


def test_choices_move_to_a_neighbour_and_stay_at_the_ends() -> None:
    kind = SPACE["kind"]
    assert perturbed(None, kind, factor=0.8, upwards=True) == 1
    assert perturbed(None, kind, factor=1.2, upwards=False) == "a"
    assert perturbed("a", kind, factor=1.2, upwards=False) == "a"


def test_only_what_is_to_be_mutated_changes_and_absent_parameters_stay_absent() -> None:
    params: dict[str, Json] = {"lr": 0.01, "layers": 3, "width": 64}
    rules = PbtRules(interval=1, mutate=("lr",), resample_probability=0.0)
    found = explored(params, SPACE, rules, seeded(0, 0, 1))
    assert found["lr"] in (0.008, 0.012)
    assert {name: value for name, value in found.items() if name != "lr"} == {"layers": 3, "width": 64}
