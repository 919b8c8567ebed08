"""What every child would import for itself, imported once in the warm parent, whose forks then have it.

torch imports its compiler (a second and a half, five times a small trial) when a process makes its first optimizer.
"""

from __future__ import annotations

import contextlib
import importlib

from sweeper.trial.tensors import torch_if_loaded


def preload() -> None:
    """Import what training needs later: our loops, and torch's optimizers if the script has imported torch.

    Starts no thread, computes nothing and asks nothing of a GPU's driver: forking stays as safe as it was.
    """
    importlib.import_module("sweeper.trial.run")
    torch = torch_if_loaded()
    if torch is not None and hasattr(torch, "optim"):
        with contextlib.suppress(Exception):  # a script that needs what cannot be imported meets the error itself
            torch.optim.SGD([torch.zeros(1, device="cpu")], lr=1.0)
