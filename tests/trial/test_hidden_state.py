"""RESUME: what training depends on besides `state_dict`: references that the script holds, modes, gradients."""

from __future__ import annotations

import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import sweeper
from sweeper.trial.refill import refill
from tests.trial.lone_worker import START, LoneWorker, Save, assert_resumes_exactly

EAGER = replace(START, every_s=0.0)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1))


def loader() -> torch.utils.data.DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    return torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.randn(12, 4, generator=generator)), batch_size=4, shuffle=True
    )


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> float:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), x[:, :1])
    loss.backward()
    optimizer.step()
    return loss.item()


def test_containers_of_the_state_that_the_script_holds_stay_the_ones_that_are_saved() -> None:
    def train() -> Any:
        run = sweeper.resume()
        history = run.state.setdefault("history", [])
        counts = run.state.setdefault("counts", {"by": Counter(), "recent": deque(maxlen=3)})
        average = run.state.setdefault("average", torch.zeros(2))
        array = run.state.setdefault("array", np.zeros(2))
        for _ in run.epochs(2):
            for index in run.steps(3):
                history.append(random.random())
                counts["by"][index] += 1
                counts["recent"].append(index)
                average += torch.rand(2)
                array += np.random.rand(2)
        return [run.state["history"], dict(run.state["counts"]["by"]), list(run.state["counts"]["recent"]),
                run.state["average"].tolist(), run.state["array"].tolist()]  # fmt: skip

    assert_resumes_exactly(lambda: train)


@pytest.mark.parametrize(
    "make",
    [lambda: [1, [2]], lambda: {"b": 1, "a": [2]}, lambda: {1, 2}, lambda: deque([1, [2]], maxlen=2),
     lambda: OrderedDict(b=1, a=2), lambda: Counter("aab"), lambda: defaultdict(list, {1: [2]}),
     lambda: bytearray(b"ab"), lambda: torch.rand(3), lambda: np.arange(3.0)],
)  # fmt: skip
def test_a_live_container_is_filled_in_place(make: Callable[[], Any]) -> None:
    live, saved = {"x": make()}, {"x": make()}
    held = live["x"]
    if isinstance(held, set | bytearray | list | deque):
        held.clear()
    elif isinstance(held, dict):
        held["later"] = 7
    else:
        held += 1
    refill(live, saved)
    assert live["x"] is held
    assert type(held) is type(saved["x"])
    assert str(held) == str(saved["x"]), "the order of a mapping is part of it"


def test_what_does_not_fit_is_replaced_and_nothing_is_used_twice() -> None:
    shared: list[Any] = [1]
    base = torch.zeros(4)
    live = {"a": shared, "b": shared, "c": [1], "d": deque([1], maxlen=2), "e": base[:2], "f": base, "g": np.zeros(2)}
    saved = {"a": [2], "b": [3], "c": (4,), "d": deque([5], maxlen=3), "e": torch.ones(2), "f": torch.full((4,), 2.0),
             "g": np.ones(3)}  # fmt: skip
    refill(live, saved)
    assert (live["a"], live["b"], live["c"], live["d"]) == ([2], [3], (4,), deque([5], maxlen=3))
    assert (live["e"].tolist(), live["f"].tolist(), live["g"].tolist()) == ([1, 1], [2, 2, 2, 2], [1, 1, 1])


def test_parameter_groups_that_the_script_holds_stay_the_optimizers() -> None:
    def train() -> Any:
        model = net()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        run = sweeper.resume(model=model, optimizer=optimizer)
        groups, group, state = optimizer.param_groups, optimizer.param_groups[0], optimizer.state
        for _ in run.epochs(2):
            for (x,) in run.batches(loader()):
                step(model, optimizer, x)
                group["lr"] *= 0.9
        assert groups is optimizer.param_groups
        assert state is optimizer.state
        return optimizer.param_groups[0]["lr"]

    assert_resumes_exactly(lambda: train)


def test_a_mode_that_was_set_before_the_loops_is_what_it_was() -> None:
    """`train()` once above the loops and `eval()` after each epoch: from the second epoch on dropout is off."""

    def train() -> Any:
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        run = sweeper.resume(model=model, optimizer=optimizer)
        model.train()
        for epoch in run.epochs(3):
            for (x,) in run.batches(loader()):
                loss = step(model, optimizer, x)
            model.eval()
            model[1].train(epoch == 0)
            run.report(loss)
        return loss, [part.training for part in model.modules()]

    assert_resumes_exactly(lambda: train)


def test_layers_that_were_unfrozen_in_an_earlier_epoch_stay_unfrozen() -> None:
    def train() -> Any:
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        run = sweeper.resume(model=model, optimizer=optimizer)
        model[0].requires_grad_(False)
        for epoch in run.epochs(4):
            if epoch == 1:
                model[0].requires_grad_(True)
            for (x,) in run.batches(loader()):
                loss = step(model, optimizer, x)
            run.report(loss)
        return loss

    assert_resumes_exactly(lambda: train)


def test_wrappers_take_the_mode_of_the_model_in_them() -> None:
    def train(wrap: Callable[[nn.Module], nn.Module]) -> Callable[[], list[bool]]:
        def run_it() -> list[bool]:
            model = wrap(net())
            run = sweeper.resume(model=model)
            for _ in run.epochs(3):
                for _ in run.steps(2):
                    pass
                model.eval()
            return [part.training for part in model.modules()]

        return run_it

    save = LoneWorker(start=EAGER).run(train(lambda model: model)).saves[-1]
    for wrap in (nn.DataParallel, lambda model: torch.compile(model, backend="eager")):
        assert not any(LoneWorker(restore=save).run(train(wrap)).value)


# -- gradients ---------------------------------------------------------------------------------------------------------


def two_optimizers() -> Any:
    """The first steps in every batch, the second gathers gradients over four."""
    first, second = net(), net()
    often, seldom = torch.optim.Adam(first.parameters()), torch.optim.Adam(second.parameters())
    run = sweeper.resume(first=first, second=second, often=often, seldom=seldom)
    for _ in run.epochs(3):
        for (x,) in run.batches(loader()):
            step(first, often, x)
            second(x).square().mean().backward()
            if run.step % 4 == 0:
                seldom.step()
                seldom.zero_grad()
    return second(torch.ones(2, 4)).sum().item()


def backward_after_the_step() -> Any:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    run = sweeper.resume(model=model, optimizer=optimizer)
    for _ in run.epochs(3):
        for (x,) in run.batches(loader()):
            optimizer.step()
            optimizer.zero_grad()
            model(x).square().mean().backward()
    return model(torch.ones(2, 4)).sum().item()


def never_cleared() -> Any:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = sweeper.resume(model=model, optimizer=optimizer)
    for _ in run.epochs(3):
        for (x,) in run.batches(loader()):
            model(x).square().mean().backward()
            optimizer.step()
    return model(torch.ones(2, 4)).sum().item()


def cleared_to_zero() -> Any:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = sweeper.resume(model=model, optimizer=optimizer)
    for _ in run.epochs(3):
        for (x,) in run.batches(loader()):
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
    return model(torch.ones(2, 4)).sum().item()


def sparse_embedding() -> Any:
    model = nn.Embedding(10, 3, sparse=True)
    optimizer = torch.optim.SparseAdam(model.parameters())
    run = sweeper.resume(model=model, optimizer=optimizer)
    for _ in run.epochs(2):
        for _ in run.steps(6):
            model(torch.randint(10, (4,))).square().sum().backward()
            if run.step % 2 == 0:
                optimizer.step()
                optimizer.zero_grad()
    return model.weight.sum().item()


def adversarial() -> Any:
    """The generator's backward pass leaves gradients in the discriminator, after that has stepped."""
    generator, discriminator = net(), nn.Linear(1, 1)
    ours, theirs = torch.optim.Adam(generator.parameters()), torch.optim.Adam(discriminator.parameters())
    run = sweeper.resume(generator=generator, discriminator=discriminator, ours=ours, theirs=theirs)
    for _ in run.epochs(2):
        for (x,) in run.batches(loader()):
            theirs.zero_grad()
            fake = generator(x)
            (discriminator(x[:, :1]).mean() - discriminator(fake.detach()).mean()).backward()
            theirs.step()
            ours.zero_grad()
            discriminator(fake).mean().backward()
            ours.step()
    return discriminator.weight.item()


def own_optimizer() -> Any:
    """An optimizer that is not torch's own: nobody says when it steps."""

    class Sign:
        def __init__(self, model: nn.Module) -> None:
            self.model, self.steps = model, 0

        def step(self) -> None:
            self.steps += 1
            with torch.no_grad():
                for parameter in self.model.parameters():
                    if parameter.grad is not None:
                        parameter -= 0.01 * parameter.grad.sign()

        def state_dict(self) -> dict[str, int]:
            return {"steps": self.steps}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.steps = state["steps"]

    model = net()
    optimizer = Sign(model)
    run = sweeper.resume(model=model, optimizer=optimizer)
    for _ in run.epochs(2):
        for (x,) in run.batches(loader()):
            model(x).square().mean().backward()
            if run.step % 2 == 0:
                optimizer.step()
                model.zero_grad()
    return model(torch.ones(2, 4)).sum().item()


@pytest.mark.parametrize(
    "train",
    [two_optimizers, backward_after_the_step, never_cleared, cleared_to_zero, sparse_embedding, adversarial,
     own_optimizer],
)  # fmt: skip
def test_gradients_that_still_have_a_use_travel(train: Callable[[], Any]) -> None:
    assert_resumes_exactly(lambda: train)


def test_used_gradients_that_are_cleared_take_no_room() -> None:
    def train() -> None:
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        run = sweeper.resume(model=model, optimizer=optimizer)
        for _ in run.steps(5):
            step(model, optimizer, torch.rand(4, 4))

    worker = LoneWorker(start=EAGER).run(train)
    blocks = [len(save.layout.tensors) for save in worker.saves]
    assert blocks[0] == blocks[1] + len(list(net().parameters())), "after one step nobody knows yet"
    assert len(set(blocks[1:])) == 1


def test_a_save_before_an_eviction_does_not_wait_for_accumulated_gradients() -> None:
    def train() -> Any:
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        run = sweeper.resume(model=model, optimizer=optimizer)
        for _ in run.steps(20):
            model(torch.rand(4, 4)).square().mean().backward()
            if run.step == 2 and run.attempt == 1 and worker.start is START:
                worker.stop()
            if run.step % 10 == 0:
                optimizer.step()
                optimizer.zero_grad()
        return model(torch.ones(2, 4)).sum().item()

    worker = LoneWorker(start=replace(START, attempt=1))
    straight = worker.run(train)
    worker = LoneWorker(start=START)
    stopped = worker.run(train)
    assert [save.facts.step for save in stopped.saves] == [2]
    worker = LoneWorker(start=replace(START, attempt=2), restore=stopped.saves[0])
    assert worker.run(train).value == straight.value


# -- objects with a state of their own ---------------------------------------------------------------------------------


class Meter:
    """Empty when made, filled while training."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def state_dict(self) -> dict[str, float]:
        return dict(self.values)

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.values = dict(state)


def test_an_object_may_be_empty_when_it_is_made_and_full_when_it_is_saved() -> None:
    def train() -> Any:
        meter = Meter()
        run = sweeper.resume(meter=meter)
        for epoch in run.epochs(2):
            for index in run.steps(3):
                meter.values[f"{epoch} {index}"] = random.random()
        return meter.values

    def late(save: Save) -> bool:
        return save.facts.step > 1

    assert_resumes_exactly(lambda: train, at=late)
