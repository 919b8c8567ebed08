"""Registered objects load strictly by name, in all directions, or are refused before training with what differs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import sweeper
from sweeper.errors import StateMismatch, UnsavableValue, UserError
from tests.trial.lone_worker import START, Killed, LoneWorker, Save, assert_resumes_exactly, refused

EAGER = replace(START, every_s=0.0)


def net(width: int = 4, names: tuple[str, str] = ("first", "second")) -> nn.Module:
    module = nn.Module()
    module.add_module(names[0], nn.Linear(3, width))
    module.add_module(names[1], nn.Linear(width, 1))
    return module


def saved(**objects: Any) -> Save:
    def train() -> None:
        run = sweeper.resume(**objects)
        for _ in run.steps(2):
            pass

    return LoneWorker(start=EAGER).run(train).saves[0]


def load(save: Save, **objects: Any) -> LoneWorker:
    def resume_and_die() -> None:
        sweeper.resume(**objects)
        raise Killed

    return LoneWorker(restore=save).run(resume_and_die)


def same_parameters(left: nn.Module, right: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left.parameters(), right.parameters(), strict=True))


Wrappers: dict[str, Callable[[nn.Module], Any]] = {
    "bare": lambda module: module,
    "compiled": lambda module: torch.compile(module, backend="eager"),
    "data-parallel": lambda module: nn.DataParallel(module),
    "both": lambda module: torch.compile(nn.DataParallel(module), backend="eager"),
}


@pytest.mark.parametrize("now", Wrappers)
@pytest.mark.parametrize("before", Wrappers)
def test_wrappers_leave_no_prefix_and_load_strictly_in_all_directions(before: str, now: str) -> None:
    """CK-06."""
    old, new = net(), net()
    wrapped = Wrappers[before](old)
    save = saved(model=wrapped, optimizer=torch.optim.AdamW(wrapped.parameters()))
    target = Wrappers[now](new)
    load(save, model=target, optimizer=torch.optim.AdamW(target.parameters()))
    assert same_parameters(old, new)


def test_a_compiled_submodule_loads_into_a_plain_one_and_back() -> None:
    """CK-06."""
    old, new = net(), net()
    old.first = torch.compile(old.first, backend="eager")
    load(saved(model=old), model=new)
    assert same_parameters(old, new)
    again = net()
    again.second = torch.compile(again.second, backend="eager")
    load(saved(model=new), model=again)
    assert same_parameters(new, again)


@pytest.mark.parametrize(
    ("now", "difference"),
    [
        (lambda: net(names=("first", "third")), r"second\.bias is saved but not in the model.*third\.bias is in the"),
        (lambda: net(width=5), r"first\.bias was \[4\] float32 and is \[5\] float32"),
        (lambda: net().double(), r"first\.bias was \[4\] float32 and is \[4\] float64"),
    ],
    ids=["renamed layer", "changed shape", "changed dtype"],
)
def test_a_model_that_does_not_fit_is_refused_and_left_alone(now: Callable[[], nn.Module], difference: str) -> None:
    """CK-06: never a partial load."""
    save = saved(model=net())
    live = now()
    before = [parameter.clone() for parameter in live.parameters()]
    with pytest.raises(StateMismatch, match=difference):
        load(save, model=live)
    assert all(torch.equal(a, b) for a, b in zip(before, live.parameters(), strict=True))


def test_nothing_is_touched_when_a_later_object_does_not_fit() -> None:
    old, live = net(), net()
    save = saved(model=old, optimizer=torch.optim.SGD(old.parameters(), lr=0.1))
    before = [parameter.clone() for parameter in live.parameters()]
    with pytest.raises(StateMismatch, match="optimizer: it was SGD, is AdamW"):
        load(save, model=live, optimizer=torch.optim.AdamW(live.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(before, live.parameters(), strict=True))


def test_optimizer_state_follows_the_parameters_names_not_their_positions() -> None:
    def train(order: Callable[[list[Any]], list[Any]]) -> Callable[[], Any]:
        def run_it() -> Any:
            model = net()
            optimizer = torch.optim.AdamW(order(list(model.parameters())))
            run = sweeper.resume(model=model, optimizer=optimizer)
            for _ in run.steps(4):
                optimizer.zero_grad()
                (model.second(model.first(torch.rand(2, 3)))).sum().backward()
                optimizer.step()
            return [parameter.tolist() for parameter in model.parameters()]

        return run_it

    straight = LoneWorker(start=EAGER).run(train(list))
    reordered = LoneWorker(restore=straight.saves[1]).run(train(lambda parameters: parameters[::-1]))
    assert reordered.value == straight.value


def test_groups_must_hold_the_same_parameters() -> None:
    model = net()
    save = saved(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    live = net()
    with pytest.raises(StateMismatch, match=r"group 0 no longer has model\.second\.bias"):
        load(save, model=live, optimizer=torch.optim.SGD(live.first.parameters(), lr=0.1))
    groups = [{"params": live.first.parameters()}, {"params": live.second.parameters()}]
    with pytest.raises(StateMismatch, match="had 1 parameter groups and has 2"):
        load(save, model=live, optimizer=torch.optim.SGD(groups, lr=0.1))


def test_an_optimizer_with_a_parameter_of_no_registered_module_is_refused() -> None:
    model, stranger = net(), nn.Linear(2, 2)
    optimizer = torch.optim.SGD([*model.parameters(), *stranger.parameters()], lr=0.1)
    refused(lambda: sweeper.resume(model=model, optimizer=optimizer), UserError, "belong to no registered module")
    LoneWorker().run(lambda: sweeper.resume(model=model, stranger=stranger, optimizer=optimizer))


def test_other_names_than_saved_are_refused() -> None:
    with pytest.raises(StateMismatch, match=r"holds model, but sweeper\.resume\(\.\.\.\) was given ema, model"):
        load(saved(model=net()), model=net(), ema=net())


def test_a_disabled_scaler_into_an_enabled_one_is_a_mismatch_and_not_corruption() -> None:
    save = saved(scaler=torch.amp.GradScaler("cpu", enabled=False))
    with pytest.raises(StateMismatch, match="was disabled when saved and is enabled now"):
        load(save, scaler=torch.amp.GradScaler("cpu", enabled=True))


def test_what_cannot_be_registered_or_saved_is_refused_at_resume() -> None:
    class Odd(nn.Module):
        def get_extra_state(self) -> Any:
            return lambda: None

    refused(lambda: sweeper.resume(x=3), UserError, "has no state_dict and load_state_dict")
    refused(lambda: sweeper.resume(model=nn.Linear), UserError, "was given the class Linear")
    refused(lambda: sweeper.resume(nn.Linear(1, 1)), UserError, "was given a Linear without a name")
    refused(lambda: sweeper.resume(model=nn.LazyLinear(1)), UnsavableValue, "weight: this lazy layer has no shape yet")
    refused(lambda: sweeper.resume(model=Odd()), UnsavableValue, "registered.*_extra_state: a builtins.function")


def test_none_is_left_out() -> None:
    load(saved(model=net(), scheduler=None), model=net())


def test_an_averaged_model_and_anything_with_a_state_travel() -> None:
    class Best:
        def __init__(self) -> None:
            self.values: list[Any] = []

        def state_dict(self) -> dict[str, Any]:
            return {"values": self.values}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.values = state["values"]

    def train() -> Any:
        model = net()
        average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        best = Best()
        run = sweeper.resume(model=model, average=average, optimizer=optimizer, best=best)
        for _ in run.epochs(2):
            for _ in run.steps(3):
                optimizer.zero_grad()
                model.second(model.first(torch.rand(2, 3))).sum().backward()
                optimizer.step()
                average.update_parameters(model)
                best.values.append(next(average.parameters()).sum().item())
        return best.values

    assert_resumes_exactly(lambda: train)


def test_tied_weights_stay_tied() -> None:
    def train() -> Any:
        model = net(width=3)
        model.second = nn.Linear(3, 3)
        model.second.weight = model.first.weight
        optimizer = torch.optim.AdamW(model.parameters())
        run = sweeper.resume(model=model, optimizer=optimizer)
        for _ in run.steps(5):
            optimizer.zero_grad()
            model.second(model.first(torch.rand(2, 3))).sum().backward()
            optimizer.step()
        assert model.second.weight is model.first.weight
        return model.first.weight.tolist()

    assert_resumes_exactly(lambda: train)


def test_registered_generators_of_every_kind_go_on_where_they_were() -> None:
    """CK-04."""

    def train() -> Any:
        generators = {
            "a": torch.Generator().manual_seed(1), "b": np.random.default_rng(2), "c": np.random.RandomState(3),
            "d": random.Random(4), "e": np.random.Generator(np.random.Philox(5)), "f": np.random.MT19937(6),
        }  # fmt: skip
        run = sweeper.resume(**generators)
        seen: list[Any] = run.state.setdefault("seen", [])
        for _ in run.epochs(2):
            run.state["top"] = generators["b"].random()
            for _ in run.steps(3):
                seen = run.state["seen"]
                seen += [torch.rand((), generator=generators["a"]).item(), generators["b"].random(),
                         generators["c"].rand(), generators["d"].random(), generators["e"].random(),
                         int(generators["f"].random_raw()), random.gauss(0, 1), np.random.randn(),
                         torch.randn(()).item()]  # fmt: skip
        return run.state["seen"]

    assert_resumes_exactly(lambda: train)


def test_a_config_node_in_the_state_is_refused_with_the_reason() -> None:
    """CK-04: never a run that goes on with half of its state."""
    from omegaconf import OmegaConf

    def train() -> None:
        run = sweeper.resume()
        run.state["cfg"] = OmegaConf.create({"a": 1})
        for _ in run.steps(3):
            pass

    worker = LoneWorker(start=EAGER).run(train)
    assert worker.saves == []
    assert "progress.state.cfg: a omegaconf.dictconfig.DictConfig has no exact form" in worker.failures[0].detail


def test_which_parameters_have_a_gradient_is_state() -> None:
    """An optimizer with weight decay moves a parameter whose gradient is zero, and skips one whose gradient is None."""

    def train() -> Any:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.5)
        run = sweeper.resume(model=model, optimizer=optimizer)
        for _ in run.steps(6):
            optimizer.zero_grad(set_to_none=False)
            used = model.first(torch.rand(2, 3))
            (model.second(used) if run.step == 1 else used).sum().backward()
            optimizer.step()
        return model.second.weight.tolist()

    assert_resumes_exactly(lambda: train)


def test_saved_bytes_equal_a_synchronous_save_even_if_state_changes_right_after() -> None:
    model = net()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)

    def scribble(worker: LoneWorker, save: Save) -> None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(2.0)

    def train() -> None:
        run = sweeper.resume(model=model)
        run.state["list"] = [1]
        for _ in run.steps(3):
            run.checkpoint()
            if run.step == 2:
                run.state["list"].append(2)

    worker = LoneWorker(on_save=scribble).run(train)
    first = net()
    seen: dict[str, Any] = {}

    def look() -> None:
        seen.update(sweeper.resume(model=first).state)
        raise Killed

    LoneWorker(restore=worker.saves[0]).run(look)
    assert {parameter.unique().item() for parameter in first.parameters()} == {1.0}
    assert seen == {"list": [1]}
