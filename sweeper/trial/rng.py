"""Random state: snapshots of everything that draws, and putting them back.

A snapshot holds Python's generator, NumPy's global one if `numpy.random` is imported, torch's CPU generator, that of
each CUDA device in use, and any further generators it is given. Snapshots are cheap (tens of microseconds), since one
is taken at every loop's start whether or not a save follows.
"""

from __future__ import annotations

import array
import importlib
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sweeper.errors import StateMismatch
from sweeper.trial.tensors import torch_if_loaded

_PYTHON_VERSION: Final = 3
"""Version of `random.getstate()`: Mersenne Twister, 624 words and a position."""


def numpy_random() -> Any:  # Any: NumPy is optional
    """The `numpy.random` module if this process has imported it completely, else None."""
    module = sys.modules.get("numpy.random")
    return module if module is not None and hasattr(module, "default_rng") else None


def is_generator(value: object) -> bool:
    """Whether this draws random numbers and can be captured: a torch, NumPy or Python generator."""
    if isinstance(value, random.Random):
        return not isinstance(value, random.SystemRandom)
    torch, numpy = torch_if_loaded(), numpy_random()
    if torch is not None and isinstance(value, torch.Generator):
        return True
    return numpy is not None and isinstance(value, (numpy.Generator, numpy.RandomState, numpy.BitGenerator))


def generator_state(generator: Any) -> Any:
    """Give a copy of a generator's state, of a kind that `sweeper.trial.values` carries."""
    if isinstance(generator, random.Random):
        return _pack_python(generator.getstate())
    numpy = numpy_random()
    if numpy is not None:
        if isinstance(generator, numpy.Generator):
            return generator.bit_generator.state
        if isinstance(generator, numpy.RandomState):
            return generator.get_state(legacy=False)
        if isinstance(generator, numpy.BitGenerator):
            return generator.state
    return generator.get_state()


def set_generator_state(generator: Any, state: Any) -> None:
    """Put a state back that `generator_state` gave for a generator of the same kind.

    Raises:
        StateMismatch: the state belongs to another kind of generator.
    """
    numpy = numpy_random()
    try:
        if isinstance(generator, random.Random):
            generator.setstate(_unpack_python(state))
        elif numpy is not None and isinstance(generator, numpy.Generator):
            generator.bit_generator.state = state
        elif numpy is not None and isinstance(generator, numpy.RandomState):
            generator.set_state(state)
        elif numpy is not None and isinstance(generator, numpy.BitGenerator):
            generator.state = state
        else:
            generator.set_state(state.cpu())
    except (TypeError, ValueError, KeyError, AttributeError, RuntimeError) as error:
        kind = f"{type(generator).__module__}.{type(generator).__qualname__}"
        raise StateMismatch(f"the saved random state does not fit a {kind}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Random state at one moment; each part is of a kind that `sweeper.trial.values` carries."""

    python: Any
    numpy: Any = None
    torch: Any = None
    cuda: Mapping[int, Any] = field(default_factory=dict)
    generators: Mapping[str, Any] = field(default_factory=dict)
    """By the name or path under which each was found."""

    def to_value(self) -> dict[str, Any]:
        """Give a plain mapping of it."""
        return {
            "python": self.python, "numpy": self.numpy, "torch": self.torch, "cuda": dict(self.cuda),
            "generators": dict(self.generators),
        }  # fmt: skip

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Snapshot:
        """Read back what `to_value` gave."""
        return cls(**{name: value[name] for name in ("python", "numpy", "torch", "cuda", "generators")})


def take(generators: Mapping[str, Any] | None = None, *, cuda: bool = True) -> Snapshot:
    """Snapshot the process's random state (CUDA's only if asked) and that of the generators given."""
    numpy, torch = numpy_random(), torch_if_loaded()
    devices = cuda_in_use(torch) if cuda and torch is not None else []
    return Snapshot(
        python=_pack_python(random.getstate()),
        numpy=None if numpy is None else numpy.get_state(legacy=False),
        torch=None if torch is None else torch.default_generator.get_state(),
        cuda={device: torch.cuda.get_rng_state(device) for device in devices},
        generators={name: generator_state(generator) for name, generator in (generators or {}).items()},
    )


def put_back(snapshot: Snapshot, generators: Mapping[str, Any] | None = None) -> None:
    """Make the process draw what it drew after the snapshot.

    Generators that the snapshot does not name are left alone, as are CUDA states without a device here.

    Raises:
        StateMismatch: a state does not fit its generator.
    """
    random.setstate(_unpack_python(snapshot.python))
    if snapshot.numpy is not None:
        importlib.import_module("numpy.random").set_state(snapshot.numpy)
    torch = torch_if_loaded() if snapshot.torch is None else importlib.import_module("torch")
    if snapshot.torch is not None:
        torch.default_generator.set_state(snapshot.torch)
    if snapshot.cuda and torch is not None and torch.cuda.is_available():
        _put_back_cuda(torch, snapshot.cuda)
    for name, generator in (generators or {}).items():
        if name in snapshot.generators:
            set_generator_state(generator, snapshot.generators[name])


def cuda_in_use(torch: Any) -> list[int]:
    """CUDA devices on which this process has memory, or the current one; none before CUDA is initialised."""
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return []
    current = torch.cuda.current_device()
    return [index for index in range(torch.cuda.device_count())
            if index == current or torch.cuda.memory_reserved(index) > 0]  # fmt: skip


def _put_back_cuda(torch: Any, states: Mapping[int, Any]) -> None:
    """One device's state goes to the current device whatever its index; several go to their own indices."""
    if len(states) == 1:
        torch.cuda.set_rng_state(next(iter(states.values())).cpu(), torch.cuda.current_device())
        return
    for index, state in states.items():
        if index < torch.cuda.device_count():
            torch.cuda.set_rng_state(state.cpu(), index)


def _pack_python(state: Any) -> tuple[bytes, float | None]:
    version, words, gauss = state
    assert version == _PYTHON_VERSION, "the one since Python 3.2"
    return array.array("I", words).tobytes(), gauss


def _unpack_python(packed: Any) -> Any:
    try:
        words, gauss = packed
        return _PYTHON_VERSION, tuple(array.array("I", words)), gauss
    except (TypeError, ValueError) as error:
        raise StateMismatch("the saved state of Python's random generator is malformed") from error
