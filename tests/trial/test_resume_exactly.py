"""RESUME: a resumed run is bit-identical to an undisturbed one, whatever optimizer, schedule or precision it uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import sweeper
from tests.trial.lone_worker import assert_resumes_exactly

EPOCHS = 3


class Net(nn.Module):
    """Dropout and BatchNorm: randomness and buffers in every forward pass."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 1)
        ).to(dtype)  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def data(count: int = 22) -> torch.utils.data.TensorDataset:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(count, 6, generator=generator)
    return torch.utils.data.TensorDataset(x, (x.sum(1, keepdim=True) > 0).float())


Optimizers: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd-momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.05),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3, history_size=4),
}
Schedulers: dict[str, Callable[[Any], Any]] = {
    "one-cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(
        o, max_lr=0.1, total_steps=40, cycle_momentum=bool({"momentum", "betas"} & o.defaults.keys())
    ),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=17),
    "warm-up": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o,
        [torch.optim.lr_scheduler.LinearLR(o, 0.1, total_iters=4), torch.optim.lr_scheduler.ExponentialLR(o, 0.9)],
        milestones=[5],
    ),
    "lambda": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1.0 / (1 + step)),
    "multi-step": lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [3, 7, 7, 11]),
    "plateau": lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=1, threshold=0.5),
}


def make(
    optimizer: str = "adamw",
    scheduler: str = "one-cycle",
    *,
    scaler: bool = False,
    autocast: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Callable[[], Any]:
    def train() -> float:
        model = Net(dtype)
        opt = Optimizers[optimizer](model.parameters())
        sched = Schedulers[scheduler](opt)
        scale = torch.amp.GradScaler("cpu", init_scale=2.0**4, growth_interval=3, enabled=scaler)
        loader = torch.utils.data.DataLoader(data(), batch_size=5, shuffle=True)
        run = sweeper.resume(model=model, optimizer=opt, scheduler=sched, scaler=scale)
        for _ in run.epochs(EPOCHS):
            for x, y in run.batches(loader):

                def closure(x: Any = x, y: Any = y) -> torch.Tensor:
                    opt.zero_grad()
                    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                        loss = nn.functional.mse_loss(model(x.to(dtype)).float(), y)
                    scale.scale(loss).backward()
                    return loss

                if optimizer == "lbfgs":
                    loss = opt.step(closure)  # type: ignore[arg-type]
                else:
                    loss = closure()
                    scale.step(opt)
                    scale.update()
                if scheduler != "plateau":
                    sched.step()
                run.mean("loss", loss)
            if scheduler == "plateau":
                sched.step(run.mean("loss"))
            run.report(run.mean("loss"), lr=opt.param_groups[0]["lr"], scale=scale.get_scale())
            run.state["best"] = min(run.state.get("best", float("inf")), run.mean("loss"))
        return run.state["best"]

    return train


@pytest.mark.parametrize("optimizer", Optimizers)
def test_every_optimizer_continues_bit_for_bit_from_every_save_point(optimizer: str) -> None:
    """CK-05."""
    saving = assert_resumes_exactly(lambda: make(optimizer))
    assert [save.batch for save in saving.saves] == [1, 2, 3, 4, None] * 2 + [1, 2, 3, 4]


@pytest.mark.parametrize("scheduler", Schedulers)
@pytest.mark.parametrize("optimizer", ["adamw", "sgd-momentum"])
def test_every_schedule_continues_where_it_was(optimizer: str, scheduler: str) -> None:
    """CK-05: the learning rate per step equals the uninterrupted run's."""
    assert_resumes_exactly(lambda: make(optimizer, scheduler), every=4)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd-momentum"])
def test_a_gradient_scaler_keeps_its_scale_and_its_growth(optimizer: str) -> None:
    """CK-05: the scale per step equals the uninterrupted run's."""
    assert_resumes_exactly(lambda: make(optimizer, scaler=True), every=3)


def test_autocast_to_bf16_resumes_exactly() -> None:
    assert_resumes_exactly(lambda: make(autocast=True), every=3)


@pytest.mark.parametrize("optimizer", ["nadam", "asgd", "adamw"])
def test_half_precision_parameters_keep_the_moments_dtypes(optimizer: str) -> None:
    """Loading casts floating optimizer state to the parameters' dtype; ours is put back as it was saved."""
    assert_resumes_exactly(lambda: make(optimizer, dtype=torch.bfloat16), every=4)
