"""An heir goes on from another trial's checkpoint: exactly, but with the hyperparameters that its config changed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import sweeper
from sweeper.errors import StateMismatch
from sweeper.trial.inheriting import taken_over
from tests.trial.lone_worker import START, LoneWorker, Save

EPOCHS, STEPS = 3, 4
HEIR = replace(START, inherited=True, config_hash="cd" * 32)

Optimizers: dict[str, Callable[[Any, float], torch.optim.Optimizer]] = {
    "sgd": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9),
    "adam": lambda p, lr: torch.optim.Adam(p, lr=lr),
}
lr_schedules = torch.optim.lr_scheduler
Schedulers: dict[str, Callable[[Any], Any] | None] = {
    "none": None,
    "step": lambda o: lr_schedules.StepLR(o, 3, gamma=0.5),
    "exponential": lambda o: lr_schedules.ExponentialLR(o, 0.9),
    "cosine": lambda o: lr_schedules.CosineAnnealingLR(o, T_max=20),
    "warm-up from zero": lambda o: lr_schedules.LambdaLR(o, lambda step: min(1.0, step / 8)),
    "restarts": lambda o: lr_schedules.CosineAnnealingWarmRestarts(o, T_0=3, T_mult=2),
    "one-cycle": lambda o: lr_schedules.OneCycleLR(o, max_lr=o.param_groups[0]["lr"], total_steps=20),
    "sequence": lambda o: lr_schedules.SequentialLR(
        o, [lr_schedules.LinearLR(o, 0.1, total_iters=3), lr_schedules.ExponentialLR(o, 0.9)], milestones=[3]
    ),
    "plateau": lambda o: lr_schedules.ReduceLROnPlateau(o, patience=1),
}


def make(
    lr: float,
    *,
    optimizer: str = "sgd",
    scheduler: str = "none",
    seen: list[float] | None = None,
    decay: float = 0.0,
    states: list[Any] | None = None,
) -> Callable[[], Any]:
    """Reports each step's loss; `seen` takes the learning rate used in it, `states` the optimizer's state before it."""

    def train() -> float:
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
        opt = Optimizers[optimizer](model.parameters(), lr)
        opt.param_groups[0]["weight_decay"] = decay
        build = Schedulers[scheduler]
        sched = None if build is None else build(opt)
        data = torch.randn(22, 4, generator=torch.Generator().manual_seed(5))
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), batch_size=6, shuffle=True)
        run = sweeper.resume(model=model, optimizer=opt, scheduler=sched)
        for _ in run.epochs(EPOCHS):
            for (x,) in run.batches(loader):
                if states is not None:
                    state = copy.deepcopy(opt.state_dict())
                    states.append((model[0].weight.detach().clone(), state["state"], state["param_groups"][0]))
                opt.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                if seen is not None:
                    seen.append(opt.param_groups[0]["lr"])
                opt.step()
                if sched is not None:
                    sched.step(1.0) if scheduler == "plateau" else sched.step()
                run.report(loss.item(), step=run.step)
        return next(model.parameters()).sum().item()

    return train


def saved(train: Callable[[], Any], at: int = 5) -> Save:
    """The source's checkpoint within its second epoch (or at `at`)."""
    source = LoneWorker(start=replace(START, every_s=0.0)).run(train)
    return next(save for save in source.saves if save.facts.step == at)


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", Schedulers)
@pytest.mark.parametrize("optimizer", Optimizers)
def test_an_heir_with_the_same_hyperparameters_goes_on_bit_for_bit_as_its_source(
    optimizer: str, scheduler: str
) -> None:
    """RESUME: model, moments, schedule, random state and the loader's place are the source's."""
    train = make(0.05, optimizer=optimizer, scheduler=scheduler)
    straight = LoneWorker().run(train)
    heir = LoneWorker(start=HEIR, restore=saved(train)).run(train)
    assert heir.value == straight.value
    assert [r.value for r in heir.reports] == [r.value for r in straight.reports[5:]]


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", Schedulers)
@pytest.mark.parametrize("optimizer", Optimizers)
@pytest.mark.parametrize("at", [1, 5])
def test_an_heirs_rate_is_where_its_own_schedule_would_stand_by_now(optimizer: str, scheduler: str, at: int) -> None:
    """The learning rate of the config wins over the restored one, also in mid-schedule and in mid-warm-up."""
    own: list[float] = []
    LoneWorker().run(make(0.2, optimizer=optimizer, scheduler=scheduler, seen=own))
    seen: list[float] = []
    heir = LoneWorker(start=HEIR, restore=saved(make(0.05, optimizer=optimizer, scheduler=scheduler), at))
    heir.run(make(0.2, optimizer=optimizer, scheduler=scheduler, seen=seen))
    assert seen == pytest.approx(own[at:], rel=1e-12)
    if scheduler == "none":
        assert set(seen) == {0.2}, "to the bit"


@pytest.mark.parametrize("optimizer", Optimizers)
def test_an_heir_takes_over_everything_but_what_its_config_changed(optimizer: str) -> None:
    """Weights, moments and step counts are the source's at the save, weight decay too; the rate is not."""
    at_save: list[Any] = []
    LoneWorker().run(make(0.05, optimizer=optimizer, decay=0.1, states=at_save))
    heirs: list[Any] = []
    heir = LoneWorker(start=HEIR, restore=saved(make(0.05, optimizer=optimizer, decay=0.1)))
    heir.run(make(0.2, optimizer=optimizer, decay=0.1, states=heirs))
    (weights, moments, options), (own_weights, own_moments, own_options) = at_save[5], heirs[0]
    assert torch.equal(weights, own_weights)
    assert moments.keys() == own_moments.keys()
    for key, moment in moments.items():
        assert all(torch.equal(value, own_moments[key][name]) for name, value in moment.items())
    assert options | {"lr": 0.2} == own_options
    assert options["weight_decay"] == 0.1


def test_what_training_code_did_to_a_rate_by_hand_is_kept_in_proportion() -> None:
    def train(lr: float, seen: list[float]) -> Callable[[], Any]:
        def run_it() -> None:
            model = torch.nn.Linear(2, 1)
            opt = torch.optim.SGD(model.parameters(), lr=lr)
            run = sweeper.resume(model=model, optimizer=opt)
            for _ in run.epochs(4):
                opt.param_groups[0]["lr"] *= 0.5
                seen.extend(opt.param_groups[0]["lr"] for _ in run.steps(2))

        return run_it

    source = LoneWorker(start=replace(START, every_s=0.0)).run(train(0.8, []))
    seen: list[float] = []
    LoneWorker(start=HEIR, restore=source.saves[2]).run(train(0.08, seen))
    assert source.saves[2].facts.step == 3
    assert seen == pytest.approx([0.02, 0.01, 0.01, 0.005, 0.005])


def test_an_heir_that_is_interrupted_resumes_bit_for_bit_by_itself() -> None:
    """RESUME: its own checkpoints are restored as they are; nothing is taken in proportion a second time."""
    source = saved(make(0.05, scheduler="cosine"))
    heir = LoneWorker(start=replace(HEIR, every_s=0.0), restore=source).run(make(0.2, scheduler="cosine"))
    for save in heir.saves:
        own = replace(HEIR, inherited=False, attempt=2)
        assert LoneWorker(start=own, restore=save).run(make(0.2, scheduler="cosine")).value == heir.value


def test_an_heir_of_an_heir_compares_with_what_the_heir_was_made_with() -> None:
    first = saved(make(0.05, scheduler="step"), at=4)
    second = LoneWorker(start=replace(HEIR, every_s=0.0), restore=first).run(make(0.2, scheduler="step"))
    own: list[float] = []
    LoneWorker().run(make(0.1, scheduler="step", seen=own))
    seen: list[float] = []
    LoneWorker(start=HEIR, restore=second.saves[2]).run(make(0.1, scheduler="step", seen=seen))
    assert seen == pytest.approx(own[second.saves[2].facts.step :])


def test_a_changed_setting_of_a_schedule_is_the_heirs_own() -> None:
    """`T_max` and `gamma` are in the scheduler's state, and would be the source's otherwise."""

    def train(period: int, found: list[Any]) -> Callable[[], Any]:
        def run_it() -> None:
            model = torch.nn.Linear(2, 1)
            opt = torch.optim.SGD(model.parameters(), lr=1.0)
            sched = lr_schedules.CosineAnnealingLR(opt, T_max=period)
            run = sweeper.resume(model=model, optimizer=opt, scheduler=sched)
            for _ in run.steps(6):
                opt.step()
                sched.step()
                found.append((sched.T_max, sched.last_epoch))

        return run_it

    source = LoneWorker(start=replace(START, every_s=0.0)).run(train(10, []))
    found: list[Any] = []
    LoneWorker(start=HEIR, restore=source.saves[1]).run(train(40, found))
    assert found == [(40, 3), (40, 4), (40, 5), (40, 6)]


def test_another_kind_of_optimizer_cannot_be_inherited() -> None:
    with pytest.raises(StateMismatch, match="it was SGD, is Adam"):
        LoneWorker(start=HEIR, restore=saved(make(0.05))).run(make(0.05, optimizer="adam"))


@pytest.mark.parametrize(
    ("was", "source", "live", "expected"),
    [
        (0.5, 1.0, 1.0, 0.5),  # made alike
        (1.0, 1.0, 3.0, 3.0),  # not moved
        (0.5, 1.0, 3.0, 1.5),  # moved: in proportion
        (20, 10, 5, 10),  # whole numbers stay whole
        (0.5, 0.0, 3.0, 3.0),  # no proportion to zero
        (True, False, "x", "x"),  # not numbers
        ("b", "a", "c", "c"),
        ({"a": 2.0, "b": 5}, {"a": 1.0, "b": 5}, {"a": 3.0, "b": 5}, {"a": 6.0, "b": 5}),
        ({3: 1}, {3: 1}, {5: 1, 7: 1}, {5: 1, 7: 1}),
        ([2.0, 7], [1.0, 7], [3.0, 7], [6.0, 7]),
        ((0.8, 0.999), (0.9, 0.999), (0.9, 0.99), (0.8, 0.99)),
        (float("inf"), 1.0, 2.0, 2.0),
        (float("nan"), float("nan"), 2.0, 2.0),
    ],
)
def test_saved_made_and_own_values_give_the_heirs(was: Any, source: Any, live: Any, expected: Any) -> None:
    found = taken_over(was, source=source, live=live)
    assert found == expected
    assert type(found) is type(expected)


def test_tensors_among_the_options_are_told_apart_by_value() -> None:
    was, source, live = torch.tensor(0.5), torch.tensor(1.0), torch.tensor(3.0)
    assert torch.equal(taken_over(was, source=source, live=live), torch.tensor(1.5))
    assert taken_over(source.clone(), source=source, live=live) is live
    assert taken_over(was, source=source, live=source.clone()) is was
