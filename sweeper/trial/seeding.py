"""Seeds before user code: Python, NumPy and torch from (sweep seed, config hash), also when imported only later.

Importing torch or NumPy here would cost every trial that does not need them; so what is not imported yet is seeded at
the end of its import, by a finder in front of `sys.meta_path` that steps aside afterwards.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import random
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from sweeper.trial.rng import numpy_random
from sweeper.trial.tensors import torch_if_loaded

_THREAD_VARIABLES: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def derived_seed(seed: int, config_hash: str, purpose: str) -> int:
    """Give 63 bits that depend on nothing but the arguments, on any machine and under any hash seed."""
    digest = hashlib.sha256(f"{seed}:{config_hash}:{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def seed_everything(seed: int, config_hash: str) -> None:
    """Seed Python, NumPy and torch (CPU and every CUDA device), now or at the end of their import."""
    random.seed(derived_seed(seed, config_hash, "python"))

    def seed_numpy() -> None:
        numpy_random().seed(_words(derived_seed(seed, config_hash, "numpy")))

    def seed_torch() -> None:
        torch_if_loaded().manual_seed(derived_seed(seed, config_hash, "torch"))

    _now_or_after_import("numpy.random", numpy_random, seed_numpy)
    _now_or_after_import("torch", torch_if_loaded, seed_torch)


def reseed_numpy(seed: int, config_hash: str) -> None:
    """Put NumPy's global generator where it is right after its import in this trial, if it is imported."""
    numpy = numpy_random()
    if numpy is not None:
        numpy.seed(_words(derived_seed(seed, config_hash, "numpy")))


def set_threads(threads: int) -> None:
    """Fix the number of compute threads: it belongs to the trial, since results may depend on it.

    OpenMP and BLAS libraries that are not loaded yet read it from the environment; torch is told, now or after import.
    """
    for name in _THREAD_VARIABLES:
        os.environ[name] = str(threads)

    def tell_torch() -> None:
        torch_if_loaded().set_num_threads(threads)

    _now_or_after_import("torch", torch_if_loaded, tell_torch)


def _words(seed: int) -> list[int]:
    return [seed & 0xFFFFFFFF, seed >> 32]


def _now_or_after_import(name: str, loaded: Callable[[], Any], act: Callable[[], None]) -> None:
    if loaded() is not None:
        act()
        return
    for finder in sys.meta_path:
        if isinstance(finder, _AfterImport) and finder.name == name:
            finder.acts.append(act)
            return
    sys.meta_path.insert(0, _AfterImport(name, act))


class _AfterImport(MetaPathFinder):
    """Finds one module the usual way, and runs functions once it has been executed."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self.name = name
        self.acts = [act]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _ActingLoader(spec.loader, self.acts)
        return spec


class _ActingLoader(Loader):
    """The real loader, with something to do after the module's own code."""

    def __init__(self, loader: Loader, acts: Sequence[Callable[[], None]]) -> None:
        self._loader = loader
        self._acts = acts

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None, "the import system sets it"
        module.__spec__.loader = module.__loader__ = self._loader  # what the module's own code expects to see
        self._loader.exec_module(module)
        for act in self._acts:
            act()
