"""What a training run's numbers may depend on besides its script, noted in each save and compared at a resume."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from typing import Any, Final

from sweeper.trial.arrays import numpy_if_loaded
from sweeper.trial.tensors import torch_if_loaded

_DECISIVE: Final = {
    "torch": "another version of torch",
    "numpy": "another version of NumPy",
    "device": "another kind of device",
    "cpu": "another CPU capability",
    "threads": "another number of threads",
}
"""A difference in these may change results."""


def provenance() -> dict[str, Any]:
    """Describe this process. The hash seed is recorded only: results must not depend on it (`sweeper check`)."""
    torch, numpy = torch_if_loaded(), numpy_if_loaded()
    return {
        "python": platform.python_version(),
        "hash_seed": os.environ.get("PYTHONHASHSEED", "random" if sys.flags.hash_randomization else "0"),
        "numpy": None if numpy is None else numpy.__version__,
        "torch": None if torch is None else str(torch.__version__),
        "device": None if torch is None else _device(torch),
        "cpu": None if torch is None else torch.backends.cpu.get_cpu_capability(),
        "threads": None if torch is None else torch.get_num_threads(),
    }


def differences(saved: Mapping[str, Any], live: Mapping[str, Any]) -> list[str]:
    """Give the differences that may make a resumed run differ in its last bits. What is unknown on a side is no
    difference: a library may not have been imported yet."""
    return [
        f"{meaning}: {saved[key]} before, {live[key]} now"
        for key, meaning in _DECISIVE.items()
        if saved.get(key) is not None and live.get(key) is not None and saved[key] != live[key]
    ]


def _device(torch: Any) -> str:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return str(torch.cuda.get_device_name())
    return "cpu"
