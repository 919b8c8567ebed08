"""CMA-ES whose state is data: arrays and numbers as JSON, where Optuna keeps a pickle and loads it (SAFE).

Optuna's sampler stores its optimizer with the trial that begins a generation and restores it at every proposal. Only
that pair is replaced here; all of the algorithm is Optuna's and that of `cmaes`. What follows from the space and the
sampler's arguments is made anew each time; stored is what learning changed, about 2 kB at ten dimensions.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from optuna.samplers import CmaEsSampler

from sweeper.model.trial import Json

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

Learner = Any  # Any: a `CMA`, `SepCMA` or `CMAwM` of `cmaes`, an extra without type hints
Value = int | float | NDArray[np.float64]

_LEARNED: Final = ("_g", "_mean", "_sigma", "_C", "_p_sigma", "_pc")
_LEARNED_RATES: Final = ("_Emean", "_ESigma", "_Vmean", "_VSigma", "_eta_mean", "_eta_Sigma")
"""With `lr_adapt` only."""
_LEARNED_MARGIN: Final = "_A"
"""Of `CMAwM` with discrete dimensions, beside what the `CMA` inside it learned."""


class JsonCmaEsSampler(CmaEsSampler):
    """`CmaEsSampler` that keeps what it learned as JSON, in the trial attribute `<prefix>state`.

    Optuna asks to restore, to begin anew where there is nothing, and to split a pickle's digits into attributes. So
    restoring waits until a new optimizer is there to be filled, and the digits are ignored.
    """

    _finished: Sequence[FrozenTrial] = ()
    _current: Learner = None

    @property
    def _state_key(self) -> str:
        return f"{self._attr_prefix}state"

    def _restore_optimizer(self, completed_trials: list[FrozenTrial]) -> None:
        self._finished = completed_trials

    def _init_optimizer(self, *args: Any, **kwargs: Any) -> Learner:  # Any: handed through
        self._current = super()._init_optimizer(*args, **kwargs)
        stored = (trial.system_attrs.get(self._state_key) for trial in reversed(self._finished))
        next((state for state in stored if state is not None and restore(self._current, state)), None)
        return self._current

    def _split_optimizer_str(self, optimizer_str: str) -> dict[str, Any]:  # Any: JSON where Optuna has text
        return {} if self._current is None else {self._state_key: state_as_json(self._current)}


def with_json_state(sampler_class: type[CmaEsSampler]) -> type[CmaEsSampler]:
    """Give the same sampler class, also a user's own, with its state kept as JSON."""
    if sampler_class is CmaEsSampler:
        return JsonCmaEsSampler
    return type(sampler_class.__name__, (JsonCmaEsSampler, sampler_class), {"__module__": sampler_class.__module__})


def state_as_json(learner: Learner) -> dict[str, Json]:
    """Give what an optimizer learned."""
    return {"kind": type(learner).__name__, **{name: _as_json(value) for name, value in _learned(learner).items()}}


def restore(learner: Learner, stored: Mapping[str, Json]) -> bool:
    """Fill a new optimizer with a stored state, whole or not at all.

    Returns:
        Whether it was filled: not from the state of another kind or size, nor from a damaged or forged one.
    """
    known = _learned(learner)
    if stored.get("kind") != type(learner).__name__ or stored.keys() - {"kind"} != known.keys():
        return False
    found = {name: _value_like(known[name], stored[name]) for name in known}
    if any(value is None for value in found.values()):
        return False
    core = _core(learner)
    for name, value in found.items():
        setattr(learner if name == _LEARNED_MARGIN else core, name, value)
    return True


def _core(learner: Learner) -> Learner:
    return getattr(learner, "_cma", learner)


def _learned(learner: Learner) -> dict[str, Value]:
    core = _core(learner)
    names = (*_LEARNED, *(_LEARNED_RATES if getattr(core, "_lr_adapt", False) else ()))
    learned: dict[str, Value] = {name: getattr(core, name) for name in names}
    if hasattr(learner, _LEARNED_MARGIN):
        learned[_LEARNED_MARGIN] = getattr(learner, _LEARNED_MARGIN)
    return learned


def _as_json(value: Value) -> Json:
    if isinstance(value, np.ndarray):
        digits = base64.b64encode(np.ascontiguousarray(value, dtype="<f8").tobytes()).decode()
        return {"shape": [int(size) for size in value.shape], "f8": digits}
    return int(value) if isinstance(value, int) else float(value)


def _value_like(known: Value, stored: Json) -> Value | None:
    """Read a value of the known one's kind and shape; None where it is anything else, or not finite."""
    if isinstance(known, np.ndarray):
        return _array(stored, known.shape)
    if isinstance(known, int):
        return stored if type(stored) is int and stored >= 0 else None
    return stored if type(stored) is float and np.isfinite(stored) else None


def _array(stored: Json, shape: tuple[int, ...]) -> NDArray[np.float64] | None:
    if not isinstance(stored, dict) or stored.get("shape") != list(shape) or not isinstance(stored.get("f8"), str):
        return None
    try:
        data = base64.b64decode(str(stored["f8"]), validate=True)
    except binascii.Error:
        return None
    if len(data) != 8 * int(np.prod(shape)):
        return None
    array = np.frombuffer(data, dtype="<f8").reshape(shape).astype(np.float64)
    return array if bool(np.isfinite(array).all()) else None
