"""Softmax regression on scikit-learn's handwritten digits, in NumPy, swept without Hydra.

sweeper run examples/plain/softmax.yaml     the search that the file describes, durably
python examples/plain/softmax.py            one training with the values below
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import sweeper

VALIDATION = 360
"""Images held back, the last of the set."""


def train(config: dict[str, Any]) -> float:
    """Train one model; give its validation loss. What has to survive an interruption is in `run.state`."""
    digits = load_digits()
    images, labels = digits.data / 16, digits.target
    cut = len(labels) - VALIDATION
    run = sweeper.resume()
    state = run.state
    state.setdefault("weights", np.zeros((images.shape[1], 10)))
    state.setdefault("velocity", np.zeros((images.shape[1], 10)))
    optimizer = config["optimizer"]
    for epoch in run.epochs(config["epochs"]):
        order = np.random.permutation(cut)
        for batch in np.split(order, range(config["batch_size"], cut, config["batch_size"])):
            gradient = loss_gradient(images[batch], labels[batch], state["weights"])
            state["velocity"] = optimizer["momentum"] * state["velocity"] - optimizer["lr"] * gradient
            state["weights"] = state["weights"] + state["velocity"]
        run.report(loss(images[cut:], labels[cut:], state["weights"]), step=epoch)
    return loss(images[cut:], labels[cut:], state["weights"])


def probabilities(images: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Give (n, 10) class probabilities of (n, 64) images under (64, 10) weights."""
    logits = images @ weights
    exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponents / exponents.sum(axis=1, keepdims=True)


def loss(images: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> float:
    """Give the mean cross-entropy."""
    return float(-np.log(probabilities(images, weights)[np.arange(len(labels)), labels] + 1e-12).mean())


def loss_gradient(images: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Give the gradient of the mean cross-entropy, (64, 10)."""
    error = probabilities(images, weights)
    error[np.arange(len(labels)), labels] -= 1
    return images.T @ error / len(labels)


if __name__ == "__main__":
    print(train({"epochs": 5, "batch_size": 32, "optimizer": {"lr": 0.1, "momentum": 0.9}}))
