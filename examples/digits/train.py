"""Train a small network on scikit-learn's handwritten digits (1,797 real images of 8 x 8 pixels, shipped with it).

python examples/digits/train.py                 one plain run
python examples/digits/train.py lr=0.3          the same with another learning rate
python examples/digits/train.py -m              a durable sweep of 12 trials on 2 workers
"""

from __future__ import annotations

import hydra
import torch
from omegaconf import DictConfig
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import sweeper

VALIDATION = 360
"""Images held back, the last of the set: other writers than most of the rest."""


def load_images() -> tuple[TensorDataset, TensorDataset]:
    """Give training and validation sets; images are (1, 8, 8) floats in 0..1."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    cut = len(labels) - VALIDATION
    return TensorDataset(images[:cut], labels[:cut]), TensorDataset(images[cut:], labels[cut:])


def build_model(width: int, dropout: float) -> nn.Module:
    """Build two convolutions and a linear layer: (n, 1, 8, 8) images to (n, 10) logits."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(width * 16, 10),
    )


@torch.no_grad()
def validate(model: nn.Module, validation: TensorDataset) -> tuple[float, float]:
    """Give mean loss and accuracy on the validation set."""
    model.eval()
    images, labels = validation.tensors
    logits = model(images)
    model.train()
    return nn.functional.cross_entropy(logits, labels).item(), (logits.argmax(1) == labels).float().mean().item()


@hydra.main(version_base="1.3", config_path="../../configs", config_name="digits")
def train(cfg: DictConfig) -> float:
    """Train one network; give its best validation loss."""
    training, validation = load_images()
    model = build_model(cfg.width, cfg.dropout)
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=cfg.momentum)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=cfg.epochs)
    loader = DataLoader(training, batch_size=cfg.batch_size, shuffle=True)

    run = sweeper.resume(model=model, optimizer=optimizer, scheduler=scheduler)
    for epoch in run.epochs(cfg.epochs):
        for images, labels in run.batches(loader):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        scheduler.step()
        validation_loss, accuracy = validate(model, validation)
        run.report(validation_loss, step=epoch, accuracy=accuracy)
        run.state["best"] = min(run.state.get("best", float("inf")), validation_loss)
        print(f"epoch {epoch}: validation loss {validation_loss:.4f}, accuracy {accuracy:.3f}", flush=True)
    return run.state["best"]


if __name__ == "__main__":
    train()
